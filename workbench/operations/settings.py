"""Settings: what there is to set, what can be chosen, whether values are legal; and recipes with their sources."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any, ClassVar

from pydantic import AfterValidator, Field

from workbench.captioners import captioners, find_captioner
from workbench.choices import choices_of
from workbench.compare.settings import GridSettings
from workbench.dataset_builder.settings import (
    CaptionSettings,
    CheckSettings,
    ExportSettings,
    ImportSettings,
    SplitTask,
)
from workbench.errors import ConfigError, Unknown
from workbench.families import default_model
from workbench.families.recipes import KINDS
from workbench.fit.gpus import HERE
from workbench.fit.levels import suggest
from workbench.form_rules import adapted, empty_values, needless, summary, without_effect
from workbench.loras.removal import CleaningSettings
from workbench.loras.settings import (
    ConvertSettings,
    ExtractSettings,
    FuseSettings,
    LoraImportSettings,
    MergeSettings,
    ResizeSettings,
)
from workbench.operations.registry import Snapshot, operation
from workbench.operations.shared import FormState
from workbench.publishing.settings import LoraPush, SpacePush
from workbench.runs.previews import LiveSample
from workbench.runs.recipes import refusal
from workbench.runs.settings import TrainSettings
from workbench.sampler.prompt_enhancer import PromptSettings
from workbench.sampler.settings import BatchSettings, SampleSettings
from workbench.settings import Settings, parse, specs
from workbench.workspace import Workspace

GPU_HELP = "Memory of the GPU to estimate for, in GB, as in 24. Else this machine's."
Gpu = Annotated[str, Field(description=GPU_HELP)]

FORMS: dict[str, type[Settings]] = {
    "train": TrainSettings,
    "sample": SampleSettings,
    "batch": BatchSettings,
    "enhancer": PromptSettings,
    "grid": GridSettings,
    "import": ImportSettings,
    "split": SplitTask,
    "check": CheckSettings,
    "captions": CaptionSettings,
    "export": ExportSettings,
    "publish": LoraPush,
    "publish-space": SpacePush,
    "lora-import": LoraImportSettings,
    "convert": ConvertSettings,
    "merge": MergeSettings,
    "resize": ResizeSettings,
    "fuse": FuseSettings,
    "extract": ExtractSettings,
    "lora-cleanup": CleaningSettings,
    "live-sample": LiveSample,
}


def _known(form: str) -> str:
    if form not in FORMS:
        raise ValueError(f"{form[:80]!r}, must be one of {', '.join(FORMS)}")
    return form


Form = Annotated[
    str,
    AfterValidator(_known),
    Field(description="Of what: a run, a sample, a grid, a task of a dataset, or an operation on LoRAs."),
]
Values = Annotated[
    dict[str, Any], Field(description="Settings that differ from their defaults, as a JSON object: setting -> value.")
]


class Setting(Snapshot):
    """One setting."""

    name: str
    """In files, flags and calls."""

    title: str
    """For people."""

    help: str
    """What it does."""

    section: str
    """The heading under which it stands."""

    kind: str
    """`integer`, `number`, `switch`, `text`, `choice`, `texts`, `numbers` or `object`."""

    default: Any
    """Its value where nobody sets it."""

    rule: str
    """What is legal, in words."""

    choices: tuple[str, ...]
    """Its legal values, where they are few and fixed."""

    low: float | None
    """Its lowest value."""

    high: float | None
    """Its highest value."""

    unit: str | None
    """Unit of the value."""

    optional: bool
    """Whether it may be null."""

    advanced: bool | None
    """Whether forms hide it at first."""

    source: str | None
    """What its value is chosen from, as `choices` lists it; null if its rule says all."""

    also: str
    """What other programs call it, separated by commas."""

    rows: Annotated[int, Field(validation_alias="lines")]
    """Height of its text field."""

    path: bool
    """Whether it may also name a file or a folder."""


class SettingChoice(Snapshot):
    """One value that a setting can take in this workspace."""

    title: str
    """For people."""

    value: str
    """The value."""

    group: str
    """The heading under which it is listed; "" for none."""


class Checked(FormState):
    """Whether values are legal together."""

    own: dict[str, str] = {}
    """Setting -> what it stands for with this model while it is empty."""

    model: str = ""
    """The model in one line; "" where the form has none or it is not known."""


class AdaptedValues(Snapshot):
    """What another model changes in a form."""

    values: dict[str, Any]
    """Settings that the model does not have or cannot take -> their defaults."""

    notes: tuple[str, ...]
    """A sentence for each of them."""


@operation(path="/settings/{form}", shell=False)
def show(workspace: Workspace, form: Form) -> list[Setting]:
    """Show every setting of a form, with its rule and its default."""
    return [Setting.model_validate(spec) for spec in specs(FORMS[form])]


@operation(path="/settings/{form}/choices", shell=False)
def choices(
    workspace: Workspace,
    form: Form,
    name: Annotated[str, Field(description="Of the setting.")],
    *,
    values: Values = {},  # noqa: B006 - never changed
) -> list[SettingChoice]:
    """List what a setting can be set to here: models, datasets, runs, LoRAs, devices ..."""
    spec = next((one for one in specs(FORMS[form]) if one.name == name), None)
    if spec is None:
        raise Unknown(f"{name[:80]} is no setting of {form}: `show` lists them")
    return [SettingChoice(**one._asdict()) for one in choices_of(spec, workspace, values)]


@operation(path="/settings/{form}/check", shell=False)
def check(workspace: Workspace, form: Form, *, values: Values) -> Checked:
    """Check values as a person types them: each by itself, and frames and size against the model."""
    try:
        settings = parse(FORMS[form], values)
        if isinstance(settings, TrainSettings | SampleSettings):
            model = settings.resolved.model
            model.check_shape(
                *(getattr(settings, name) or getattr(model, name) for name in ("frames", "height", "width"))
            )
    except ConfigError as error:
        return Checked(problems=error.problems or {"": str(error)}, without_effect=(), notes=())
    named = str(getattr(settings, "model", "")) if isinstance(settings, TrainSettings | SampleSettings) else ""
    return Checked(
        problems={},
        without_effect=(*without_effect(FORMS[form], settings.model_dump()), *_unread(settings)),
        notes=tuple(needless(settings, values)),
        own=empty_values(FORMS[form], named) if named else {},
        model=summary(named) if named else "",
    )


@operation(path="/settings/{form}/adapt", shell=False)
def adapt(workspace: Workspace, form: Form, *, values: Values) -> AdaptedValues:
    """List what the model that these values name does not have, or cannot take, and its defaults instead."""
    usual = {spec.name: spec.default for spec in specs(FORMS[form])}
    found = adapted(FORMS[form], {**usual, **values})
    return AdaptedValues(values=found.values, notes=tuple(found.notes))


def _unread(settings: Settings) -> list[str]:
    """Return what the chosen captioner, or the chosen way to cut, does not read."""
    if isinstance(settings, CaptionSettings):
        own = find_captioner(settings.captioner).reads
        return [name for kind in captioners().values() for name in kind.reads if name not in own]
    if isinstance(settings, SplitTask):
        return ["window_seconds"] if settings.mode == "scenes" else ["detector", "threshold"]
    return []


class Recipe(Snapshot):
    """Settings for what is to be trained."""

    COLUMNS: ClassVar[tuple[str, ...]] = ("subject", "evidence")

    subject: str
    """`style`, `character`, `object`, `motion`, `camera` or `effect`; or a mode: `control`, `first and last frame`,
    `reference`, `masked`, `slider` or `training adapter`."""

    model: str
    """Its title."""

    clips: int
    """Number of clips it is for; 0 if unknown."""

    evidence: str
    """How well it is documented, one sentence."""

    warning: str
    """What speaks against this dataset or GPU; "" if nothing does."""

    settings: dict[str, Any]
    """Setting and value, as a run's config.json has them."""

    reasons: tuple[dict[str, Any], ...]
    """Setting (empty for advice on the dataset), title, value, reason, sources (title, url) of each."""

    gpu: str
    """The GPU that memory settings, frames and size are chosen for."""


@operation(by_hand="recipes")
def recipes(
    workspace: Workspace,
    subject: Annotated[str, Field(description="What is to be trained. Empty: all subjects.")] = "",
    *,
    model: Annotated[str | None, Field(description="The model to train on. Empty: the built-in one.")] = None,
    dataset: Annotated[str, Field(description="Steps for the clips of this dataset.")] = "",
    clips: Annotated[int | None, Field(ge=0, description="Steps for so many clips.")] = None,
    gpu_memory: Gpu = HERE,
) -> list[Recipe]:
    """Show which settings suit a subject, with reasons and sources."""
    settings = TrainSettings(model=workspace.model(model or default_model()), dataset=dataset)
    named = settings.resolved
    every = [subject] if subject else [one for one in KINDS if not refusal(one, named)]
    found = [suggest(workspace, one, settings, gpu_memory, clips) for one in every]
    return [Recipe.model_validate(asdict(one)) for one in found]
