"""The learning rate of every step: the settings' rate times a schedule of diffusers.

It has no state that could drift: a function of the step. Not covered: who writes it into the optimizer (loop).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from workbench.runs.settings import TrainSettings

if TYPE_CHECKING:
    import torch


def learning_rate(settings: TrainSettings, optimizer: torch.optim.Optimizer) -> Callable[[int], float]:
    """The rate by the number of steps done. Of the optimizer only its first rate is read."""
    from diffusers.optimization import get_scheduler

    schedule = get_scheduler(
        settings.lr_schedule,
        optimizer,
        num_warmup_steps=settings.warmup_steps,
        num_training_steps=settings.steps,
        num_cycles=settings.lr_cycles,
        power=settings.lr_power,
    )
    factor: Callable[[int], float] = schedule.lr_lambdas[0]
    together = settings.batch_size * settings.gradient_accumulation if settings.scale_learning_rate else 1
    return lambda done: settings.learning_rate * together * factor(done)
