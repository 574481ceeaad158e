"""Settings: describe the settings of each form, list choices, validate values, and suggest recipes."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import Field

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
    RepairSettings,
    ResizeSettings,
    SurvivesSettings,
)
from workbench.operations.registry import operation
from workbench.operations.shared import FormState, one_of
from workbench.publishing.settings import LoraPush, SpacePush
from workbench.runs.previews import LiveSample
from workbench.runs.recipes import Recipe, refusal
from workbench.runs.settings import TrainSettings
from workbench.sampler.prompt_enhancer import PromptSettings
from workbench.sampler.settings import BatchSettings, SampleSettings
from workbench.settings import Settings, Spec, parse, specs
from workbench.snapshots import Snapshot
from workbench.workspace import Workspace

GPU_HELP = "Memory of the GPU to estimate for, in GB, such as 24. Default: this machine's."
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
    "survives": SurvivesSettings,
    "repair": RepairSettings,
    "extract": ExtractSettings,
    "lora-cleanup": CleaningSettings,
    "live-sample": LiveSample,
}


Form = Annotated[str, one_of(FORMS), Field(description="The form, such as train, sample, grid, import or merge.")]
Values = Annotated[
    dict[str, Any], Field(description="Settings that differ from their defaults, as a JSON object: setting -> value.")
]


class SettingChoice(Snapshot):
    """A value that a setting can have in this workspace."""

    title: str
    """Display name."""

    value: str
    """The value."""

    group: str
    """The heading that it is listed under; "" for none."""


class AdaptedValues(Snapshot):
    """Changes to a form for another model."""

    values: dict[str, Any]
    """Setting that the model does not have or whose value it does not accept -> its default."""

    notes: tuple[str, ...]
    """One sentence for each change."""


@operation(path="/settings/{form}", shell=False)
def show(workspace: Workspace, form: Form) -> list[Spec]:
    """List the settings of a form with their rules and defaults."""
    found = specs(FORMS[form])
    labels = {value: label for spec in found for value, label in zip(spec.choices, spec.labels, strict=False)}
    titles = {name: one.title for name, one in captioners().items()}
    if not any(spec.source == "captioners" for spec in found):
        titles = {}
    return [spec.model_copy(update={"help": _in_labels(spec.help, labels, titles)}) for spec in found]


def _in_labels(text: str, labels: Mapping[str, str], captioners: Mapping[str, str]) -> str:
    """Replace values in a help text by what the form calls them: choices where they are explained, and captioners."""
    for value, label in labels.items():
        text = text.replace(f'"{value}"', f'"{label}"')
        text = re.sub(rf"(^|\. ){value}(?=: )", rf"\1{label}", text)
    for name, title in captioners.items():
        text = text.replace(f" ({name})", "")
        text = re.sub(rf"(?<=[Ff]or ){name}\b|(?<=[Ww]ith ){name}\b", title[0].lower() + title[1:], text)
    return text


@operation(path="/settings/{form}/choices", shell=False)
def choices(
    workspace: Workspace,
    form: Form,
    name: Annotated[str, Field(description="Name of the setting.")],
    *,
    values: Values = {},  # noqa: B006 - never changed
) -> list[SettingChoice]:
    """List the choices for a setting in this workspace: models, datasets, runs, LoRAs, devices ..."""
    spec = next((one for one in specs(FORMS[form]) if one.name == name), None)
    if spec is None:
        raise Unknown(f"{name[:80]} is not a setting of {form}: `show` lists them")
    return [SettingChoice(**one._asdict()) for one in choices_of(spec, workspace, values)]


@operation(path="/settings/{form}/check", shell=False)
def check(workspace: Workspace, form: Form, *, values: Values) -> FormState:
    """Validate the values of a form: each on its own, and frames and size against the model."""
    try:
        settings = parse(FORMS[form], values)
        if isinstance(settings, TrainSettings | SampleSettings):
            model = settings.resolved.model
            model.check_shape(
                *(getattr(settings, name) or getattr(model, name) for name in ("frames", "height", "width"))
            )
    except ConfigError as error:
        return FormState(problems=error.problems or {"": str(error)}, without_effect=(), notes=())
    named = str(getattr(settings, "model", "")) if isinstance(settings, TrainSettings | SampleSettings) else ""
    return FormState(
        problems={},
        without_effect=(*without_effect(FORMS[form], settings.model_dump()), *_unread(settings)),
        notes=tuple(needless(settings, values)),
        own=empty_values(FORMS[form], named) if named else {},
        model=summary(named) if named else "",
    )


@operation(path="/settings/{form}/adapt", shell=False)
def adapt(workspace: Workspace, form: Form, *, values: Values) -> AdaptedValues:
    """List the values to change for the form's model, because it does not have or accept them."""
    defaults = {spec.name: spec.default for spec in specs(FORMS[form])}
    found = adapted(FORMS[form], {**defaults, **values})
    return AdaptedValues(values=found.values, notes=tuple(found.notes))


def _unread(settings: Settings) -> list[str]:
    """Return the settings that the chosen captioner, or the chosen split mode, does not use."""
    if isinstance(settings, CaptionSettings):
        used = find_captioner(settings.captioner).reads
        return [name for kind in captioners().values() for name in kind.reads if name not in used]
    if isinstance(settings, SplitTask):
        return ["window_seconds"] if settings.mode == "scenes" else ["detector", "threshold"]
    return []


@operation(by_hand="recipes")
def recipes(
    workspace: Workspace,
    subject: Annotated[str, Field(description="What you want to train. Empty: all subjects.")] = "",
    *,
    model: Annotated[str | None, Field(description="The base model. Empty: the built-in one.")] = None,
    dataset: Annotated[str, Field(description="Choose the steps for the clips of this dataset.")] = "",
    clips: Annotated[int | None, Field(ge=0, description="Choose the steps for this many clips.")] = None,
    gpu_memory: Gpu = HERE,
) -> list[Recipe]:
    """Recommend settings for a training subject, with reasons and sources."""
    settings = TrainSettings(model=workspace.model(model or default_model()), dataset=dataset)
    resolved = settings.resolved
    subjects = [subject] if subject else [one for one in KINDS if not refusal(one, resolved)]
    return [suggest(workspace, one, settings, gpu_memory, clips) for one in subjects]
