"""Levels of gradient checkpointing: the same bits, and what each keeps."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn import functional
from torch.utils._python_dispatch import TorchDispatchMode

from workbench.memory import checkpointing
from workbench.memory.checkpointing import Level, recomputing
from workbench.memory.compiling import compile_blocks, interpret_blocks

WIDTH = 16


class Block(nn.Module):
    """Attention and a linear layer, as every transformer has them; counts how often each is computed."""

    def __init__(self) -> None:
        super().__init__()
        self.mix, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.drop = nn.Dropout(0.5)
        self.computed = 0

    def forward(self, hidden: torch.Tensor, shared: torch.Tensor) -> torch.Tensor:
        if not torch.compiler.is_compiling():
            self.computed += 1
        query, key, value = self.mix(hidden + shared).unflatten(-1, (6, -1)).transpose(1, 2).chunk(3, dim=1)
        mixed = functional.scaled_dot_product_attention(query, key, value).transpose(1, 2).flatten(2)
        return hidden + self.drop(self.out(mixed))


def blocks() -> list[Block]:
    torch.manual_seed(0)
    return [Block() for _ in range(4)]


def gradients(made: list[Block], recompute: Any = None) -> list[torch.Tensor]:
    hidden = torch.randn(2, 5, WIDTH, generator=torch.Generator().manual_seed(1)).requires_grad_()
    shared, value = torch.ones(WIDTH), hidden
    torch.manual_seed(7)  # for what is dropped
    for block in made:
        value = recompute(block, value, shared) if recompute else block(value, shared)
    value.square().sum().backward()
    found = [hidden.grad, *(parameter.grad for block in made for parameter in block.parameters())]
    return [gradient.clone() for gradient in found if gradient is not None]


@pytest.mark.parametrize("level", ["keep attention", "full", "offloaded"])
def test_every_level_gives_the_same_bits_with_dropout_too(level: Level) -> None:
    plain, made = gradients(blocks()), blocks()
    again = gradients(made, recomputing(level, random=True))
    assert all(torch.equal(one, other) for one, other in zip(plain, again, strict=True))
    assert [block.computed for block in made] == [2] * 4  # the last part of a block may be spared, its begin is not


class Attentions(TorchDispatchMode):
    """Counts how often an attention's forward pass is computed."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, function: Any, types: Any, arguments: Any = (), named: Any = None) -> Any:
        self.count += str(function).startswith("aten._scaled_dot_product_flash_attention_for_cpu.")
        return function(*arguments, **(named or {}))


@pytest.mark.parametrize(("level", "count"), [("keep attention", 4), ("full", 8), ("offloaded", 8)])
def test_keep_attention_computes_each_attention_once(level: Level, count: int) -> None:
    with Attentions() as attentions:
        gradients(blocks(), recomputing(level, random=True))
    assert attentions.count == count


def test_offloaded_inputs_are_nowhere_else_in_between() -> None:
    """When the forward pass is over, nothing holds the inputs of the blocks any more; with level full they are held."""

    def held(level: Level) -> int:
        value, inputs, recompute = torch.randn(2, 5, WIDTH).requires_grad_(), [], recomputing(level, random=False)
        for block in blocks():
            value = value * 1.0
            inputs.append(StorageWeakRef(value.untyped_storage()))
            value = recompute(block, value, torch.ones(WIDTH))
        count = sum(not reference.expired() for reference in inputs)
        value.sum().backward()
        return count

    assert (held("offloaded"), held("full")) == (0, 4)


def test_what_all_blocks_are_given_leaves_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Captions and timesteps by token have the axes of a block's input: each block copied them into host memory."""
    copies: list[torch.Size] = []
    made = checkpointing._HostCopy.__init__
    monkeypatch.setattr(
        checkpointing._HostCopy, "__init__", lambda self, tensor: (copies.append(tensor.shape), made(self, tensor))[1]
    )
    value, shared = torch.randn(2, 5, WIDTH).requires_grad_(), torch.ones(2, 1, WIDTH)
    recompute = recomputing("offloaded", random=False)
    for block in blocks():
        value = recompute(block, value, shared)
    value.sum().backward()
    assert copies.count(value.shape) == 4
    assert copies.count(shared.shape) == 1


@pytest.mark.parametrize("level", [None, "keep attention", "full"])
def test_b26_one_translated_function_computes_all_blocks(level: Level | None) -> None:
    torch._dynamo.reset()
    plain, made = blocks(), blocks()
    for block in (*plain, *made):
        block.drop = nn.Identity()  # type: ignore[assignment]
    compile_blocks(made, recomputing(level, random=False) if level else None, backend="aot_eager")
    before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    for one, other in zip(gradients(plain), gradients(made), strict=True):
        assert torch.allclose(one, other, rtol=1e-5, atol=1e-6)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] - before == 1
    with torch.no_grad():
        assert made[0](torch.ones(1, 5, WIDTH), torch.ones(WIDTH)).shape == (1, 5, WIDTH)
    interpret_blocks(made)
    gradients(made)
    assert made[0].computed == 1
