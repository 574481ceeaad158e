"""A LoRA as a file for another program.

Not covered: the formats (each family's), files of other programs read here (importing).
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from workbench import policy
from workbench.errors import ConfigError
from workbench.families import families
from workbench.families.lora_files import LoraFormat
from workbench.loras.making import OperationResult, Step
from workbench.loras.opened import Report, opened
from workbench.loras.settings import ConvertSettings
from workbench.trainer.model.lora import with_metadata
from workbench.workspace import Workspace, slugify, write_bytes, writing

CONVERTED = "converted"  # the folder of the cache for files that were written without a target


def formats() -> list[LoraFormat]:
    """What LoRAs can be written as, of every family."""
    return list({one.id: one for family in families() for one in family.lora_formats}.values())


def target_of(workspace: Workspace, lora: str, format: LoraFormat) -> Path:
    """The file in the workspace that a LoRA is converted to where no other is named."""
    return workspace.cache / CONVERTED / f"{slugify(lora.rpartition('/')[2])}-{format.id}{format.suffix}"


def convert(workspace: Workspace, settings: ConvertSettings, report: Report, step: Step) -> OperationResult:
    """Write a LoRA in another format. Raises ConfigError, CannotWrite."""
    from safetensors.torch import save

    (one,) = opened(workspace, [settings.lora], report)
    step(1, 2)
    tensors, metadata = one.family.export_lora(one.weights, settings.format)
    format = next(known for known in one.family.lora_formats if known.id == settings.format)
    if settings.target:
        target = policy.resolve(settings.target, "target")
        if target.exists():
            raise ConfigError(f"{target} is there already: give a new name", {"target": "give a new name"})
        if target.suffix != format.suffix:
            raise ConfigError(f"target is {target.name}, a file for {format.title} ends in {format.suffix}: call it so")
    else:
        target = target_of(workspace, one.title, format)
    if format.suffix == ".safetensors":
        labels = {"base_model": one.base_model, "trigger_word": one.trigger}
        write_bytes(target, with_metadata(save(tensors), {**metadata, **{k: v for k, v in labels.items() if v}}))
    else:
        _write_torch(target, {"module": tensors})
    warning = f". {format.warning}" if format.warning else ""
    return OperationResult(str(target), f"{one.title} for {format.title}: {target}{warning}")


def _write_torch(target: Path, value: Any) -> None:
    import torch

    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        scratch = target.with_name(f".{target.name}.{os.getpid()}.tmp")
        try:
            torch.save(value, scratch)
            os.replace(scratch, target)
        finally:
            scratch.unlink(missing_ok=True)
