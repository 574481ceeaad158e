"""Optimizer construction and state, and averaged weights.

    adamw, adam                            torch, fused
    adamw-8bit, adam-8bit                  bitsandbytes: both moments in 8 bits, in blocks of 256; also on a CPU
    prodigy, came, schedule-free, muon     pytorch-optimizer

No optimizer has a schedule of its own: the loop writes each step's learning rate into every group. The averages are
schedule-free's own or an EMA (diffusers' EMAModel). runs.optimizer_options checks the settings.
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
    """Build the optimizer for (name, parameter) pairs. Raises ConfigError."""
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

            # The authors recommend both for diffusion models and for warm-up; published trainers set them too.
            return Prodigy(parameters, **adam, **{"bias_correction": True, "safeguard_warmup": True, **given})
        case "came":
            from pytorch_optimizer import CAME

            return CAME(parameters, **plain, betas=(*adam["betas"], given.pop("beta3", 0.9999)), **given)
        case "schedule-free":
            from pytorch_optimizer import ScheduleFreeAdamW

            return ScheduleFreeAdamW(parameters, **adam, **given)
        case "muon":
            from pytorch_optimizer import Muon

            # Muon handles matrices only. Biases, DoRA's magnitudes and convolutions go to its built-in AdamW.
            matrices = {"use_muon": True, "params": [one for one in parameters if one.ndim == 2], **plain}
            others = {"use_muon": False, "params": [one for one in parameters if one.ndim != 2], **adam}
            groups = [group for group in (matrices, others) if group["params"]]
            # Scaled so that AdamW's learning rate works for both.
            return Muon(groups, **{"use_adjusted_lr": True, **given})


def learning_rate(settings: TrainSettings, optimizer: torch.optim.Optimizer) -> Callable[[int], float]:
    """Return a stateless function from completed steps to the learning rate: the setting times diffusers' schedule."""
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
    batch = settings.batch_size * settings.gradient_accumulation if settings.scale_learning_rate else 1
    return lambda done: settings.learning_rate * batch * factor(done)


# ---- state


def state_of(
    optimizer: torch.optim.Optimizer, named: Sequence[tuple[str, torch.nn.Parameter]], keep: bool = True
) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Return the optimizer's state: (tensors on the CPU, JSON values).

    Keys are "<parameter name>/<key>" and "group.<number>/<key>". Values from the settings and the step's learning rate
    are left out, so a fork with other settings can take the state over. Call this outside of `averaged`, and on every
    rank, because shards are gathered.

    Args:
        keep: Whether this rank wants the tensors.
    """
    import torch

    from workbench.trainer.ranks import whole

    tensors: dict[str, torch.Tensor] = {}
    values: dict[str, Any] = {}
    inner = getattr(optimizer, "optimizer", optimizer)  # accelerate wraps it
    constants = {*inspect.signature(type(inner)).parameters, "params", "lr", "initial_lr", "betas", "eps"}
    states: list[tuple[str, Mapping[str, Any]]] = [(name, optimizer.state.get(one, {})) for name, one in named]
    for number, group in enumerate(optimizer.param_groups):
        states.append((f"group.{number}", {key: value for key, value in group.items() if key not in constants}))
    for owner, entries in states:
        for key, value in entries.items():
            if isinstance(value, torch.Tensor):
                # Copied, because parameters may share a tensor and safetensors stores no tensor twice.
                value = whole(value.detach())
                tensors |= {f"{owner}/{key}": value.to("cpu", copy=True).contiguous()} if keep else {}
            elif isinstance(value, bool | int | float | str | None):
                values[f"{owner}/{key}"] = value
            else:
                raise TypeError(f"{owner}/{key} is {type(value).__name__}: this state cannot be saved")
    assert values.get("group.0/train_mode", True), "the state was read while averaged weights are in place"
    return tensors, values


def load_state(
    optimizer: torch.optim.Optimizer,
    named: Sequence[tuple[str, torch.nn.Parameter]],
    tensors: Mapping[str, torch.Tensor],
    values: Mapping[str, Any],
) -> None:
    """Restore what `state_of` returned, bit for bit. The parameters must hold the weights of the same step.

    Raises ResumeRefused if the state belongs to a parameter that this run does not train.
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
                f"the checkpoint has state for {owner}, which this run does not train: choose the same optimizer and "
                f"targets, or start a new run from the LoRA file"
            )
        # Copied, because memory alignment affects the last bit of a sum, and file buffers are aligned differently.
        entries[key] = value.to(device, copy=True) if path in tensors else value
        if owner in parameters and path in tensors and value.shape == parameters[owner].shape:
            entries[key] = shard_like(entries[key], parameters[owner].data)


# ---- averages


@contextmanager
def averaged(optimizer: torch.optim.Optimizer) -> Iterator[None]:
    """Use schedule-free's average in place of the trained weights. Other optimizers have none.

    Measure, preview and export inside. Afterwards the trained weights are back, bit for bit (the optimizer's own switch
    would round). Checkpoints resume from the trained weights, so write their LoRA outside: with schedule-free it holds
    the point where the next gradient is taken, a mixture of the average (share adam_beta1) and the fast iterate. The
    LoRA to use is the one exported inside.
    """
    import torch

    if not optimizer.param_groups[0].get("train_mode"):  # not schedule-free, or already averaged
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
    """The exponential moving average of (name, parameter) pairs, in float32 on their device.

    The first step sets the average to the weights. Step n > 1 computes d * average + (1 - d) * weights with
    d = min(decay, n / (9 + n)), so short runs look back less far.
    """

    def __init__(self, named: Sequence[tuple[str, torch.nn.Parameter]], decay: float) -> None:
        import torch
        from diffusers.training_utils import EMAModel

        self.names, self.parameters = [name for name, _ in named], [parameter for _, parameter in named]
        self.model = EMAModel(self.parameters, decay=decay)
        self.model.to(dtype=torch.float32)

    def update(self, step: int) -> None:
        """Add the weights after a step (1, 2, ...). Call it once per step."""
        self.model.optimization_step = step - 1  # set every time, so there is no counter to resume
        self.model.step(self.parameters)

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Use the average in place of the weights, for measurements, previews and the export."""
        if self.model.temp_stored_params is not None:  # already in place
            yield
            return
        self.model.store(self.parameters)
        self.model.copy_to(self.parameters)
        try:
            yield
        finally:
            self.model.restore(self.parameters)

    def tensors(self, keep: bool = True) -> dict[str, torch.Tensor]:
        """Return the average by parameter name, on the CPU; {} without `keep`. Every rank must call this."""
        from workbench.trainer.ranks import whole

        found = dict[str, Any]()
        for name, value in zip(self.names, self.model.shadow_params, strict=True):
            value = whole(value)
            found |= {name: value.to("cpu", copy=True)} if keep else {}
        return found

    def load(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Restore what `tensors` returned. Raises KeyError if a parameter is missing."""
        from workbench.trainer.ranks import shard_like

        for name, value in zip(self.names, self.model.shadow_params, strict=True):
            value.copy_(shard_like(tensors[name], value))
