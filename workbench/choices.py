"""The values a setting can take in a workspace, listed for the page, the notebook and the shell. No torch."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from workbench.captioners import captioners
from workbench.clips import made
from workbench.compare.settings import NONE
from workbench.compare.suggestions import saved
from workbench.errors import ConfigError
from workbench.families import default_model, families, known_model, schedulers
from workbench.families.model_files import INDEX
from workbench.fit.gpus import HERE, gpu_of
from workbench.fit.levels import can_fit
from workbench.jobs.devices import gpus
from workbench.loras.converting import formats
from workbench.loras.library import LibraryLora, all_loras
from workbench.runs.run import Run
from workbench.settings import Source, Spec
from workbench.vision import segmenting
from workbench.workspace import Workspace, is_slug

TOO_LARGE = "too large here"
ADDED, EXPORTS, TRAINED = "LoRAs", "Finished runs", "Your models"


class Choice(NamedTuple):
    """One possible value of a setting, with its title and the heading it is listed under (may be empty)."""

    title: str
    value: str
    group: str = ""


def choices_of(spec: Spec, workspace: Workspace | None, values: Mapping[str, Any] = {}) -> list[Choice]:
    """List the values that a setting offers; empty when its declaration has neither choices nor a source.

    Args:
        workspace: with None, sources that need a workspace offer nothing.
        values: the other settings of the form, which some choices depend on.
    """
    if spec.source is None:
        return _same(spec.choices)
    if spec.source in _ANYWHERE:
        found = _ANYWHERE[spec.source](values)
        if spec.source == "models" and workspace is not None:  # and runs that trained all weights
            folders = [index.parent for index in sorted(workspace.runs.glob(f"*/{INDEX}"))]
            found += [Choice(f"{folder.name} (trained here)", str(folder), TRAINED) for folder in folders]
        return found
    return [] if workspace is None else _IN_WORKSPACE[spec.source](workspace, values)


def _models() -> list[Choice]:
    """List the built-in models, then those whose LoRA training fits this machine, then the rest."""
    gpu, found = gpu_of(HERE), []
    for family in families():
        for model in family.models:
            fits = can_fit(model, family.facts(model), gpu)
            download = f"{model.download_gb:g} GB" if model.download_gb else ""
            title = " · ".join(filter(None, [model.title, download, "" if fits else TOO_LARGE]))
            found.append((not model.embedded, not fits, Choice(title, model.id, family.title)))
    return [choice for *_, choice in sorted(found, key=lambda one: one[:2])]


def _loras(workspace: Workspace) -> list[Choice]:
    """List exports and added LoRAs, newest first, then each run's checkpoints in order. Damaged files are left out."""
    found = [lora for lora in all_loras(workspace, checkpoints=True) if not lora.sound]
    found.sort(key=lambda lora: (lora.run.name, lora.step) if lora.run and lora.step is not None else ("", 0))

    def group(lora: LibraryLora) -> str:
        if lora.run is None:
            return ADDED
        return EXPORTS if lora.step is None else f"Checkpoints of {lora.run.name}"

    return [Choice(lora.title, lora.name, group(lora)) for lora in found]


def _checkpoints(workspace: Workspace, values: Mapping[str, Any]) -> list[Choice]:
    """List the checkpoints of the run that the setting `run` names."""
    with contextlib.suppress(ConfigError):
        return _same(saved(Run.open(workspace, values.get("run") or "")))
    return []


def _schedulers(values: Mapping[str, Any]) -> list[Choice]:
    """List the schedulers of the model that the setting `model` names."""
    found = known_model(str(values.get("model") or default_model()))
    return _same(("model", *(schedulers() if found is None else found.family.schedulers)))


def _maker_models(values: Mapping[str, Any], helpers: bool = False) -> list[Choice]:
    """List the models of the maker that the setting `maker` names, or of all makers when it is not given."""
    makers = [maker for name, maker in made.ABOUT.items() if values.get("maker", name) == name]
    models = [model for maker in makers for model in (maker.helpers if helpers else maker.models)]
    return [Choice(model.title, model.id) for model in models]


def _devices() -> list[Choice]:
    """List the kinds of device and, on a machine with several GPUs, each GPU."""
    numbered = [Choice(f"{gpu.torch_name} ({gpu.name})", gpu.torch_name) for gpu in gpus() if gpu.kind == "cuda"]
    return _same(("auto", "cuda", "mps", "cpu")) + (numbered if len(numbered) > 1 else [])


def _same(names: Iterable[str]) -> list[Choice]:
    return [Choice(name, name) for name in names]


_ANYWHERE: Mapping[Source, Callable[[Mapping[str, Any]], list[Choice]]] = {
    "models": lambda _: _models(),
    "captioners": lambda _: [Choice(kind.title, name) for name, kind in captioners().items()],
    "caption_models": lambda _: [Choice(one.title, one.id) for kind in captioners().values() for one in kind.choices],
    "maker_models": _maker_models,
    "detectors": lambda values: _maker_models(values, helpers=True),
    "mask_models": lambda _: [Choice(one.title, one.id) for one in segmenting.MODELS],
    "lora_formats": lambda _: [Choice(format.title, format.id) for format in formats()],
    "schedulers": _schedulers,
    "devices": lambda _: _devices(),
}
_IN_WORKSPACE: Mapping[Source, Callable[[Workspace, Mapping[str, Any]], list[Choice]]] = {
    "datasets": lambda workspace, _: _same(
        sorted(path.parent.name for path in workspace.datasets.glob("*/metadata.jsonl") if is_slug(path.parent.name))
    ),
    "runs": lambda workspace, _: _same(run.name for run in Run.all(workspace)),
    "exported_runs": lambda workspace, _: _same(run.name for run in Run.all(workspace) if run.lora),
    "loras": lambda workspace, _: _loras(workspace),
    "loras_or_none": lambda workspace, _: [Choice("base model", NONE), *_loras(workspace)],
    "checkpoints": _checkpoints,
}
