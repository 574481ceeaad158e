"""The settings of a grid: rows of prompts and seeds, and columns for one or two settings that differ.

A setting with one value applies to all videos; one with several values is an axis of columns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import ValidationInfo, field_validator

from workbench.families import schedulers
from workbench.sampler.settings import SEEDS
from workbench.settings import Settings, field

ROWS, COLUMNS, OTHER = "Rows", "Columns", "More columns"
BASE, EXPORT, NONE = "base", "final", "none"


class GridSettings(Settings):
    """The settings of a grid, saved in grids/<slug>/grid.json with those of its samples."""

    title: str = field("", title="Name", section=ROWS)
    """Name of the grid. Empty: the run's name."""

    run: str = field("", title="Run", section=ROWS, source="runs")
    """The run whose checkpoints to compare. Prompts, sizes and seed are those of its previews unless set otherwise."""

    prompts: tuple[str, ...] = field((), title="Prompts", section=ROWS, lines=4)
    """One prompt per line, each in its own row. Empty: the run's preview prompts."""

    images: tuple[str, ...] = field((), title="First frames", section=ROWS, lines=2, advanced=True, path=True)
    """For image-to-video: one image file per line, for each prompt or one for all. Empty: those of the run's
    previews."""

    seeds: tuple[str, ...] = field((), title="Seeds", section=ROWS, advanced=True)
    """With several seeds, each prompt and seed gets a row. Empty: the seed of the run's previews."""

    checkpoints: tuple[str, ...] = field((), title="Checkpoints", section=COLUMNS, source="checkpoints")
    """base is the model without the LoRA, a number is the checkpoint from that step, final is the exported LoRA. Empty:
    only final."""

    scales: tuple[str, ...] = field((), title="LoRA scales", section=COLUMNS)
    """How strongly the LoRA acts: 0 is the base model, 1 the LoRA as trained."""

    loras: tuple[str, ...] = field((), title="LoRAs", section=OTHER, source="loras_or_none", advanced=True, path=True)
    """LoRAs to compare, each in its own column: a run's name, a .safetensors file or OWNER/NAME on the Hub, followed by
    =SCALE if that is not 1. none is the base model. Put ' + ' between LoRAs to use several at once."""

    guidance: tuple[str, ...] = field((), title="Guidance scales", section=OTHER, advanced=True)
    """How closely the video follows the prompt. Empty: as in the run's previews."""

    steps: tuple[str, ...] = field((), title="Denoising steps", section=OTHER, advanced=True)
    """More steps give finer results and take longer. Empty: as in the run's previews."""

    schedulers: tuple[str, ...] = field((), title="Schedulers", section=OTHER, advanced=True)
    """How noise is removed: model (the one the model was published with) or, for CogVideoX, DDIM or DPM."""

    column_seeds: tuple[str, ...] = field((), title="Seeds as columns", section=OTHER, advanced=True)
    """Seeds that each get a column instead of a row."""

    @field_validator("prompts", "images", "loras", mode="before")
    @classmethod
    def _lines(cls, value: Any) -> Any:
        return _split(value, str.splitlines)

    @field_validator("checkpoints", "scales", "guidance", "steps", "schedulers", "seeds", "column_seeds", mode="before")
    @classmethod
    def _list(cls, value: Any) -> Any:
        return _split(value, lambda text: text.replace(",", " ").split())

    @field_validator("checkpoints", "scales", "guidance", "steps", "schedulers", "seeds", "column_seeds")
    @classmethod
    def _values(cls, values: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        """Normalize every value, and drop duplicates."""
        assert info.field_name is not None
        read, rule = RULES[info.field_name]
        found = []
        for text in values:
            try:
                found.append(read(text))
            except (ValueError, KeyError):
                raise ValueError(f"{info.field_name} has {text[:40]!r}, must be {rule}") from None
        return tuple(dict.fromkeys(found))


def _split(value: Any, split: Callable[[str], list[str]]) -> Any:
    """Split texts that may hold several values each. Anything but a list of texts is left for the type to refuse."""
    if not isinstance(value, list | tuple) or not all(isinstance(text, str) for text in value):
        return value
    parts = (part.strip() for text in value for part in split(text))
    return tuple(dict.fromkeys(part for part in parts if part))


def _number(kind: type[int] | type[float], low: float, high: float) -> Callable[[str], str]:
    def read(text: str) -> str:
        value = kind(text)
        if not low <= value <= high:
            raise ValueError(text)
        return str(value) if kind is int else f"{value:g}"

    return read


def _checkpoint(text: str) -> str:
    word = text.lower().removeprefix("step").strip("- ")
    if word in ("final", "export"):
        return EXPORT
    return BASE if word in (BASE, "0") else _number(int, 1, 10**9)(word.lstrip("0"))


def _scheduler(text: str) -> str:
    return {name.lower(): name for name in ("model", *schedulers())}[text.lower()]


SEED = _number(int, 0, SEEDS - 1), f"a whole number from 0 to {SEEDS - 1}: write 1, 2, 3"
# Setting -> how to read a value, and the rule for the error message.
RULES: dict[str, tuple[Callable[[str], str], str]] = {
    "checkpoints": (_checkpoint, f"a step, {BASE} or {EXPORT}: write {BASE}, 150, 300, {EXPORT}"),
    "scales": (_number(float, -10, 10), "a number from -10 to 10: write 0.5 or 1"),
    "guidance": (_number(float, 0, 50), "a number from 0 to 50: write 4, 6, 8"),
    "steps": (_number(int, 1, 1000), "a whole number from 1 to 1000: write 20, 50"),
    "schedulers": (_scheduler, "model or a scheduler of the model's family: write model, DDIM, DPM"),
    "seeds": SEED,
    "column_seeds": SEED,
}
