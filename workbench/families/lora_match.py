"""How a LoRA file fits a model: how many of its layers do, which are left out and why, rank, alpha, who wrote it.

The same report is kept beside an imported LoRA, in the result of a conversion and in a sample's record. No torch.
Not covered: reading files (lora_names), refusing what does not fit (loras.importing, sampler.loras).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from workbench.families.lora_files import DOWN, UP, LoraWeights

NAMED = 5  # names that a sentence has of the layers that were left out for one reason
Sizes = Mapping[str, tuple[int, int]]


def misfits(lora: LoraWeights, sizes: Sizes) -> dict[str, str]:
    """The layers of a LoRA that a model lacks or has in another size, and why. sizes: layer -> (outputs, inputs)"""
    found = {}
    for layer in lora.layers:
        own = (int(lora.tensors[f"{layer}.{UP}"].shape[0]), lora.tensors[f"{layer}.{DOWN}"][0].numel())
        if layer not in sizes:
            found[layer] = "a layer that the model lacks"
        elif sizes[layer] != own:
            found[layer] = f"{own[1]} to {own[0]} values, the model's layer {sizes[layer][1]} to {sizes[layer][0]}"
    return found


def match_report(lora: LoraWeights, sizes: Sizes | None = None) -> dict[str, Any]:
    """The report as plain data; without sizes, of what the file itself says.

    layers, matched: how many there are, and fit;  rank, alpha: in words;  written_by: the trainer
    left_out: [{"why", "count", "names"}], names being the first few
    """
    left_out = {**lora.left_out, **(misfits(lora, sizes) if sizes is not None else {})}
    reasons: dict[str, list[str]] = {}
    for name, why in left_out.items():
        reasons.setdefault(why, []).append(name)
    layers = set(lora.layers) | set(lora.left_out)
    ranks = [lora.rank_of(layer) for layer in lora.layers]
    alphas = [lora.alpha_of(layer) for layer in lora.layers]
    return {
        "layers": len(layers),
        "matched": len(layers) - len(left_out),
        "left_out": [{"why": why, "count": len(all_), "names": all_[:NAMED]} for why, all_ in reasons.items()],
        "rank": _span(ranks),
        "alpha": "not in the file: taken as the rank" if lora.alpha is None else _span(alphas),
        "written_by": lora.origin,
    }


def lines(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(label, value) of a report for people; [] for an empty one."""
    if not report:
        return []
    found = [("LoRA", report["lora"])] if "lora" in report else []
    found.append(("layers matched", f"{report['matched']} of {report['layers']}"))
    for reason in report["left_out"]:
        found.append(("left out", left_out(reason)))
    return [*found, ("rank", report["rank"]), ("alpha", report["alpha"]), ("written by", report["written_by"])]


def left_out(reason: Mapping[str, Any]) -> str:
    """What a report says of the layers that were left out for one reason."""
    more = reason["count"] - len(reason["names"])
    names = ", ".join(reason["names"]) + (f" and {more:,} more" if more > 0 else "")
    return f"{names}: {reason['why']}"


def _span(numbers: Sequence[float]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"
