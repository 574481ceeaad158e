"""A recipe with what the GPU decides: memory levels, and where no level fits, fewer clips at a time, frames or pixels.

Every figure is the fit check's. Not covered: what to train, and with which settings (runs.recipes).
"""

from __future__ import annotations

from dataclasses import replace

from workbench.families.recipes import Source
from workbench.fit.estimate import clips_of, sized_model
from workbench.fit.gpus import HERE, gpu_of
from workbench.fit.levels import NAMES, FittingSettings, fitting_smaller
from workbench.runs import recipes
from workbench.runs.recipes import Reason, Suggestion
from workbench.runs.settings import TrainSettings
from workbench.settings import specs
from workbench.workspace import Workspace

SOURCE = Source("docs/memory.md, the fit check")


def suggest(
    workspace: Workspace, subject: str, settings: TrainSettings, gpu: str | None = HERE, clips: int | None = None
) -> Suggestion:
    """The settings for a subject, for the model and dataset of these settings. Raises ConfigError, ModelUnavailable.

    gpu: see gpus.gpu_of; None leaves the memory settings as they are;  clips: how many there are, if not the dataset's
    """
    family, model = named = sized_model(settings.model)
    count = recipes.clips_of(workspace, settings.dataset) if clips is None else clips
    found = recipes.suggest(subject, named, count)
    if gpu is None:
        return found
    wanted = settings.changed(model=model.id, **found.settings)
    on_gpu = gpu_of(gpu, settings.device)
    fit = fitting_smaller(wanted, model, family.facts(model), on_gpu, clips_of(workspace, wanted), here=gpu == HERE)
    if fit.settings is None:
        warning = " ".join(filter(None, (found.warning, f"{on_gpu.name}: {fit.why}")))
        return replace(found, warning=warning, gpu=on_gpu.name)
    kept = [one for one in found.reasons if one.setting not in fit.changed]
    return replace(
        found,
        settings={**found.settings, **fit.changed},
        reasons=[*kept, *_reasons(fit, on_gpu.name)],
        gpu=on_gpu.name,
    )


def _reasons(fit: FittingSettings, gpu: str) -> list[Reason]:
    titles = {spec.name: spec.title for spec in specs(TrainSettings)}
    fastest = f"The fastest memory settings that fit {gpu}."
    return [
        Reason("", gpu, "", " ".join(filter(None, (fit.given_up, fit.why))), (SOURCE,)),
        *(
            Reason(name, titles[name], _text(value), fastest if name in NAMES else fit.given_up, (SOURCE,))
            for name, value in fit.changed.items()
        ),
    ]


def _text(value: object) -> str | int | float:
    return value if isinstance(value, str | int | float) else "none"
