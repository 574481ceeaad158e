"""Merging LoRAs into one, and resizing a LoRA to another rank.

Ranks, alphas and layers may differ. Without a rank a merge is exact: matrices are concatenated, so ranks add up.
Not covered: full fine-tunes (extracting), models with LoRAs fused (fusing).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

from workbench.display.quantities import percent
from workbench.errors import ConfigError
from workbench.families.lora_files import DOWN, LoraWeights
from workbench.families.low_rank import RankLimit, low_rank_of_matrix, low_rank_of_product
from workbench.loras.changes import ModelWeights, WeightChange, base_for, bias_change, change
from workbench.loras.making import (
    OperationResult,
    Provenance,
    Step,
    add_to_library,
    lora_of_layers,
    pair_of,
    title_from,
)
from workbench.loras.opened import Opened, Report, common_expert, common_model, opened
from workbench.loras.settings import MergeSettings, ResizeSettings
from workbench.workspace import Workspace


def merge(workspace: Workspace, settings: MergeSettings, report: Report, step: Step) -> OperationResult:
    """Add LoRAs up with their weights. Raises ConfigError, ModelUnavailable, CannotWrite."""
    loras = opened(workspace, settings.loras, report)
    model = common_model(loras)
    lora, error = summed(loras, RankLimit(rank=settings.rank), base_for(loras, model, report), step)
    parts = " + ".join(f"{one.scale:g} x {one.title}" for one in loras)
    loss = "exact" if error is None else f"{percent(error)} of the change is lost"
    provenance = Provenance(
        title=title_from(settings.name, loras, "-merged" if len(loras) == 1 else ""),
        how="merged",
        summary=f"merged from {parts}; rank {lora.rank}, {loss}",
        model=loras[0].model,
        base_model=next((one.base_model for one in loras if one.base_model), ""),
        made_of=[one.record() for one in loras],
        trigger=", ".join(dict.fromkeys(one.trigger for one in loras if one.trigger)),
        error=error,
    )
    return add_to_library(workspace, loras[0].family, lora, provenance)


def resize(workspace: Workspace, settings: ResizeSettings, report: Report, step: Step) -> OperationResult:
    """Resize a LoRA to a rank, or to what a share of its energy needs. Raises ConfigError, CannotWrite."""
    if settings.rank is None and settings.share is None:
        raise ConfigError("rank and share are both empty: give the new rank, or the share of the change to keep")
    (one,) = loras = opened(workspace, [settings.lora], report)
    if settings.rank is not None and settings.rank >= one.weights.rank and not one.weights.dora:
        raise ConfigError(
            f"rank is {settings.rank}, {one.title} has rank {one.weights.rank} already: use less",
            {"rank": f"use less than {one.weights.rank}"},
        )
    cut = RankLimit(settings.rank, settings.share)
    lora, error = summed(loras, cut, base_for(loras, one.model, report), step)
    least = min(lora.rank_of(layer) for layer in lora.layers)
    ranks = f"rank {lora.rank}" if least == lora.rank else f"ranks {least} to {lora.rank}"
    provenance = Provenance(
        title=title_from(settings.name, loras, f"-rank{lora.rank}"),
        how="resized",
        summary=f"{one.title} resized from rank {one.weights.rank} to {ranks}; "
        f"{percent(error or 0.0)} of the change is lost",
        model=one.model,
        base_model=one.base_model,
        made_of=[one.record()],
        trigger=one.trigger,
        steps=one.steps,
        error=error or 0.0,
    )
    return add_to_library(workspace, one.family, lora, provenance)


def summed(
    loras: Sequence[Opened], cut: RankLimit, base: ModelWeights | None, step: Step
) -> tuple[LoraWeights, float | None]:
    """(the sum of LoRAs at their scales, what is lost of it) within a cut; None is lost where nothing was cut.

    Raises ConfigError where two change one layer of different sizes, or a DoRA is to be added without a rank.
    """
    import torch

    if cut == RankLimit() and any(lora.weights.dora for lora in loras):
        raise ConfigError(
            "one of these is a DoRA, whose change has every rank, so no sum of ranks holds it: give a rank",
            {"rank": "give a rank"},
        )
    layers = sorted({layer for lora in loras for layer in lora.weights.layers})
    found, lost, total = [], 0.0, 0.0
    for done, layer in enumerate(layers):
        step(done, len(layers))
        on_it = [lora for lora in loras if f"{layer}.{DOWN}" in lora.weights.tensors]
        changes = [change(lora.weights, layer, lora.scale, base) for lora in on_it]
        up, down, missing, all_of_it = _added(changes, layer, cut)
        lost, total = lost + missing, total + all_of_it
        given = on_it[0].weights.tensors[f"{layer}.{DOWN}"]
        # The format that loses nothing of any of them.
        widest = reduce(torch.promote_types, (lora.weights.tensors[f"{layer}.{DOWN}"].dtype for lora in on_it))
        up, down = pair_of(up, down, (up.shape[0], *given.shape[1:]), widest)
        biases = [one for lora in on_it if (one := bias_change(lora.weights, layer, lora.scale)) is not None]
        found.append((layer, up, down, sum(biases[1:], biases[0]).to(up.dtype) if biases else None))
    step(len(layers), len(layers))
    merged = replace(lora_of_layers(found, "a merge"), expert=common_expert(loras))
    return merged, None if cut == RankLimit() else math.sqrt(lost / total) if total else 0.0


def _added(changes: Sequence[WeightChange], layer: str, cut: RankLimit) -> tuple[Any, Any, float, float]:
    """(up, down, lost, total) of a layer's changes together."""
    import torch

    sizes = {one.shape for one in changes}
    if len(sizes) > 1:
        raise ConfigError(
            f"these LoRAs have {layer} in different sizes: they are for different models, choose some of one"
        )
    if all(one.whole is None for one in changes):
        up = torch.cat([one.up for one in changes if one.up is not None], dim=1)
        down = torch.cat([one.down for one in changes if one.down is not None])
        if cut == RankLimit():
            return up, down, 0.0, 0.0
        pair = low_rank_of_product(up, down, cut)
    else:
        pair = low_rank_of_matrix(sum((one.matrix() for one in changes[1:]), changes[0].matrix()), cut)
    return pair.up, pair.down, pair.lost, pair.total
