"""The optimizers, the package that each needs, and the options that `optimizer_options` may set. No torch.

`trainer.optimizers` constructs an optimizer and keeps its state.
"""

from __future__ import annotations

import difflib
import importlib.util
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from workbench.errors import ConfigError
from workbench.paths import extra_command
from workbench.runs.settings import TrainSettings

INSTALL = extra_command("optimizers")
PRODIGY_LOWEST = 0.1


@dataclass(frozen=True)
class Option:
    """An option that optimizer_options may set: its type, and inclusive bounds for numbers."""

    kind: type[bool] | type[int] | type[float]
    low: float = 0.0
    high: float = math.inf

    @property
    def rule(self) -> str:
        if self.kind is bool:
            return "true or false"
        noun = "a whole number" if self.kind is int else "a number"
        return f"{noun} of {self.low:g} or more" if self.high == math.inf else f"{noun}, {self.low:g} to {self.high:g}"

    def parse(self, text: str) -> bool | int | float:
        """Parse a value. Raises ValueError if it breaks the rule."""
        if self.kind is bool:
            return ("false", "true").index(text.lower()) == 1
        value = self.kind(text)
        if not self.low <= value <= self.high or math.isinf(value):
            raise ValueError(text)
        return value


@dataclass(frozen=True)
class OptimizerRule:
    """The package of an optimizer, and its options."""

    package: str = ""  # import name; "" for optimizers in torch
    distribution: str = ""  # name for pip
    options: Mapping[str, Option] = field(default_factory=dict)


EIGHT_BITS = OptimizerRule("bitsandbytes", "bitsandbytes", {"min_8bit_size": Option(int)})
COLLECTION = ("pytorch_optimizer", "pytorch-optimizer")
RULES: dict[str, OptimizerRule] = {
    "adamw": OptimizerRule(options={"amsgrad": Option(bool)}),
    "adam": OptimizerRule(options={"amsgrad": Option(bool)}),
    "adamw-8bit": EIGHT_BITS,
    "adam-8bit": EIGHT_BITS,
    "prodigy": OptimizerRule(
        *COLLECTION,
        {
            "beta3": Option(float, 0.0, 1.0),
            "d0": Option(float, 1e-12),
            "d_coef": Option(float, 1e-3),
            "growth_rate": Option(float, 1.0),
            "weight_decouple": Option(bool),
            "fixed_decay": Option(bool),
            "bias_correction": Option(bool),
            "safeguard_warmup": Option(bool),
        },
    ),
    "came": OptimizerRule(
        *COLLECTION,
        {
            "beta3": Option(float, 0.0, 1.0),
            "clip_threshold": Option(float, 1e-6),
            "eps1": Option(float),
            "eps2": Option(float),
            "weight_decouple": Option(bool),
            "fixed_decay": Option(bool),
            "ams_bound": Option(bool),
        },
    ),
    "schedule-free": OptimizerRule(
        *COLLECTION,
        {
            "r": Option(float),
            "weight_lr_power": Option(float),
            "decoupling_c": Option(int),
            "ams_bound": Option(bool),
        },
    ),
    "muon": OptimizerRule(
        *COLLECTION,
        {
            "momentum": Option(float, 0.0, 0.9999),
            "nesterov": Option(bool),
            "ns_steps": Option(int, 1, 99),
            "use_adjusted_lr": Option(bool),
            "weight_decouple": Option(bool),
        },
    ),
}
# Optimizer options that have a setting of their own.
FIELDS = {
    "lr": "learning_rate",
    "betas": "adam_beta1 and adam_beta2",
    "eps": "adam_epsilon",
    "weight_decay": "weight_decay",
    "warmup_steps": "warmup_steps",
    "adamw_lr": "learning_rate",
    "adamw_betas": "adam_beta1 and adam_beta2",
    "adamw_eps": "adam_epsilon",
    "adamw_wd": "weight_decay",
}


def check(settings: TrainSettings) -> None:
    """Refuse settings that the optimizer does not support, before anything heavy is loaded. Raises ConfigError."""
    name, rule = settings.optimizer, RULES[settings.optimizer]
    if rule.package and importlib.util.find_spec(rule.package) is None:
        raise ConfigError.about(f"optimizer is {name}, which needs the package {rule.distribution}: {INSTALL}")
    options(settings)
    if name == "prodigy" and settings.learning_rate < PRODIGY_LOWEST:
        raise ConfigError.about(
            f"learning_rate is {settings.learning_rate:g}, must be {PRODIGY_LOWEST:g} or more with prodigy, which "
            f"multiplies it by the rate it finds itself: set it to 1"
        )
    if name == "schedule-free" and not settings.adam_beta1:
        raise ConfigError.about("adam_beta1 is 0, must be above 0 with schedule-free: the default is 0.9")
    if name == "schedule-free" and settings.ema_decay:
        raise ConfigError.about(
            f"ema_decay is {settings.ema_decay:g}, must be 0 with schedule-free, which averages the weights itself: "
            "set it to 0"
        )


def package(settings: TrainSettings) -> tuple[str, ...]:
    """Return the pip name of the optimizer's package; () for optimizers in torch."""
    return tuple(filter(None, (RULES[settings.optimizer].distribution,)))


def options(settings: TrainSettings) -> dict[str, bool | int | float]:
    """Parse optimizer_options into values by name. Raises ConfigError."""
    known, found = RULES[settings.optimizer].options, dict[str, bool | int | float]()
    for line in settings.optimizer_options:
        name, sign, text = (part.strip() for part in line.partition("="))
        if not sign:
            raise _options_error(f"{line!r}, must be NAME=VALUE: {next(iter(known))}=VALUE")
        if name in FIELDS:
            raise _options_error(f"{name}, which has its own setting: set {FIELDS[name]}")
        if name not in known:
            near = difflib.get_close_matches(name, known, n=1)
            remedy = f"did you mean {near[0]}?" if near else f"it has {', '.join(known)}"
            raise _options_error(f"{name}, which {settings.optimizer} does not have: {remedy}")
        if name in found:
            raise _options_error(f"{name} twice: remove one")
        try:
            found[name] = known[name].parse(text)
        except ValueError:
            raise _options_error(f"{name}={text}, must be {known[name].rule}") from None
    return found


def _options_error(text: str) -> ConfigError:
    return ConfigError.about(f"optimizer_options has {text}")
