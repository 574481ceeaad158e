"""What LoRAs of one subject were trained with, as published: figures, each with its reason and its sources. No torch.

The figures are in assets/recipes.toml, which says at its top how it is read. Where nothing was published of a subject
on a model, they are those of its other subjects, and the recipe says so. Ways of training that go beyond clips and
captions (MODES) have recipes, too: with the settings that turn them on.
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
    """A paper, a model card or a document. url: "" for a document of this project"""

    title: str
    url: str = ""


@dataclass(frozen=True)
class Advice:
    """Why, and who says so. No source: common practice, of which no comparison was published."""

    reason: str
    sources: tuple[Source, ...] = ()


@dataclass(frozen=True)
class Recipe:
    """How LoRAs of one subject were trained.

    evidence: how well documented it is, one sentence
    clips, captions: advice on the dataset;  enough: with fewer clips than that, a warning
    steps: (clips, steps) by clips: between two, in proportion; outside, the nearest;  why_steps: their reason
    settings: (setting, value, reason)
    """

    subject: Subject | Mode
    evidence: str
    clips: Advice
    captions: Advice
    enough: int
    steps: tuple[tuple[int, int], ...]
    why_steps: Advice
    settings: tuple[tuple[str, Value, Advice], ...]

    def steps_for(self, clips: int) -> int:
        """Steps for a number of clips, in tens."""
        if clips <= self.steps[0][0]:
            return self.steps[0][1]
        for (fewer, low), (more, high) in pairwise(self.steps):
            if clips <= more:
                return round((low + (high - low) * (clips - fewer) / (more - fewer)) / 10) * 10
        return self.steps[-1][1]


@cache
def recipes_of(table: str) -> tuple[Recipe, ...]:
    """One recipe for each subject and mode from a table of the file, in the order of the forms; () where there is none.

    A table that was measured whole has no modes but its own.

    Args:
        table: a family's name, or a model's for which others were measured
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
        merged: dict[str, Any] = {**common, **model, **own}
        settings = {**model["settings"], **own.get("settings", {}), **common.get("settings", {})}
        if subject in MODES:  # whose figures stand instead of those of subjects
            settings = {**model["settings"], **common.get("settings", {}), **own.get("settings", {})}
            merged = {**model, **common, **own}
        none = (
            f"No published run of {kind} on {model.get('title')} with all its figures is known: they are those of "
            f"other subjects."
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
    """A text of the file, its sources in brackets at the end."""
    reason, _, cited = text.removesuffix("]").partition(" [")
    return Advice(reason, tuple(Source(*sources[name]) for name in cited.split(", ") if name))
