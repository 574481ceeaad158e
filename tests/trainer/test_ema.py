"""The moving average: the formula it states, the same bits after an interruption, the weights back after its use."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from workbench.trainer.optimizers import Ema

DECAY = 0.5  # reached at step 9
Named = list[tuple[str, torch.nn.Parameter]]


def make(dtype: torch.dtype = torch.float32) -> Named:
    return [
        ("first", torch.nn.Parameter(torch.zeros(3, 5, dtype=dtype))),
        ("second", torch.nn.Parameter(torch.ones(7))),
    ]


def move(named: Named, step: int) -> None:
    """Weights that a step leaves behind."""
    with torch.no_grad():
        for number, (_, parameter) in enumerate(named):
            parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(10 * step + number)))


def train(named: Named, ema: Ema, steps: Sequence[int]) -> None:
    for step in steps:
        move(named, step)
        ema.update(step)


def test_the_average_follows_its_formula() -> None:
    named = make()
    ema = Ema(named, DECAY)
    expected = torch.zeros(3, 5)
    for step in range(1, 13):
        train(named, ema, [step])
        decay = 0.0 if step == 1 else min(DECAY, step / (9 + step))
        expected = decay * expected + (1 - decay) * named[0][1].detach()
        torch.testing.assert_close(ema.tensors()["first"], expected)


def test_an_interrupted_average_ends_with_the_same_bits(tmp_path: Path) -> None:
    named = make()
    whole = Ema(named, DECAY)
    train(named, whole, range(1, 13))

    named = make()
    first = Ema(named, DECAY)
    train(named, first, range(1, 6))
    save_file(first.tensors(), tmp_path / "ema.safetensors")
    named = make()
    second = Ema(named, DECAY)
    second.load(load_file(tmp_path / "ema.safetensors"))
    train(named, second, range(6, 13))
    assert all(torch.equal(value, second.tensors()[name]) for name, value in whole.tensors().items())


def test_the_average_stands_in_for_the_weights_and_gives_way_again() -> None:
    named = make()
    ema = Ema(named, DECAY)
    train(named, ema, range(1, 6))
    trained = [parameter.detach().clone() for _, parameter in named]
    with ema.applied():
        with ema.applied():  # measuring while exporting, say
            pass
        assert all(torch.equal(parameter, ema.tensors()[name]) for name, parameter in named)
    with pytest.raises(RuntimeError, match="out of memory"), ema.applied():
        raise RuntimeError("out of memory")
    assert all(torch.equal(parameter, value) for (_, parameter), value in zip(named, trained, strict=True))
    assert not torch.equal(trained[0], ema.tensors()["first"])
