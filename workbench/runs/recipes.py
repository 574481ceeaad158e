"""What to begin with: a recipe for a subject, a model and a number of clips, with its reasons, or a saved preset.

    presets/NAME.json       settings as --config takes them, without those that name things of this workspace

Where nothing was published a recipe says so. Settings that a recipe or a preset does not name stay as they are. The
figures of the recipes and their sources are facts of `families`; what the GPU decides is in `fit.recipes`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from workbench.clips.records import read_clips
from workbench.errors import ConfigError, DataError
from workbench.families import families, find_model
from workbench.families.recipes import SUBJECTS, Advice, Source, Subject
from workbench.quantities import counted
from workbench.runs.settings import TrainSettings
from workbench.settings import parse, specs
from workbench.workspace import Workspace, checked_slug, is_slug, read_json, slugify, write_json

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


# ---- presets of one's own

# What is different in every workspace, or wants another value for every run.
NOT_SHARED = (
    "dataset",
    "more_datasets",
    "regularization_dataset",
    "validation_dataset",
    "start_from",
    "preview_images",
    "repository",
)


def preset_names(workspace: Workspace) -> list[str]:
    """The presets there are, by name."""
    return sorted(path.stem for path in workspace.presets.glob("*.json") if is_slug(path.stem))


def save_preset(workspace: Workspace, title: str, settings: TrainSettings) -> str:
    """Save settings under a title, in place of those of the same name; returns the name. Raises ConfigError."""
    if not title.strip():
        raise ConfigError("the preset has no name: write one, as in my-style")
    name = slugify(title)
    write_json(_preset_file(workspace, name), _shared(settings.model_dump(mode="json")))
    return name


def load_preset(workspace: Workspace, name: str) -> dict[str, Any]:
    """The settings of a preset; those that it does not name are to stay as they are. Raises ConfigError."""
    return _read_preset(_preset_file(workspace, name))


def preset_text(workspace: Workspace, name: str) -> str:
    """The file of a preset, to be given away. Raises ConfigError."""
    return json.dumps(load_preset(workspace, name), indent=2, ensure_ascii=False) + "\n"


def add_preset(workspace: Workspace, file: Path) -> str:
    """Take in a preset, or a run's config.json, that somebody shared; returns its name. Raises ConfigError."""
    name = slugify(file.stem)
    write_json(_preset_file(workspace, name), _read_preset(file))
    return name


def _preset_file(workspace: Workspace, name: str) -> Path:
    return workspace.presets / f"{checked_slug(name)}.json"


def _read_preset(file: Path) -> dict[str, Any]:
    values = read_json(file)
    if not isinstance(values, dict):
        raise ConfigError(f"{file.name} must hold a JSON object of settings: write it as {{...}}")
    parse(TrainSettings, values)
    return _shared(values)


def _shared(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in NOT_SHARED}
