"""What a setting can be set to in a workspace now: one list for the page, the notebook and the shell. No torch.

Not covered: whether a value is legal (the settings and the checks of each job), how a choice is rendered (the faces).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from workbench.captioners import captioners
from workbench.compare.settings import NONE
from workbench.compare.suggestions import saved
from workbench.errors import ConfigError
from workbench.families import models
from workbench.loras.library import LibraryLora, all_loras
from workbench.runs.run import Run
from workbench.settings import Source, Spec
from workbench.workspace import Workspace, is_slug

ADDED, EXPORTS = "LoRAs", "Finished runs"


class Choice(NamedTuple):
    """One value of a setting: its title, the value itself, and the heading under which it is listed, if any."""

    title: str
    value: str
    group: str = ""


def choices_of(spec: Spec, workspace: Workspace | None, values: Mapping[str, Any] = {}) -> list[Choice]:
    """The values that a setting offers; empty when its declaration names neither choices nor a source.

    workspace: None offers what needs no workspace;  values: of the settings beside it, on which some choices depend
    """
    if spec.source is None:
        return [Choice(value, value) for value in spec.choices]
    if spec.source in _ANYWHERE:
        return _ANYWHERE[spec.source]()
    return [] if workspace is None else _IN_WORKSPACE[spec.source](workspace, values)


def _models() -> list[Choice]:
    return [Choice(model.title, model.id) for model in models()]


def _captioners() -> list[Choice]:
    return [Choice(kind.title, name) for name, kind in captioners().items()]


def _caption_models() -> list[Choice]:
    return [Choice(choice.title, choice.id) for kind in captioners().values() for choice in kind.choices]


def _datasets(workspace: Workspace, _: Mapping[str, Any]) -> list[Choice]:
    found = (path.parent.name for path in workspace.datasets.glob("*/metadata.jsonl"))
    return [Choice(name, name) for name in sorted(filter(is_slug, found))]


def _runs(workspace: Workspace, _: Mapping[str, Any]) -> list[Choice]:
    return [Choice(run.name, run.name) for run in Run.all(workspace)]


def _exported_runs(workspace: Workspace, _: Mapping[str, Any]) -> list[Choice]:
    return [Choice(run.name, run.name) for run in Run.all(workspace) if run.lora]


def _loras(workspace: Workspace, _: Mapping[str, Any]) -> list[Choice]:
    """Exports and added LoRAs, newest first, then each run's checkpoints in their order; no damaged file."""
    found = [lora for lora in all_loras(workspace, checkpoints=True) if not lora.sound]
    found.sort(key=lambda lora: (lora.run.name, lora.step) if lora.run and lora.step is not None else ("", 0))
    return [Choice(lora.title, lora.name, _group(lora)) for lora in found]


def _group(lora: LibraryLora) -> str:
    if lora.run is None:
        return ADDED
    return EXPORTS if lora.step is None else f"Checkpoints of {lora.run.name}"


def _loras_or_none(workspace: Workspace, values: Mapping[str, Any]) -> list[Choice]:
    return [Choice("base model", NONE), *_loras(workspace, values)]


def _checkpoints(workspace: Workspace, values: Mapping[str, Any]) -> list[Choice]:
    """Those of the run that the setting `run` names."""
    try:
        run = Run.open(workspace, values.get("run") or "")
    except ConfigError:
        return []
    return [Choice(name, name) for name in saved(run)]


_ANYWHERE: Mapping[Source, Callable[[], list[Choice]]] = {
    "models": _models,
    "captioners": _captioners,
    "caption_models": _caption_models,
}
_IN_WORKSPACE: Mapping[Source, Callable[[Workspace, Mapping[str, Any]], list[Choice]]] = {
    "datasets": _datasets,
    "runs": _runs,
    "exported_runs": _exported_runs,
    "loras": _loras,
    "loras_or_none": _loras_or_none,
    "checkpoints": _checkpoints,
}
