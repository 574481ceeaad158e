"""Every optimizer on a small LoRA-like problem: it learns, gets its options, and resumes with the same bits."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from safetensors.torch import load_file, save_file

from workbench.errors import ConfigError, ResumeRefused
from workbench.runs import optimizer_options
from workbench.runs.settings import Optimizer, TrainSettings
from workbench.settings import parse
from workbench.trainer import optimizers
from workbench.trainer.optimizers import Ema
from workbench.workspace import read_json, write_json

NAMES: tuple[str, ...] = get_args(Optimizer)
RATES = {"prodigy": 1.0, "schedule-free": 0.03, "came": 0.001}
STEPS, STOP = 12, 5


def make_settings(name: str, **more: Any) -> TrainSettings:
    given: dict[str, Any] = {"optimizer": name, "learning_rate": RATES.get(name, 0.01), **more}
    if name == "prodigy":  # otherwise its estimate would not move in so few steps
        given["optimizer_options"] = ["d0=0.001", "d_coef=8", *given.get("optimizer_options", [])]
    return parse(TrainSettings, given)


class Problem:
    """Two LoRA matrices large enough for 8-bit moments, DoRA's magnitudes and a convolution, towards fixed targets."""

    def __init__(self, settings: TrainSettings) -> None:
        draw = torch.Generator().manual_seed(0)

        def parameter(*shape: int) -> torch.nn.Parameter:
            return torch.nn.Parameter(torch.randn(shape, generator=draw) * 0.05)

        shapes = {"lora_A": (16, 256), "lora_B": (256, 16), "magnitude": (256,), "kernel": (8, 2, 3, 3)}
        self.named = [(name, parameter(*shape)) for name, shape in shapes.items()]
        self.target = torch.randn(256, 256, generator=draw) * 0.05
        self.rate = settings.learning_rate
        self.optimizer = optimizers.build(settings, self.named)

    @property
    def weights(self) -> dict[str, torch.Tensor]:
        return {name: parameter.detach().clone() for name, parameter in self.named}

    def loss(self, step: int) -> torch.Tensor:
        a, b, magnitude, kernel = (parameter for _, parameter in self.named)
        inputs = torch.randn(32, 256, generator=torch.Generator().manual_seed(step))
        output = (inputs @ (b @ a).T) * (1 + magnitude)
        return ((output - inputs @ self.target.T) ** 2).mean() + ((kernel - 0.1) ** 2).mean()

    def train(self, first: int, last: int) -> list[float]:
        """As the loop does: it writes the step's learning rate (a warm-up from 0) into every group."""
        losses = []
        for step in range(first, last + 1):
            for group in self.optimizer.param_groups:
                group["lr"] = self.rate * min(1.0, (step - 1) / 2)
            loss = self.loss(step)
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)
            losses.append(loss.item())
        return losses

    def save(self, folder: Path) -> None:
        tensors, values = optimizers.state_of(self.optimizer, self.named)
        save_file(tensors, folder / "optimizer.safetensors")
        save_file(self.weights, folder / "weights.safetensors")
        write_json(folder / "state.json", values)

    def load(self, folder: Path) -> None:
        weights = load_file(folder / "weights.safetensors")
        with torch.no_grad():
            for name, parameter in self.named:
                parameter.copy_(weights[name])
        tensors, values = load_file(folder / "optimizer.safetensors"), read_json(folder / "state.json")
        optimizers.load_state(self.optimizer, self.named, tensors, values)


def same_bits(left: dict[str, torch.Tensor], right: dict[str, torch.Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


@pytest.mark.parametrize("name", NAMES)
def test_an_interrupted_run_ends_with_the_same_bits(name: str, tmp_path: Path) -> None:
    settings = make_settings(name, weight_decay=0.1)
    whole = Problem(settings)
    losses = whole.train(1, STEPS)
    assert losses[-1] < 0.97 * losses[0]
    assert not same_bits(whole.weights, Problem(settings).weights)

    first = Problem(settings)
    first.train(1, STOP)
    first.save(tmp_path)
    second = Problem(settings)
    second.train(1, 2)  # what was there before must leave no trace
    second.load(tmp_path)
    second.train(STOP + 1, STEPS)
    assert same_bits(second.weights, whole.weights)
    ours, theirs = (optimizers.state_of(one.optimizer, one.named) for one in (second, whole))
    assert same_bits(ours[0], theirs[0])
    assert ours[1] == theirs[1]


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("adamw", "amsgrad=true"), ("adamw-8bit", "min_8bit_size=100000"), ("prodigy", "bias_correction=false"),
        ("came", "beta3=0.5"), ("schedule-free", "r = 2"), ("muon", "use_adjusted_lr=false"),
    ],
)  # fmt: skip
def test_options_reach_the_optimizer(name: str, line: str) -> None:
    plain, other = Problem(make_settings(name)), Problem(make_settings(name, optimizer_options=[line]))
    plain.train(1, STOP)
    other.train(1, STOP)
    assert not same_bits(plain.weights, other.weights)


@pytest.mark.parametrize("name", ["adamw", "adam"])
def test_eight_bits_are_less_than_a_third_of_the_memory(name: str) -> None:
    def bytes_of(name: str) -> int:
        problem = Problem(make_settings(name))
        problem.train(1, 1)
        state = [problem.optimizer.state[parameter] for _, parameter in problem.named[:2]]
        moments = [value for one in state for key, value in one.items() if not key.startswith(("step", "qmap"))]
        return sum(value.numel() * value.element_size() for value in moments)

    assert bytes_of(f"{name}-8bit") < bytes_of(name) / 3


def test_muon_turns_matrices_and_leaves_the_rest_to_adamw() -> None:
    problem = Problem(make_settings("muon"))
    problem.train(1, 3)
    kinds = {name: set(problem.optimizer.state[parameter]) for name, parameter in problem.named}
    assert kinds["lora_A"] == kinds["lora_B"] == {"momentum_buffer"}
    assert kinds["magnitude"] == kinds["kernel"] == {"exp_avg", "exp_avg_sq"}


def test_schedule_free_is_used_with_its_average_and_trained_without(tmp_path: Path) -> None:
    interrupted, whole = (Problem(make_settings("schedule-free")) for _ in range(2))
    whole.train(1, STEPS)
    interrupted.train(1, STOP)
    trained = interrupted.weights
    for _ in range(3):
        with optimizers.averaged(interrupted.optimizer):
            average = interrupted.weights
            with optimizers.averaged(interrupted.optimizer):  # measuring while exporting, say
                assert same_bits(interrupted.weights, average)
            assert same_bits(interrupted.weights, average)
            with pytest.raises(AssertionError, match="averaged weights"):
                interrupted.save(tmp_path)
        assert same_bits(interrupted.weights, trained)
    for name, parameter in interrupted.named:  # trained = 0.9 average + 0.1 fast iterate
        expected = 0.9 * average[name] + 0.1 * interrupted.optimizer.state[parameter]["z"]
        torch.testing.assert_close(trained[name], expected)
        assert not torch.equal(trained[name], average[name])
    interrupted.train(STOP + 1, STEPS)
    assert same_bits(interrupted.weights, whole.weights)


def test_a_fork_keeps_the_memory_and_takes_its_own_constants(tmp_path: Path) -> None:
    problem = Problem(make_settings("prodigy", weight_decay=0.0))
    problem.train(1, STOP)
    problem.save(tmp_path)
    fork = Problem(make_settings("prodigy", weight_decay=0.3, adam_beta1=0.8))
    fork.load(tmp_path)
    group, parent = fork.optimizer.param_groups[0], problem.optimizer.param_groups[0]
    assert (group["weight_decay"], group["betas"]) == (0.3, (0.8, 0.95))
    assert parent["d"] > 0.001  # its estimate has moved
    assert (group["d"], group["d_max"], group["step"]) == (parent["d"], parent["d_max"], parent["step"])


def test_state_of_a_parameter_that_is_not_trained_is_refused(tmp_path: Path) -> None:
    problem = Problem(make_settings("adamw"))
    problem.train(1, 1)
    tensors, values = optimizers.state_of(problem.optimizer, problem.named)
    with pytest.raises(ResumeRefused, match="has state for lora_A, which this run does not train"):
        optimizers.load_state(problem.optimizer, problem.named[1:], tensors, values)


OPTIONS = [
    ("prodigy", "d_coeff=1", "d_coeff, which prodigy does not have: did you mean d_coef?"),
    ("adamw", "zzz=1", "zzz, which adamw does not have: it has amsgrad"),
    ("muon", "lr=1", "lr, which has its own setting: set learning_rate"),
    ("came", "betas=0.9", "betas, which has its own setting: set adam_beta1 and adam_beta2"),
    ("muon", "momentum", "'momentum', must be NAME=VALUE: momentum=VALUE"),
    ("muon", "momentum=often", "momentum=often, must be a number, 0 to 0.9999"),
    ("muon", "ns_steps=2.5", "ns_steps=2.5, must be a whole number, 1 to 99"),
    ("muon", "nesterov=1", "nesterov=1, must be true or false"),
    ("prodigy", "growth_rate=nan", "growth_rate=nan, must be a number of 1 or more"),
    ("prodigy", "d_coef=1", "d_coef twice: remove one"),
]
OTHERS = [
    (
        *("prodigy", "learning_rate", 1e-4),
        "0.0001, must be 0.1 or more with prodigy, which multiplies it by the rate it finds itself: set it to 1",
    ),
    ("schedule-free", "adam_beta1", 0.0, "0, must be above 0 with schedule-free: the default is 0.9"),
    (
        *("schedule-free", "ema_decay", 0.99),
        "0.99, must be 0 with schedule-free, which averages the weights itself: set it to 0",
    ),
]
REFUSED = [(name, "optimizer_options", [line], f"optimizer_options has {said}") for name, line, said in OPTIONS]
REFUSED += [(name, setting, value, f"{setting} is {said}") for name, setting, value, said in OTHERS]


@pytest.mark.parametrize(("name", "setting", "value", "sentence"), REFUSED)
def test_what_cannot_be_is_refused_in_a_sentence(name: str, setting: str, value: Any, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        optimizer_options.check(make_settings(name, **{setting: value}))
    assert caught.value.problems == {setting: sentence}


@pytest.mark.parametrize(
    ("name", "package", "distribution"),
    [
        *((name, "bitsandbytes", "bitsandbytes") for name in ("adamw-8bit", "adam-8bit")),
        *((name, "pytorch_optimizer", "pytorch-optimizer") for name in ("prodigy", "came", "schedule-free", "muon")),
    ],
)
def test_a_missing_package_is_named_with_the_command_that_brings_it(
    name: str, package: str, distribution: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError) as caught:
        optimizer_options.check(make_settings(name))
    sentence = f"optimizer is {name}, which needs the package {distribution}: {optimizer_options.INSTALL}"
    assert caught.value.problems == {"optimizer": sentence}


# ---- The moving average: the formula it states, the same bits after an interruption, the weights back after its use


DECAY = 0.5  # reached at step 9
Named = list[tuple[str, torch.nn.Parameter]]


def make(dtype: torch.dtype = torch.float32) -> Named:
    return [
        ("first", torch.nn.Parameter(torch.zeros(3, 5, dtype=dtype))),
        ("second", torch.nn.Parameter(torch.ones(7))),
    ]


def move(named: Named, step: int) -> None:
    """Set the weights as a step would."""
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
