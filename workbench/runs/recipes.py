"""Settings to start from: recipes for a subject, model and number of clips, and presets saved by users.

    presets/NAME.json       settings in the form of --config, without those that name things in this workspace

Settings that a recipe or preset does not name keep their values. `families` has the recipes' figures and sources;
`fit.levels` adds what depends on the GPU. A recipe says so if nothing was published for its subject.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Annotated, Any, ClassVar

from pydantic import PlainSerializer

from workbench.clips.records import read_clips
from workbench.display.quantities import counted
from workbench.errors import ConfigError, DataError
from workbench.families.base import ResolvedModel
from workbench.families.recipes import KINDS, Source, Value
from workbench.runs.settings import TrainSettings
from workbench.settings import parse, read_values, specs
from workbench.snapshots import Snapshot
from workbench.workspace import Workspace, checked_slug, is_slug, slugify, write_json

UNKNOWN = "No published run of this kind of model is known, so the settings stay as they are."


@dataclass(frozen=True)
class Reason:
    """A value with its reason, or advice about the dataset (then `setting` is "" and `title` the heading)."""

    setting: str
    title: str
    value: Value
    reason: str
    sources: tuple[Source, ...] = ()


class Recipe(Snapshot):
    """Recommended settings for a training subject."""

    COLUMNS: ClassVar[tuple[str, ...]] = ("subject", "evidence")

    subject: str
    """`style`, `character`, `object`, `motion`, `camera` or `effect`; or a mode: `control`, `first and last frame`,
    `reference`, `masked`, `slider` or `training adapter`."""

    model: str
    """Title of the model."""

    clips: int
    """Number of clips that it is for; 0 if unknown."""

    evidence: str
    """How well documented it is, in one sentence."""

    warning: str
    """Why it may not suit this dataset or GPU; "" if it does."""

    settings: dict[str, Any]
    """The settings, as in a run's config.json."""

    reasons: tuple[Annotated[Any, PlainSerializer(asdict, dict[str, Any])], ...]
    """The reason for each setting: setting ("" for advice on the dataset), title, value, reason, sources (title,
    url)."""

    gpu: str
    """The GPU that the memory settings, frames and size are chosen for."""


def suggest(subject: str, resolved: ResolvedModel, clips: int = 0) -> Recipe:
    """Suggest settings for a subject or a mode; `clips` is 0 if unknown.

    Raises ConfigError if the subject or mode is unknown, or the model does not support the mode.
    """
    if subject not in KINDS:
        raise ConfigError(f"recipe is {subject[:80]!r}, must be one of {', '.join(KINDS)}")
    family, model = resolved
    if why := refusal(subject, resolved):
        raise ConfigError(f"recipe is {subject}, but {why}: choose another model or recipe")
    recipe = next((one for one in family.recipes(model) if one.subject == subject), None)
    if recipe is None:
        known: dict[str, Any] = {"evidence": UNKNOWN, "warning": "", "settings": {}, "reasons": ()}
        return Recipe(subject=subject, model=model.title, clips=clips, gpu="", **known)
    titles = {spec.name: spec.title for spec in specs(TrainSettings)}
    values = (("steps", recipe.steps_for(clips), recipe.why_steps), *recipe.settings)
    advice = {"Clips": recipe.clips, "Captions": recipe.captions}
    reasons = [Reason("", title, "", one.reason, one.sources) for title, one in advice.items()]
    reasons += [Reason(name, titles[name], value, why.reason, why.sources) for name, value, why in values]
    warning = ""
    if 0 < clips < recipe.enough:
        warning = f"{counted(clips, 'clip')}, but published runs had {recipe.enough} or more: watch for overfitting."
    return Recipe(
        subject=recipe.subject,
        model=model.title,
        clips=clips,
        evidence=recipe.evidence,
        warning=warning,
        settings={name: value for name, value, _ in values},
        reasons=tuple(reasons),
        gpu="",
    )


def refusal(subject: str, resolved: ResolvedModel) -> str:
    """Say why a model cannot be trained in a mode; "" if it can, and for every subject."""
    family, model = resolved
    kind = {"control": "control", "first and last frame": "first+last", "reference": "reference"}.get(subject)
    if kind is not None:
        return family.refusal(model, kind)
    if subject in ("masked", "slider") and family.codes(model):
        return f"{model.title} predicts codes, which support neither masks nor sliders"
    return ""


def clips_of(workspace: Workspace, dataset: str) -> int:
    """Count a dataset's clips; 0 if it does not exist or cannot be read."""
    if not is_slug(dataset):
        return 0
    try:
        return len(read_clips(workspace.dataset(dataset)))
    except DataError:
        return 0


# ---- presets

# Settings that differ between workspaces or runs.
NOT_SHARED = (
    "dataset",
    "more_datasets",
    "regularization_dataset",
    "validation_dataset",
    "start_from",
    "base_lora",
    "training_adapter",
    "preview_lora",
    "preview_images",
    "repository",
)


def preset_names(workspace: Workspace) -> list[str]:
    """List the presets by name."""
    return sorted(path.stem for path in workspace.presets.glob("*.json") if is_slug(path.stem))


def save_preset(workspace: Workspace, title: str, settings: TrainSettings) -> str:
    """Save settings under a title, replacing any preset of that name; return the name. Raises ConfigError."""
    if not title.strip():
        raise ConfigError("the preset has no name: write one, as in my-style")
    name = slugify(title)
    values = settings.model_dump(mode="json", exclude=set(NOT_SHARED))
    write_json(workspace.presets / f"{checked_slug(name)}.json", values)
    return name


def load_preset(workspace: Workspace, name: str) -> dict[str, Any]:
    """Read a preset's settings. Someone else may have written it, so check them. Raises ConfigError."""
    values = read_values(workspace.presets / f"{checked_slug(name)}.json")
    parse(TrainSettings, values)
    return {name: value for name, value in values.items() if name not in NOT_SHARED}
