"""What of a model a run trains: the count of its values, and the widths of the layers they are in. No torch.

Not covered: the memory that follows (rates, memory).
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from workbench.families.facts import ALL_LINEAR, Linear, ModelFacts
from workbench.runs.settings import TrainSettings


@dataclass(frozen=True)
class TrainedSize:
    """What is trained: numbers; of the layers of a block, for each token of the video, the widths of all inputs and
    outputs, and of the widest input."""

    values: int
    inputs: int
    outputs: int
    widest: int


def trained(settings: TrainSettings, facts: ModelFacts) -> TrainedSize:
    """A pattern that names no layer counts as none: the run itself refuses it."""
    block = chosen_in_block(settings, facts)
    if settings.method == "full":
        return _trained(facts.values, block)
    chosen = [(one, _targets(one, settings, facts)) for one in facts.linears]
    values = sum(count * settings.rank * (one.inputs + one.outputs) for one, count in chosen)
    values += sum(count * one.outputs for one, count in chosen) if settings.dora else 0
    prefixes = tuple(text.strip() for text in settings.train_also if text.strip())
    values += sum(one.values for name, one in facts.named() if name.startswith(prefixes)) if prefixes else 0
    return _trained(values, block)


def _targets(linear: Linear, settings: TrainSettings, facts: ModelFacts) -> int:
    """In how many blocks a layer is trained; of a layer outside of them 1 or 0."""
    numbers = range(facts.blocks if linear.in_blocks else 1)
    if settings.targets == ALL_LINEAR or settings.targets in facts.presets:  # the same in every block
        return len(numbers) * _is_target(linear.name.format(0), settings, facts)
    return sum(_is_target(linear.name.format(number), settings, facts) for number in numbers)


def _trained(values: int, block: list[Linear]) -> TrainedSize:
    inputs = [one.inputs for one in block]
    return TrainedSize(values, sum(inputs), sum(one.outputs for one in block), max(inputs, default=0))


def _is_target(name: str, settings: TrainSettings, facts: ModelFacts) -> bool:
    """As peft chooses layers."""
    if settings.targets == ALL_LINEAR:
        return True
    preset = facts.presets.get(settings.targets)
    if preset is not None:
        return any(name == one or name.endswith(f".{one}") for one in preset)
    try:
        return re.fullmatch(settings.targets, name) is not None
    except re.error:
        return False


def chosen_in_block(settings: TrainSettings, facts: ModelFacts) -> list[Linear]:
    block = [one for one in facts.linears if one.in_blocks and one.on == "video"]
    return block if settings.method == "full" else [one for one in block if _targets(one, settings, facts)]
