"""A LoRA as a file for another program, or the LoRAs of two experts as a file each."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from workbench import policy
from workbench.errors import ConfigError
from workbench.families import families, find_model
from workbench.families.lora_files import LoraFormat, with_metadata
from workbench.families.lora_names import match_report
from workbench.loras.importing import pair
from workbench.loras.making import OperationResult, Step
from workbench.loras.opened import Opened, Report, common_model, opened
from workbench.loras.settings import ConvertSettings
from workbench.workspace import Workspace, replacing, slugify, write_bytes

EXPERT = re.compile(r"[-_ .]?(high|low)[-_ ]noise", re.IGNORECASE)  # in a name, the expert that the file is for
CONVERTED = "converted"  # the folder of the cache for files that were written without a target


def formats() -> list[LoraFormat]:
    """What LoRAs can be written as, of every family."""
    found: dict[str, tuple[LoraFormat, dict[str, str]]] = {}
    for family in families():
        for one in family.lora_formats:
            found.setdefault(one.id, (one, {}))[1][family.title] = f"{one.help} {one.read_by}."
    return [replace(one, help=_help(helps)) for one, helps in found.values()]


def _help(helps: Mapping[str, str]) -> str:
    """Of a format that several families write: one sentence for all, or each family's."""
    same = len(set(helps.values())) == 1 and len(helps) == len(families())
    return next(iter(helps.values())) if same else " ".join(f"{title}: {help}" for title, help in helps.items())


def target_of(workspace: Workspace, lora: str, format: LoraFormat) -> Path:
    """The file in the workspace that a LoRA is converted to where no other is named."""
    return workspace.cache / CONVERTED / f"{slugify(lora.rpartition('/')[2])}-{format.id}{format.suffix}"


def convert(workspace: Workspace, settings: ConvertSettings, report: Report, step: Step) -> OperationResult:
    """Write a LoRA, or those of two experts, in another format. Raises ConfigError, CannotWrite."""
    names = [name for name in (settings.lora, settings.low_noise) if name.strip()]
    loras = [one for name in names for one in opened(workspace, [name], report)]
    if settings.low_noise.strip():
        model = common_model(loras)
        known = (find_model(model).model,) if model else loras[0].family.models
        if not any(one.boundary for one in known):
            sentence = (
                f"low_noise is {settings.low_noise[:200]}, and {known[0].title} has one transformer: leave it empty"
            )
            raise ConfigError(sentence, {"low_noise": "leave it empty"})
        loras = pair(loras, settings.lora, settings.low_noise)
    first = loras[0]
    written = [one.family.export_lora(one.weights, settings.format) for one in loras]
    format = next(known for known in first.family.lora_formats if known.id == settings.format)
    targets = _targets(workspace, settings, loras, format)
    readers = _readers(loras, format)
    report(readers)
    step(1, 2)
    for one, (tensors, metadata), target in zip(loras, written, targets, strict=True):
        _write(one, tensors, metadata, target)
    message = f"{' and '.join(one.title for one in loras)} for {format.title}. {readers}"
    warning = f". {format.warning}" if format.warning else ""
    files = tuple(map(str, targets))
    return OperationResult(
        files[0], message + warning, reports=tuple(match_report(one.weights) for one in loras), files=files
    )


def _targets(
    workspace: Workspace, settings: ConvertSettings, loras: Sequence[Opened], format: LoraFormat
) -> list[Path]:
    """The file of each LoRA: as named, or with its expert at the end, where ai-toolkit looks for it.

    Raises ConfigError for a file that exists, or has another suffix.
    """
    if settings.target:
        base = policy.resolve(settings.target, "target")
        if base.suffix != format.suffix:
            raise ConfigError(f"target is {base.name}, a file for {format.title} ends in {format.suffix}: call it so")
    else:
        base = target_of(workspace, EXPERT.sub("", loras[0].title), format)
    if settings.target and len(loras) == 1:
        targets = [base]
    else:
        stem, experts = EXPERT.sub("", base.stem), (one.weights.expert.replace(" ", "_") for one in loras)
        targets = [base.with_name(f"{stem}{'_' if expert else ''}{expert}{base.suffix}") for expert in experts]
    if settings.target and (taken := next((one for one in targets if one.exists()), None)):
        raise ConfigError(f"{taken} already exists: give a new name", {"target": "give a new name"})
    return targets


def _readers(loras: Sequence[Opened], format: LoraFormat) -> str:
    """Who reads the files, and who reads them whole, without a period at the end."""
    outside = sorted({layer for one in loras for layer in one.weights.layers if "blocks." not in layer})
    rest = f"{', '.join(outside[:3])}{' ...' if len(outside) > 3 else ''}"
    limit = f". Layers outside the blocks ({rest}) are read by {format.outside} alone"
    return f"{format.read_by}{limit if outside and format.outside and len(format.readers) > 1 else ''}"


def _write(one: Opened, tensors: Mapping[str, Any], metadata: Mapping[str, str], target: Path) -> None:
    """Raises CannotWrite."""
    if target.suffix == ".safetensors":
        from safetensors.torch import save

        labels = {"base_model": one.base_model, "trigger_word": one.trigger}
        write_bytes(target, with_metadata(save(dict(tensors)), {**metadata, **{k: v for k, v in labels.items() if v}}))
    else:
        import torch

        with replacing(target) as temporary:
            torch.save({"module": tensors}, temporary)
