"""A LoRA as a file for another program.

Not covered: the formats (each family's), files of other programs read here (importing).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from workbench import policy
from workbench.errors import ConfigError
from workbench.families import families
from workbench.families.lora_files import EXPERT_KEY, LoraFormat, joined, with_metadata
from workbench.families.lora_match import match_report
from workbench.loras.importing import pair
from workbench.loras.making import OperationResult, Step
from workbench.loras.opened import Opened, Report, common_model, opened
from workbench.loras.settings import ConvertSettings
from workbench.workspace import Workspace, replacing, slugify, write_bytes

CONVERTED = "converted"  # the folder of the cache for files that were written without a target


def formats() -> list[LoraFormat]:
    """What LoRAs can be written as, of every family."""
    found: dict[str, tuple[LoraFormat, dict[str, str]]] = {}
    for family in families():
        for one in family.lora_formats:
            found.setdefault(one.id, (one, {}))[1][family.title] = one.help
    return [replace(one, help=_help(helps)) for one, helps in found.values()]


def _help(helps: Mapping[str, str]) -> str:
    """Of a format that several families write: one sentence for all, or each family's."""
    same = len(set(helps.values())) == 1 and len(helps) == len(families())
    return next(iter(helps.values())) if same else " ".join(f"{title}: {help}" for title, help in helps.items())


def target_of(workspace: Workspace, lora: str, format: LoraFormat) -> Path:
    """The file in the workspace that a LoRA is converted to where no other is named."""
    return workspace.cache / CONVERTED / f"{slugify(lora.rpartition('/')[2])}-{format.id}{format.suffix}"


def convert(workspace: Workspace, settings: ConvertSettings, report: Report, step: Step) -> OperationResult:
    """Write a LoRA in another format. Raises ConfigError, CannotWrite."""
    from safetensors.torch import save

    names = [name for name in (settings.lora, settings.low_noise) if name.strip()]
    loras = [one for name in names for one in opened(workspace, [name], report)]
    step(1, 2)
    one = loras[0]
    tensors, metadata = one.family.export_lora(one.weights, settings.format)
    format = next(known for known in one.family.lora_formats if known.id == settings.format)
    if settings.low_noise.strip():
        tensors = _both(loras, format, settings)
        metadata = {key: value for key, value in metadata.items() if key != EXPERT_KEY}
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
        import torch

        with replacing(target) as temporary:
            torch.save({"module": tensors}, temporary)
    warning = f". {format.warning}" if format.warning else ""
    matched = tuple(match_report(each.weights) for each in loras)
    titles = " and ".join(each.title for each in loras)
    return OperationResult(str(target), f"{titles} for {format.title}: {target}{warning}", reports=matched)


def _both(loras: Sequence[Opened], format: LoraFormat, settings: ConvertSettings) -> dict[str, Any]:
    """The tensors of a file for both experts. Raises ConfigError."""
    if not format.both:
        titles = " or ".join(known.title for known in loras[0].family.lora_formats if known.both)
        sentence = f"low_noise is {settings.low_noise}, and a file for {format.title} holds one LoRA: " + (
            f"choose {titles}" if titles else "leave it empty"
        )
        raise ConfigError(sentence, {"low_noise": sentence})
    common_model(loras)
    each = pair(loras, settings.lora, settings.low_noise)
    return joined({one.weights.expert: one.family.export_lora(one.weights, format.id)[0] for one in each})
