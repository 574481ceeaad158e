"""Optimizer construction and state, and the averages of the weights that some runs use in place of them.

    adamw, adam                            torch, fused
    adamw-8bit, adam-8bit                  bitsandbytes: both moments in 8 bits, by blocks of 256; on a processor, too
    prodigy, came, schedule-free, muon     pytorch-optimizer

No optimizer here keeps a schedule of its own: the loop writes the learning rate of a step into every group. Averages
are schedule-free's own, or a moving average kept by diffusers' EMAModel. runs.optimizer_options checks the settings.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from workbench.errors import ResumeRefused
from workbench.runs.optimizer_options import check, options
from workbench.runs.settings import TrainSettings

if TYPE_CHECKING:
    import torch


def build(settings: TrainSettings, named: Sequence[tuple[str, torch.nn.Parameter]]) -> torch.optim.Optimizer:
    """The optimizer of these settings for these parameters. Raises ConfigError."""
    import torch

    check(settings)
    given: dict[str, Any] = options(settings)
    parameters = [parameter for _, parameter in named]
    plain: dict[str, Any] = {"lr": settings.learning_rate, "weight_decay": settings.weight_decay}
    adam = {**plain, "betas": (settings.adam_beta1, settings.adam_beta2), "eps": settings.adam_epsilon}
    match settings.optimizer:
        case "adamw":
            return torch.optim.AdamW(parameters, **adam, **given, fused=True)
        case "adam":
            return torch.optim.Adam(parameters, **adam, **given, fused=True)
        case "adamw-8bit":
            from bitsandbytes.optim import AdamW8bit

            return AdamW8bit(parameters, **adam, **given)
        case "adam-8bit":
            from bitsandbytes.optim import Adam8bit

            return Adam8bit(parameters, **adam, **given)
        case "prodigy":
            from pytorch_optimizer import Prodigy

            # Its authors' advice for diffusion models and for a warm-up, and what the published trainers set.
            return Prodigy(parameters, **adam, **{"bias_correction": True, "safeguard_warmup": True, **given})
        case "came":
            from pytorch_optimizer import CAME

            return CAME(parameters, **plain, betas=(*adam["betas"], given.pop("beta3", 0.9999)), **given)
        case "schedule-free":
            from pytorch_optimizer import ScheduleFreeAdamW

            return ScheduleFreeAdamW(parameters, **adam, **given)
        case "muon":
            from pytorch_optimizer import Muon

            # Muon is made for matrices. Biases, DoRA's magnitudes and convolutions go to the AdamW it has beside it.
            matrices = {"use_muon": True, "params": [one for one in parameters if one.ndim == 2], **plain}
            others = {"use_muon": False, "params": [one for one in parameters if one.ndim != 2], **adam}
            groups = [group for group in (matrices, others) if group["params"]]
            # Scaled so that one learning rate serves both: that of AdamW.
            return Muon(groups, **{"use_adjusted_lr": True, **given})


def learning_rate(settings: TrainSettings, optimizer: torch.optim.Optimizer) -> Callable[[int], float]:
    """The rate by the number of steps done: the settings' rate times a schedule of diffusers. It has no state.

    Of the optimizer only its first rate is read.
    """
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


# ---- state


def state_of(
    optimizer: torch.optim.Optimizer, named: Sequence[tuple[str, torch.nn.Parameter]], keep: bool = True
) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """What the optimizer remembers: (tensors, on the CPU; plain values, fit for JSON).

    Both by "<parameter name>/<key>" and "group.<number>/<key>". Constants that come from the settings and the learning
    rate of the step are not in it, so that a fork with other settings may take it over. What is in pieces is put
    together, for which every process must call this; keep: whether this one wants the tensors.
    Must be called outside of `averaged`.
    """
    import torch

    from workbench.trainer.ranks import whole

    tensors: dict[str, torch.Tensor] = {}
    values: dict[str, Any] = {}
    for owner, entries in _states(optimizer, named):
        for key, value in entries.items():
            if isinstance(value, torch.Tensor):
                # Some optimizers share one tensor among parameters; a file of tensors takes each but once.
                value = whole(value.detach())
                tensors |= {f"{owner}/{key}": value.to("cpu", copy=True).contiguous()} if keep else {}
            elif isinstance(value, bool | int | float | str | None):
                values[f"{owner}/{key}"] = value
            else:
                raise TypeError(f"{owner}/{key} is {type(value).__name__}: this state cannot be written down")
    assert values.get("group.0/train_mode", True), "the state was read while averaged weights are in place"
    return tensors, values


def load_state(
    optimizer: torch.optim.Optimizer,
    named: Sequence[tuple[str, torch.nn.Parameter]],
    tensors: Mapping[str, torch.Tensor],
    values: Mapping[str, Any],
) -> None:
    """Put back what `state_of` gave, to the bit. The parameters must hold the weights of the same moment.

    Raises ResumeRefused when the state is of a parameter that is not trained here.
    """
    from workbench.trainer.ranks import shard_like

    parameters = dict(named)
    groups = {f"group.{number}": group for number, group in enumerate(optimizer.param_groups)}
    optimizer.state.clear()
    for path, value in [*tensors.items(), *values.items()]:
        owner, _, key = path.rpartition("/")
        if owner in groups:
            entries, device = groups[owner], groups[owner]["params"][0].device
        elif owner in parameters:
            entries, device = optimizer.state[parameters[owner]], parameters[owner].device
        else:
            raise ResumeRefused(
                f"the checkpoint remembers {owner}, which this run does not train: choose the same optimizer and "
                f"targets, or start a new run from the LoRA file"
            )
        # A copy, because sums depend in their last bit on how memory is aligned, and in a file it is aligned otherwise.
        entries[key] = value.to(device, copy=True) if path in tensors else value
        if owner in parameters and path in tensors and value.shape == parameters[owner].shape:
            entries[key] = shard_like(entries[key], parameters[owner].data)


def _states(
    optimizer: torch.optim.Optimizer, named: Sequence[tuple[str, torch.nn.Parameter]]
) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """(name, what is remembered there) of every parameter and group."""
    for name, parameter in named:
        yield name, optimizer.state.get(parameter, {})
    inner = getattr(optimizer, "optimizer", optimizer)  # accelerate wraps it
    constants = {*inspect.signature(type(inner)).parameters, "params", "lr", "initial_lr", "betas", "eps"}
    for number, group in enumerate(optimizer.param_groups):
        yield f"group.{number}", {key: value for key, value in group.items() if key not in constants}


# ---- averages


@contextmanager
def averaged(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Put the weights in place that the optimizer means for use: schedule-free's average. Others have none.

    Measure, preview and export inside. Afterwards the weights that are trained are back, to the bit (the optimizer's
    own way back rounds). A checkpoint is resumed from the trained weights, so its LoRA must be written outside: with
    schedule-free that file holds the point where the next gradient is taken, a mixture of the average (share
    adam_beta1) and the fast iterate; the file to use is the one exported inside.
    """
    import torch

    if not optimizer.param_groups[0].get("train_mode"):  # another optimizer, or the average is in place already
        yield
        return
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    trained = [parameter.detach().clone() for parameter in parameters]
    inner: Any = getattr(optimizer, "optimizer", optimizer)
    inner.eval()
    try:
        yield
    finally:
        inner.train()
        with torch.no_grad():
            for parameter, value in zip(parameters, trained, strict=True):
                parameter.copy_(value)


class Ema:
    """The average of these (name, parameter) pairs, in float32 on their device.

    After step n it is decay x average + (1 - decay) x weights, with min(decay, n / (9 + n)) for decay: a short run
    looks back less far, and the first step starts the average (decay 0).
    """

    def __init__(self, named: Sequence[tuple[str, torch.nn.Parameter]], decay: float) -> None:
        import torch
        from diffusers.training_utils import EMAModel

        self.names, self.parameters = [name for name, _ in named], [parameter for _, parameter in named]
        self.model = EMAModel(self.parameters, decay=decay)
        self.model.to(dtype=torch.float32)

    def update(self, step: int) -> None:
        """Take in the weights after this step (1, 2, ...); call it once a step."""
        self.model.optimization_step = step - 1  # it counts itself; the step given leaves nothing to be resumed
        self.model.step(self.parameters)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Put the average in place of the weights, for measuring, previews and the export; then the weights again."""
        if self.model.temp_stored_params is not None:  # in place already
            yield
            return
        self.model.store(self.parameters)
        self.model.copy_to(self.parameters)
        try:
            yield
        finally:
            self.model.restore(self.parameters)

    def tensors(self, keep: bool = True) -> dict[str, torch.Tensor]:
        """The average by parameter name, on the CPU; {} where it is not kept. Every process must call this."""
        from workbench.trainer.ranks import whole

        found = dict[str, Any]()
        for name, value in zip(self.names, self.model.shadow_params, strict=True):
            value = whole(value)
            found |= {name: value.to("cpu", copy=True)} if keep else {}
        return found

    def load(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Go on from what `tensors` gave. Raises KeyError when a parameter has none."""
        from workbench.trainer.ranks import shard_like

        for name, value in zip(self.names, self.model.shadow_params, strict=True):
            value.copy_(shard_like(tensors[name], value))
