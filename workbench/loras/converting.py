"""Import LoRAs of other programs into the library, and write LoRAs for other programs.

An imported LoRA is checked against its model and written in diffusers' layout, with a report of what matched
(families.lora_names). LoRAs for two experts, in one file or in two, become two LoRAs, and are written as two files.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from workbench.display.quantities import shortened
from workbench.errors import ConfigError
from workbench.families import families, find_model, models, self_test
from workbench.families.base import ResolvedModel
from workbench.families.lora_files import NUMBERS, experts_of, with_metadata, without_layers
from workbench.families.lora_names import check_fit, loss, match_report, misfits, unread
from workbench.families.lora_writing import LoraFormat
from workbench.loras.making import OperationResult, Provenance, Step, add_to_library, self_test_facts
from workbench.loras.opened import Opened, Report, common_model, opened, opened_parts, sizes_of
from workbench.loras.settings import ConvertSettings, LoraImportSettings
from workbench.workspace import Workspace, named_paths, replacing, slugify, write_bytes

EXPERT = re.compile(r"[-_ .]?(high|low)[-_ ]noise", re.IGNORECASE)  # in a file's name, the expert it is for
CONVERTED = "converted"  # the cache's folder for files that were written without a target


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
    misfit = check_fit(one.title, one.weights, sizes, known.title, settings.force)
    match = match_report(one.weights, sizes)
    kind = "a DoRA" if one.weights.dora else "a LoRA"
    note = f", without {len(misfit)} layers that the model lacks or has in another size" if misfit else ""
    if one.weights.converted:
        note += f", made from {one.weights.converted}{loss(one.weights.lost)}"
    ranks = {one.weights.rank_of(layer) for layer in one.weights.layers}
    of_rank = "of several ranks" if len(ranks) > 1 else f"of rank {one.weights.rank}"
    expert_in_name = one.weights.expert if one.expert or settings.low_noise.strip() else ""
    provenance = Provenance(
        title=f"{settings.name.strip()} {expert_in_name}".strip() if settings.name.strip() else one.title,
        how="imported",
        summary=f"imported from {one.name[:200]}: {kind} {of_rank} by {one.weights.origin}{note}",
        model=known.id,
        base_model=known.id if known.local else known.source,
        made_of=[one.record()],
        trigger=settings.trigger.strip() or one.trigger,
        steps=one.steps,
        error=one.weights.lost if one.weights.converted else None,
        match=match,
        training=one.training,
        test="" if misfit else one.test,
    )
    made = add_to_library(workspace, family, without_layers(one.weights, misfit), provenance)
    return replace(made, reports=({"lora": provenance.title, **match},))


def pair(loras: Sequence[Opened], high: str, low: str) -> list[Opened]:
    """Mark two LoRAs as those of the high-noise and the low-noise expert. Raises ConfigError.

    high, low: the texts that named them.
    """
    if len(loras) != 2:
        raise ConfigError(
            f"low_noise is {low[:200]}, but {high[:200]} or this file holds both experts' LoRAs: leave low_noise empty",
            {"low_noise": "leave it empty"},
        )
    paired = []
    for one, expert in zip(loras, NUMBERS, strict=True):
        stated = one.weights.expert or "".join(experts_of((), {}, one.path.name))
        if stated and stated != expert:
            raise ConfigError(
                f"{one.name[:200]} is for the expert {stated}, but was given as the one for {expert}: swap the two",
                {"low_noise": "swap the two"},
            )
        paired.append(replace(one, weights=replace(one.weights, expert=expert)))
    return paired


def _only_match(one: Opened) -> ResolvedModel:
    """Return the only known model that a LoRA fits. Raises ConfigError if it fits several, or none."""
    known = [ResolvedModel(family, model) for family in families() for model in family.models]
    fitting = [each for each in known if not misfits(one.weights, sizes_of(each)) and not unread(one.weights)]
    if len(fitting) == 1:
        return fitting[0]
    ids = ", ".join([each.model.id for each in fitting] or [model.id for model in models()])
    fits = f"fits several: choose one of {ids}" if fitting else f"fits none of {ids}: name its model's folder"
    raise ConfigError.of("model", f"{one.title} does not say for which model it was made, and {fits}")


# ---- for another program --------------------------------------------------------------------------------------------


def formats() -> list[LoraFormat]:
    """List the formats that LoRAs can be written in. Their help says where families differ."""
    found: dict[str, tuple[LoraFormat, dict[str, str]]] = {}
    for family in families():
        for one in family.lora_formats:
            found.setdefault(one.id, (one, {}))[1][family.title] = f"{one.help} {one.read_by}."
    listed = []
    for one, helps in found.values():
        same = len(set(helps.values())) == 1 and len(helps) == len(families())
        by_family = " ".join(f"{title}: {help}" for title, help in helps.items())
        listed.append(replace(one, help=next(iter(helps.values())) if same else by_family))
    return listed


def convert(workspace: Workspace, settings: ConvertSettings, report: Report, step: Step) -> OperationResult:
    """Write a LoRA, or the two of a pair of experts, in another format. Raises ConfigError, CannotWrite."""
    names = [name for name in (settings.lora, settings.low_noise) if name.strip()]
    loras = [one for name in names for one in opened(workspace, [name], report)]
    if scaled := next((name for name, one in zip(names, loras, strict=True) if one.scale != 1 or one.blocks), ""):
        setting = "lora" if scaled is names[0] else "low_noise"
        raise ConfigError.of(
            setting,
            f"{setting} is {scaled[:120]!r}, but a conversion keeps a LoRA's own strength: convert what "
            f"`workbench loras merge '{scaled[:120]}'` makes",
        )
    if settings.low_noise.strip():
        model = common_model(loras)
        known = (find_model(model).model,) if model else loras[0].family.models
        if not any(one.boundary for one in known):
            value = settings.low_noise[:200]
            sentence = f"low_noise is {value}, but {known[0].title} has one transformer: leave it empty"
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
    files, reports = tuple(map(str, targets)), tuple(match_report(one.weights) for one in loras)
    return OperationResult(files[0], message + warning, reports=reports, files=files)


def _targets(
    workspace: Workspace, settings: ConvertSettings, loras: Sequence[Opened], format: LoraFormat
) -> list[Path]:
    """Return each LoRA's file: the target itself, or with the expert appended the way ai-toolkit expects.

    Raises ConfigError if a file exists or has the wrong suffix.
    """
    if settings.target:
        base = named_paths.resolve(settings.target, "target")
        if base.suffix != format.suffix:
            remedy = f"name it {base.stem}{format.suffix}"
            raise ConfigError(f"target is {base.name}, but files for {format.title} end in {format.suffix}: {remedy}")
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
    """Say which programs read the files, and which read them completely. Without a period at the end."""
    if format.lokr and all(one.weights.lokr for one in loras):
        return f"It stays a LoKr, read by {format.lokr}"
    outside = sorted({layer for one in loras for layer in one.weights.layers if "blocks." not in layer})
    limit = f". Layers outside the blocks ({shortened(outside, 3)}) are read by {format.outside} alone"
    return f"{format.read_by}{limit if outside and format.outside and len(format.readers) > 1 else ''}"


def _write(one: Opened, tensors: Mapping[str, Any], metadata: Mapping[str, str], target: Path) -> None:
    """Write a file as safetensors or, for other suffixes, with torch.save. Raises CannotWrite."""
    if target.suffix == ".safetensors":
        from safetensors.torch import save

        labels = {"base_model": one.base_model, "trigger_word": one.trigger, **one.training}
        test = self_test.kept(tensors, metadata, one.test) or self_test.noted(
            one.family, tensors, metadata, self_test_facts(one.model, one.base_model, one.weights.expert)
        )
        more = {name: label for name, label in labels.items() if label}
        write_bytes(target, with_metadata(save(dict(tensors)), {**metadata, **test, **more}))
    else:
        import torch

        with replacing(target) as temporary:
            torch.save({"module": tensors}, temporary)
