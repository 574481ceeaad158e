"""What to train, and with which settings: a recipe for a subject, a model and a number of clips, with its reasons.

Where nothing was published it says so. Settings that a recipe does not name stay as they are. Not covered: the figures
and their sources (families), what the GPU decides (fit.recipes), settings that a person saved (presets).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from workbench.clips.records import read_clips
from workbench.errors import ConfigError, DataError
from workbench.families import families, find_model
from workbench.families.recipes import SUBJECTS, Advice, Source, Subject
from workbench.quantities import counted
from workbench.runs.settings import TrainSettings
from workbench.settings import specs
from workbench.workspace import Workspace, is_slug

UNKNOWN = "No published run is known for models of this kind: the settings stay as they are."


@dataclass(frozen=True)
class Reason:
    """One value, or one piece of advice about the dataset, and why. setting: "" for advice; value: then its heading"""

    setting: str
    title: str
    value: str | int | float
    reason: str
    sources: tuple[Source, ...] = ()


@dataclass(frozen=True)
class Suggestion:
    """Settings for a subject, a model and a number of clips.

    warning: "" or what stands against this dataset or GPU;  gpu: that memory settings are chosen for, "" for none
    """

    subject: Subject
    model: str
    clips: int
    evidence: str
    warning: str
    settings: dict[str, str | int | float]
    reasons: Sequence[Reason]
    gpu: str = ""

    def to_json(self) -> dict[str, Any]:
        """As plain data, for programs."""
        return asdict(self)


def suggest(subject: str, model_name: str, clips: int = 0) -> Suggestion:
    """The settings for a subject. Raises ConfigError for an unknown subject or model.

    clips: how many there are; 0 when it is not known
    """
    if subject not in SUBJECTS:
        raise ConfigError(f"recipe is {subject[:80]!r}, must be one of {', '.join(SUBJECTS)}")
    family, model = find_model(model_name)
    known = {recipe.subject: recipe for recipe in model.recipes or family.recipes}
    recipe = known.get(subject)
    if recipe is None:
        return Suggestion(subject, model.title, clips, UNKNOWN, "", {}, ())
    steps = recipe.steps_for(clips)
    titles = {spec.name: spec.title for spec in specs(TrainSettings)}
    values = (("steps", steps, recipe.why_steps), *recipe.settings)
    reasons = [_advice("Clips", recipe.clips), _advice("Captions", recipe.captions)]
    reasons += [Reason(name, titles[name], value, why.reason, why.sources) for name, value, why in values]
    warning = ""
    if 0 < clips < recipe.enough:
        warning = (
            f"{counted(clips, 'clip')}, where the known runs had {recipe.enough} or more: watch for over-training."
        )
    settings = {name: value for name, value, _ in values}
    return Suggestion(recipe.subject, model.title, clips, recipe.evidence, warning, settings, reasons)


def _advice(title: str, advice: Advice) -> Reason:
    return Reason("", title, "", advice.reason, advice.sources)


def clips_of(workspace: Workspace, dataset: str) -> int:
    """How many clips a dataset has; 0 when there is none of that name, or it cannot be read."""
    if not is_slug(dataset):
        return 0
    try:
        return len(read_clips(workspace.dataset(dataset)))
    except DataError:
        return 0


def sources() -> list[Source]:
    """Every source that a recipe names, once."""
    found: dict[Source, None] = {}
    for family in families():
        recipes = [*family.recipes, *(recipe for model in family.models for recipe in model.recipes)]
        for recipe in recipes:
            for advice in (recipe.clips, recipe.captions, recipe.why_steps, *(why for *_, why in recipe.settings)):
                found |= dict.fromkeys(advice.sources)
    return list(found)
