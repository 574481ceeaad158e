"""A model with LoRAs fused into its transformer: a folder in diffusers' layout that needs no LoRA files.

models/NAME/transformer/     the base's files, with the changed weights, in the same format
models/NAME/...              the other parts, under a second name where the disk allows it
models/NAME/fused.json       what it was made of; written last
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from workbench.errors import ConfigError
from workbench.families import find_model
from workbench.families.lora_files import DOWN
from workbench.families.lora_names import misfits
from workbench.families.model import Model
from workbench.loras.changes import ModelWeights, bias_change, change
from workbench.loras.making import OperationResult, Step, new_folder, title_from
from workbench.loras.opened import Opened, Report, common_model, opened, sizes_of
from workbench.loras.settings import FuseSettings
from workbench.workspace import Workspace, link_or_copy, write_json, writing

MODELS, NOTES = "models", "fused.json"


def fuse(workspace: Workspace, settings: FuseSettings, report: Report, step: Step) -> OperationResult:
    """Write a model with LoRAs fused into it. Raises ConfigError, ModelUnavailable, CannotWrite."""
    loras = opened(workspace, settings.loras, report)
    name = settings.model or common_model(loras)
    if not name:
        raise ConfigError("model is empty, and these LoRAs do not say it: choose their model", {"model": "choose one"})
    family, known = model = find_model(name)
    for lora in loras:
        if wrong := misfits(lora.weights, sizes_of(model)):
            first, why = next(iter(wrong.items()))
            raise ConfigError(
                f"{lora.title} does not fit {known.title} ({first}: {why}): choose the model it was made for"
            )
    source = family.fetch(known, report)

    def fill(new: Path) -> None:
        with writing(new):
            _fill(source, new, known, loras, step)
        record = {"model": known.id, "made_of": [lora.record() for lora in loras], "time": time.time()}
        write_json(new / NOTES, record)

    target = new_folder(workspace.root / MODELS, title_from(settings.name, loras, "-fused"), fill)
    parts = " + ".join(f"{lora.scale:g} x {lora.title}" for lora in loras)
    return OperationResult(str(target), f"{known.title} with {parts} fused: use {target} as the model")


def _fill(source: Path, target: Path, model: Model, loras: list[Opened], step: Step) -> None:
    """Copy a model's folder, weights of each transformer changed on the way by the LoRAs for it. Raises OSError."""
    found = {
        expert.part: [lora for lora in loras if expert in model.experts_for([lora.weights.expert])]
        for expert in model.experts
    }
    changed = {part: own for part, own in found.items() if own}
    for path in sorted(source.iterdir()):
        if path.name.startswith("."):
            continue
        if path.is_dir() and path.name not in changed:
            shutil.copytree(path, target / path.name, copy_function=link_or_copy)
        elif path.is_file() and path.name != NOTES:
            shutil.copy2(path, target / path.name)
    bases = {part: ModelWeights(source / part) for part in changed}
    total, done = sum(len(list(base)) for base in bases.values()), 0
    for part, own in changed.items():
        (target / part).mkdir()
        for path in sorted((source / part).iterdir()):
            if path.suffix == ".safetensors":
                done = _fuse_file(path, target / part / path.name, own, bases[part], step, done, total)
            else:
                shutil.copy2(path, target / part / path.name)


def _fuse_file(
    path: Path, target: Path, loras: list[Opened], base: ModelWeights, step: Step, done: int, total: int
) -> int:
    """One file of weights with what the LoRAs change in it; returns how many weights are done."""
    from safetensors.torch import load_file, save_file

    tensors = load_file(path)
    for name in sorted(tensors):
        step(done, total)
        layer, _, kind = name.rpartition(".")
        added = None
        for lora in loras:
            if f"{layer}.{DOWN}" in lora.weights.tensors and kind == "weight":
                one = change(lora.weights, layer, lora.scale, base).matrix().reshape(tensors[name].shape)
            elif kind == "bias" and (bias := bias_change(lora.weights, layer, lora.scale)) is not None:
                one = bias
            else:
                continue
            added = one if added is None else added + one
        if added is not None:
            tensors[name] = (tensors[name].double() + added).to(tensors[name].dtype)
        done += 1
    save_file(tensors, target, {"format": "pt"})
    step(done, total)
    return done
