"""Adding a LoRA of another trainer to the library: read, checked against its model, written in diffusers' layout.

What of it matched is kept beside it (families.lora_names). A file with a LoRA for each of two experts becomes two,
and so do two files that are a pair.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from workbench.errors import ConfigError
from workbench.families import families, find_model, models
from workbench.families.base import ResolvedModel
from workbench.families.lora_files import NUMBERS, experts_of, without_layers
from workbench.families.lora_names import check_fit, loss, match_report, misfits, unread
from workbench.loras.making import OperationResult, Provenance, Step, add_to_library
from workbench.loras.opened import Opened, Report, opened_parts, sizes_of
from workbench.loras.settings import LoraImportSettings
from workbench.workspace import Workspace


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
