"""A model with LoRAs fused into its transformer: a folder in diffusers' layout that needs no LoRA files.

    models/NAME/transformer/     the base's files, with the changed weights, in the same format
    models/NAME/...              the other parts, under a second name where the disk allows it
    models/NAME/fused.json       what it was made of; written last

Not covered: LoRAs of LoRAs (merging).
"""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from pathlib import Path

from workbench.errors import ConfigError
from workbench.families import find_model
from workbench.families.base import Family
from workbench.families.lora_files import DOWN
from workbench.loras.changes import ModelWeights, bias_change, change
from workbench.loras.making import OperationResult, Step, title_from
from workbench.loras.opened import Opened, Report, common_model, misfits, opened
from workbench.loras.settings import FuseSettings
from workbench.workspace import Workspace, fresh_folder, link_or_copy, write_json, writing

MODELS, NOTES = "models", "fused.json"


def fuse(workspace: Workspace, settings: FuseSettings, report: Report, step: Step) -> OperationResult:
    """Write a model with LoRAs fused into it. Raises ConfigError, ModelUnavailable, CannotWrite."""
    loras = opened(workspace, settings.loras, report)
    model = settings.model or common_model(loras)
    if not model:
        raise ConfigError("model is empty, and these LoRAs do not say it: choose their model", {"model": "choose one"})
    family, known = find_model(model)
    for lora in loras:
        if wrong := misfits(lora.weights, model):
            raise ConfigError(f"{lora.title} does not fit {known.title} ({wrong[0]}): choose the model it was made for")
    source = family.fetch(known, report)
    parent = workspace.root / MODELS
    with writing(parent):
        parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(dir=parent, prefix=".new-"))
        scratch.chmod(0o755)
    try:
        with writing(scratch):
            _fill(source, scratch, family, loras, step)
        record = {"model": known.id, "made_of": [lora.record() for lora in loras], "time": time.time()}
        write_json(scratch / NOTES, record)
        target = fresh_folder(parent, title_from(settings.name, loras, "-fused"))
        with writing(target):
            os.rename(scratch, target)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    parts = " + ".join(f"{lora.scale:g} x {lora.title}" for lora in loras)
    return OperationResult(str(target), f"{known.title} with {parts} fused: use {target} as the model")


def _fill(source: Path, target: Path, family: Family, loras: list[Opened], step: Step) -> None:
    """Copy a model's folder, weights of the transformer changed on the way. Raises OSError."""
    part = family.lora_prefix
    for path in sorted(source.iterdir()):
        if path.name.startswith("."):
            continue
        if path.is_dir() and path.name != part:
            shutil.copytree(path, target / path.name, copy_function=link_or_copy)
        elif path.is_file() and path.name != NOTES:
            shutil.copy2(path, target / path.name)
    (target / part).mkdir()
    base = ModelWeights(source / part)
    total, done = len(list(base)), 0
    for path in sorted((source / part).iterdir()):
        if path.suffix == ".safetensors":
            done = _fuse_file(path, target / part / path.name, loras, base, step, done, total)
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
