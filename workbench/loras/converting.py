"""Files of other programs: their LoRAs added to the library, and LoRAs written for them.

An imported LoRA is read, checked against its model and written in diffusers' layout; what of it matched is kept beside
it (families.lora_names). A file with a LoRA for each of two experts becomes two, and so do two files that are a pair.
The LoRAs of two experts are written as a file each.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from workbench.errors import ConfigError
from workbench.families import families, find_model, models
from workbench.families.base import ResolvedModel
from workbench.families.lora_files import NUMBERS, experts_of, with_metadata, without_layers
from workbench.families.lora_names import check_fit, loss, match_report, misfits, unread
from workbench.families.lora_writing import LoraFormat
from workbench.loras.making import OperationResult, Provenance, Step, add_to_library
from workbench.loras.opened import Opened, Report, common_model, opened, opened_parts, sizes_of
from workbench.loras.settings import ConvertSettings, LoraImportSettings
from workbench.workspace import Workspace, named_paths, replacing, slugify, write_bytes

EXPERT = re.compile(r"[-_ .]?(high|low)[-_ ]noise", re.IGNORECASE)  # in a name, the expert that the file is for
CONVERTED = "converted"  # the folder of the cache for files that were written without a target


# ---- from another program -------------------------------------------------------------------------------------------


def import_lora(workspace: Workspace, settings: LoraImportSettings, report: Report, step: Step) -> OperationResult:
    """Add a LoRA to the library. Raises ConfigError, ModelUnavailable, CannotWrite."""
    if not settings.source.strip():
        raise ConfigError("source is empty: name a file or a repository of the Hub", {"source": "name one"})
    parts = opened_parts(workspace, settings.source.strip(), settings.model, report)
    if settings.low_noise.strip():
        parts += opened_parts(workspace, settings.low_noise.strip(), settings.model, report)
        parts = pair(parts, settings.source.strip(), settings.low_noise.strip())
    step(1, 2)
    made = [_import(workspace, settings, one) for one in parts]
    if len(made) == 1:
        return made[0]
    names = " and ".join(one.name for one in made)
    message = f"two LoRAs, one for each expert: {names}. {'; '.join(one.message for one in made)}"
    return OperationResult(made[0].name, message, reports=[report for one in made for report in one.reports])


def _import(workspace: Workspace, settings: LoraImportSettings, one: Opened) -> OperationResult:
    name = settings.model or one.model
    family, known = model = find_model(name) if name else _only_match(one)
    if known.boundary and not one.weights.expert:
        (expert,) = experts_of((), {}, one.path.name) or ("",)
        one = replace(one, weights=replace(one.weights, expert=expert))
    sizes = sizes_of(model)
    wrong = check_fit(one.title, one.weights, sizes, known.title, settings.force)
    match = match_report(one.weights, sizes)
    kind = "a DoRA" if one.weights.dora else "a LoRA"
    without = f", without {len(wrong)} layers that the model lacks or has in another size" if wrong else ""
    if one.weights.converted:
        without += f", made from {one.weights.converted}{loss(one.weights.lost)}"
    each = {one.weights.rank_of(layer) for layer in one.weights.layers}
    ranks = "of several ranks" if len(each) > 1 else f"of rank {one.weights.rank}"
    expert_in_name = one.weights.expert if one.expert or settings.low_noise.strip() else ""
    provenance = Provenance(
        title=f"{settings.name.strip()} {expert_in_name}".strip() if settings.name.strip() else one.title,
        how="imported",
        summary=f"imported from {one.name[:200]}: {kind} {ranks} by {one.weights.origin}{without}",
        model=known.id,
        base_model=known.id if known.local else known.source,
        made_of=[one.record()],
        trigger=settings.trigger.strip() or one.trigger,
        steps=one.steps,
        error=one.weights.lost if one.weights.converted else None,
        match=match,
        training=one.training,
    )
    made = add_to_library(workspace, family, without_layers(one.weights, wrong), provenance)
    return replace(made, reports=({"lora": provenance.title, **match},))


def pair(loras: Sequence[Opened], high: str, low: str) -> list[Opened]:
    """The same, the first for high noise and the second for low. high, low: as they were named. Raises ConfigError"""
    if len(loras) != 2:
        raise ConfigError(
            f"low_noise is {low[:200]}, but {high[:200]} or this file holds both experts' LoRAs: leave low_noise empty",
            {"low_noise": "leave it empty"},
        )
    for one, expert in zip(loras, NUMBERS, strict=True):
        says = one.weights.expert or "".join(experts_of((), {}, one.path.name))
        if says and says != expert:
            raise ConfigError(
                f"{one.name[:200]} is for the expert {says}, and was named as the one for {expert}: exchange the two",
                {"low_noise": "exchange the two"},
            )
    return [
        replace(one, weights=replace(one.weights, expert=expert)) for one, expert in zip(loras, NUMBERS, strict=True)
    ]


def _only_match(one: Opened) -> ResolvedModel:
    """The only known model that a LoRA fits. Raises ConfigError when there are several, or none."""
    known = [ResolvedModel(family, model) for family in families() for model in family.models]
    fitting = [each for each in known if not misfits(one.weights, sizes_of(each)) and not unread(one.weights)]
    if len(fitting) == 1:
        return fitting[0]
    which = ", ".join([each.model.id for each in fitting] or [model.id for model in models()])
    if fitting:
        sentence = f"{one.title} does not say for which model it was made, and fits several: choose one of {which}"
    else:
        sentence = f"{one.title} does not say for which model it was made, and fits none of {which}: name its folder"
    raise ConfigError(sentence, {"model": sentence})


# ---- for another program --------------------------------------------------------------------------------------------


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
        base = named_paths.resolve(settings.target, "target")
        if base.suffix != format.suffix:
            raise ConfigError(f"target is {base.name}, a file for {format.title} ends in {format.suffix}: call it so")
    else:
        title = EXPERT.sub("", loras[0].title).rpartition("/")[2]
        base = workspace.cache / CONVERTED / f"{slugify(title)}-{format.id}{format.suffix}"
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
    if format.lokr and all(one.weights.lokr for one in loras):
        return f"It stays a LoKr, read by {format.lokr}"
    outside = sorted({layer for one in loras for layer in one.weights.layers if "blocks." not in layer})
    rest = f"{', '.join(outside[:3])}{' ...' if len(outside) > 3 else ''}"
    limit = f". Layers outside the blocks ({rest}) are read by {format.outside} alone"
    return f"{format.read_by}{limit if outside and format.outside and len(format.readers) > 1 else ''}"


def _write(one: Opened, tensors: Mapping[str, Any], metadata: Mapping[str, str], target: Path) -> None:
    """Raises CannotWrite."""
    if target.suffix == ".safetensors":
        from safetensors.torch import save

        labels = {"base_model": one.base_model, "trigger_word": one.trigger, **one.training}
        write_bytes(target, with_metadata(save(dict(tensors)), {**metadata, **{k: v for k, v in labels.items() if v}}))
    else:
        import torch

        with replacing(target) as temporary:
            torch.save({"module": tensors}, temporary)
