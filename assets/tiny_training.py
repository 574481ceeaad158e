"""Shared by the training scripts: optimizer, moving average, resumable state, step budget and log lines."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)


def orthogonalise(matrices: Tensor, rounds: int = 5) -> Tensor:
    """Move the singular values of a stack of matrices [N, rows, columns] toward 1 (quintic Newton-Schulz iteration)."""
    a, b, c = NEWTON_SCHULZ
    tall = matrices.shape[-2] > matrices.shape[-1]
    x = matrices.mT if tall else matrices
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(rounds):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if tall else x


class Muon(torch.optim.Optimizer):
    """Orthogonalized momentum, for weight matrices and convolution kernels (flattened to matrices).

    On this small model it needs clearly fewer steps than AdamW for the same loss. PyTorch's Muon does not take kernels
    with more than two dimensions.
    """

    def __init__(self, params: Iterable[nn.Parameter], lr: float, momentum: float = 0.95, decay: float = 0.01) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "decay": decay})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        """Take one step. Matrices of the same shape are orthogonalized together."""
        for group in self.param_groups:
            by_shape: dict[tuple[int, ...], list[nn.Parameter]] = {}
            for p in group["params"]:
                if p.grad is not None:
                    by_shape.setdefault((p.shape[0], p[0].numel()), []).append(p)
            for (rows, columns), params in by_shape.items():
                updates = orthogonalise(torch.stack([self._momentum(p, group).reshape(rows, columns) for p in params]))
                size = group["lr"] * math.sqrt(max(1.0, rows / columns))
                for p, update in zip(params, updates, strict=True):
                    p.mul_(1 - group["lr"] * group["decay"]).add_(update.reshape(p.shape), alpha=-size)

    def _momentum(self, p: nn.Parameter, group: dict[str, Any]) -> Tensor:
        """Return the Nesterov momentum of a parameter's gradient."""
        assert p.grad is not None
        state = self.state[p]
        if "momentum" not in state:
            state["momentum"] = torch.zeros_like(p)
        state["momentum"].lerp_(p.grad, 1 - group["momentum"])
        return p.grad.lerp(state["momentum"], group["momentum"])


def make_optimisers(
    model: nn.Module, is_matrix: Callable[[str, nn.Parameter], bool], muon_lr: float, adam_lr: float
) -> list[torch.optim.Optimizer]:
    """Return Muon for the parameters that `is_matrix` selects, and AdamW for the others."""
    named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
    matrices = [p for name, p in named if is_matrix(name, p)]
    rest = [p for name, p in named if not is_matrix(name, p)]
    adam = torch.optim.AdamW(rest, lr=adam_lr, betas=(0.9, 0.98), weight_decay=0.01)
    return [Muon(matrices, lr=muon_lr), adam] if matrices else [adam]


def learning_rate_factor(step: int, total: int, warmup: int) -> float:
    """Return the factor of a linear warmup followed by a cosine down to 3%."""
    progress = min(1.0, step / max(1, total))
    return min(1.0, (step + 1) / warmup) * (0.03 + 0.97 * 0.5 * (1 + math.cos(math.pi * progress)))


def stable_factor(step: int, total: int, warmup: int, decay_part: float = 0.3) -> float:
    """Return the factor of a linear warmup, a constant part, and a linear decay to 3% in the last part of the steps.

    Before the decay the factor does not depend on `total`, so a run can end early: with a smaller total it resumes from
    its saved state and decays from there.
    """
    left = (total - step) / max(1.0, decay_part * total)
    return min(1.0, (step + 1) / warmup) * max(0.03, min(1.0, left))


def step_generator(seed: int, stage: int, step: int) -> torch.Generator:
    """Return the generator of a training step, so that a resumed run draws the same as an uninterrupted one."""
    return torch.Generator().manual_seed(seed * 1_000_003 + stage * 100_000_007 + step)


class Trainee:
    """A model with its optimizers and moving average, saved as one file."""

    def __init__(
        self, model: nn.Module, average: nn.Module, optimisers: list[torch.optim.Optimizer], file: Path
    ) -> None:
        self.model, self.average, self.optimisers, self.file = model, average, optimisers, file
        self.rates = [[group["lr"] for group in o.param_groups] for o in optimisers]
        self.step = 0

    def update(self, loss: Tensor, factor: float, decay: float = 0.999) -> None:
        """Backpropagate, clip, take one step at `factor` times the base rates, and update the average."""
        for optimiser, rates in zip(self.optimisers, self.rates, strict=True):
            optimiser.zero_grad()
            for group, rate in zip(optimiser.param_groups, rates, strict=True):
                group["lr"] = rate * factor
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for optimiser in self.optimisers:
            optimiser.step()
        self.step += 1
        keep = min(decay, (self.step + 1) / (self.step + 20))
        with torch.no_grad():
            torch._foreach_lerp_(list(self.average.parameters()), list(self.model.parameters()), 1 - keep)

    def save(self) -> None:
        """Save everything atomically, so that a kill at any time leaves the old file or the new one."""
        state = {
            "step": self.step,
            "model": self.model.state_dict(),
            "average": self.average.state_dict(),
            "optimisers": [o.state_dict() for o in self.optimisers],
        }
        temporary = self.file.with_suffix(".tmp")
        torch.save(state, temporary)
        temporary.replace(self.file)

    def load(self) -> bool:
        """Restore the file if it exists. Learning rates still come from the command line."""
        if not self.file.exists():
            return False
        state = torch.load(self.file, map_location="cpu", weights_only=True)
        self.model.load_state_dict(state["model"])
        self.average.load_state_dict(state["average"])
        for optimiser, saved in zip(self.optimisers, state["optimisers"], strict=True):
            optimiser.load_state_dict(saved)
        self.step = state["step"]
        return True


class Progress:
    """Print a line every `every` steps: mean loss since the last line, time per step, time left."""

    def __init__(self, name: str, first: int, total: int, every: int) -> None:
        self.name, self.first, self.total, self.every = name, first, total, every
        self.start = time.monotonic()
        self.losses: list[float] = []

    def add(self, step: int, loss: float) -> None:
        """Count a finished step (1-based)."""
        self.losses.append(loss)
        if step % self.every and step != self.total:
            return
        seconds = (time.monotonic() - self.start) / (step - self.first)
        mean, self.losses = sum(self.losses) / len(self.losses), []
        left = seconds * (self.total - step) / 60
        print(
            f"{self.name} step {step}/{self.total} loss {mean:.5f} {seconds:.3f} s/step {left:.1f} min left",
            flush=True,
        )


class Budget:
    """The number of steps that this call may take."""

    def __init__(self, steps: int | None) -> None:
        self.left = steps

    def take(self) -> bool:
        """Count a step and return whether it may be taken."""
        if self.left is None:
            return True
        self.left -= 1
        return self.left >= 0


def say(text: str) -> None:
    """Print a log line with the time of day."""
    print(time.strftime("%H:%M:%S"), text, flush=True)
