"""Recipes: published settings for LoRAs of one subject, each with its reason and sources. No torch.

They are in assets/recipes.toml, whose header explains the format. If nothing is published for a subject on a model, its
recipe uses the values of other subjects, and says so. Training modes beyond clips and captions (MODES) also have
recipes, with the settings that turn them on.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, Literal, get_args

from workbench.paths import ASSETS

Subject = Literal["style", "character", "object", "motion", "camera", "effect"]
Mode = Literal["control", "first and last frame", "reference", "masked", "slider", "training adapter"]
SUBJECTS: tuple[Subject, ...] = get_args(Subject)
MODES: tuple[Mode, ...] = get_args(Mode)
KINDS: tuple[Subject | Mode, ...] = (*SUBJECTS, *MODES)
Value = str | int | float | tuple[str, ...]
FILE = ASSETS / "recipes.toml"


@dataclass(frozen=True)
class Source:
    """A paper, a model card or a document. `url` is "" for a document of this project."""

    title: str
    url: str = ""


@dataclass(frozen=True)
class Advice:
    """A reason and its sources. Without sources, it is common practice without a published comparison."""

    reason: str
    sources: tuple[Source, ...] = ()


@dataclass(frozen=True)
class Recipe:
    """How to train LoRAs of one subject, or in one mode."""

    subject: Subject | Mode
    evidence: str  # how well documented it is, in one sentence
    # clips, captions: advice on the dataset
    clips: Advice
    captions: Advice
    enough: int  # number of clips below which to warn
    steps: tuple[tuple[int, int], ...]  # (clips, steps), sorted, to interpolate linearly between
    why_steps: Advice  # the reason for the steps
    settings: tuple[tuple[str, Value, Advice], ...]  # (setting, value, reason)

    def steps_for(self, clips: int) -> int:
        """Return the steps for a number of clips, rounded to tens."""
        if clips <= self.steps[0][0]:
            return self.steps[0][1]
        for (fewer, low), (more, high) in pairwise(self.steps):
            if clips <= more:
                return round((low + (high - low) * (clips - fewer) / (more - fewer)) / 10) * 10
        return self.steps[-1][1]


@cache
def recipes_of(table: str) -> tuple[Recipe, ...]:
    """Return the recipes of a family or a model measured by itself, in the order of forms; () without a table.

    Tables with `evidence` of their own have no modes but those they list.
    """
    data = tomllib.loads(FILE.read_text(encoding="utf-8"))
    if table not in data:
        return ()
    model, found = data[table], []
    for subject in KINDS:
        kind = f"{'an' if subject in ('object', 'effect') else 'a'} {subject}{' move' if subject == 'camera' else ''}"
        alone = "evidence" in model
        own, common = model.get(subject, {}), {} if alone else data["any"][subject]
        if alone and subject in MODES and not own:
            continue
        if subject in MODES:  # override the model's values, which are for subjects
            merged: dict[str, Any] = {**model, **common, **own}
            settings = {**model["settings"], **common.get("settings", {}), **own.get("settings", {})}
        else:
            merged = {**common, **model, **own}
            settings = {**model["settings"], **own.get("settings", {}), **common.get("settings", {})}
        none = (
            f"No fully documented run of {kind} on {model.get('title')} is known, so these are the values for other "
            f"subjects."
        )
        found.append(
            Recipe(
                subject=subject,
                evidence=merged.get("evidence", none),
                clips=_advice(merged["clips"], data["sources"]),
                captions=_advice(merged["captions"], data["sources"]),
                enough=merged["enough"],
                steps=tuple((clips, steps) for clips, steps in merged["steps"]),
                why_steps=_advice(merged["why_steps"], data["sources"]),
                settings=tuple(
                    (name, tuple(value) if isinstance(value, list) else value, _advice(why, data["sources"]))
                    for name, (value, why) in settings.items()
                ),
            )
        )
    return tuple(found)


def _advice(text: str, sources: dict[str, list[str]]) -> Advice:
    """Parse a reason with its sources in brackets at the end."""
    reason, _, cited = text.removesuffix("]").partition(" [")
    return Advice(reason, tuple(Source(*sources[name]) for name in cited.split(", ") if name))
