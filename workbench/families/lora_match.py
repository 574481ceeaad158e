"""How a LoRA file fits a model: how many of its layers do, which are left out and why, rank, alpha, who wrote it.

The same report is kept beside an imported LoRA, in the result of a conversion and in a sample's record. No torch.
Not covered: reading files (lora_names).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from workbench.errors import ConfigError
from workbench.families.lora_files import DOWN, UP, LoraWeights
from workbench.quantities import percent

FIT_LIMIT = 0.95  # of a file's layers must fit the model; the others are left out
NAMED = 5  # names that a sentence has of the layers that were left out for one reason
UNKNOWN = "a name of no trainer known here"
FORCE = "--force (in samples --force-loras)"
INPUT_LAYERS = ("patch_embedding", "patch_embed.proj", "proj_in")  # of Wan, CogVideoX, LTX-Video
Sizes = Mapping[str, tuple[int, int]]


def unknown_names(names: Sequence[str], readers: str) -> ConfigError:
    """The refusal of a file whose names nobody knows. readers: whose are known"""
    return ConfigError(f"the LoRA holds {names[0][:80]!r}, {UNKNOWN}: give a file of {readers}")


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


def unread(lora: LoraWeights) -> list[str]:
    """What a file calls layers by names that nobody knows."""
    return [name for name, why in lora.left_out.items() if why == UNKNOWN]


def check_fit(
    title: str, lora: LoraWeights, sizes: Sizes, model: str, force: bool = False, made_for: str = ""
) -> dict[str, str]:
    """The layers that a model lacks or has in another size, and why.

    Args:
        title, model: of the LoRA and of the model, for people
        sizes: layer -> (outputs, inputs)
        force: take what fits, as long as anything does
        made_for: the model that the LoRA's file names

    Raises:
        ConfigError: Fewer layers fit than FIT_LIMIT, or the LoRA's input layer is for more inputs.
    """
    wrong, strange = misfits(lora, sizes), unread(lora)
    total = len(lora.layers) + len(strange)
    matched = len(lora.layers) - len(wrong)
    if matched == 0 or (not force and total - matched > (1 - FIT_LIMIT) * total):
        first, why = next(iter(sorted(wrong.items())), (strange[0] if strange else "", UNKNOWN))
        remedy = f"it was made for {made_for[:80]}: choose that" if made_for else "choose the model it was made for"
        more = "" if matched == 0 else f", or take what fits with {FORCE}"
        sentence = (
            f"{title} does not fit {model}: {matched} of its {total} layers match, {FIT_LIMIT:.0%} are needed "
            f"(not {first[:80]}: {why}); {remedy}{more}"
        )
        raise ConfigError(sentence, {"model": sentence})
    if not force and (wide := _wider(lora, sizes)):
        layer, inputs = wide
        sentence = (
            f"{title} is for a model with more input: its {layer} takes {inputs} values, that of {model} "
            f"{sizes[layer][1]}, so this is a control or image-to-video LoRA, and without its input layer it has "
            f"nothing to follow; choose the model it was made for, or take the other layers with {FORCE}"
        )
        raise ConfigError(sentence, {"model": sentence})
    return wrong


def _wider(lora: LoraWeights, sizes: Sizes) -> tuple[str, int] | None:
    """(the input layer that needs more inputs than the model has, how many)."""
    inputs = {layer: lora.tensors[f"{layer}.{DOWN}"][0].numel() for layer in INPUT_LAYERS if layer in lora.layers}
    for layer, count in {**inputs, **lora.wide}.items():
        if layer in sizes and count > sizes[layer][1]:
            return layer, count
    return None


def match_report(lora: LoraWeights, sizes: Sizes | None = None) -> dict[str, Any]:
    """The report as plain data; without sizes, of what the file itself says.

    layers, matched: how many there are, and fit;  rank, alpha, alpha_from: in words;  written_by: the trainer
    left_out: [{"why", "count", "names"}], names being the first few
    converted: what it was before ("a LoKr"), and lost: what that loses of its change, relative; only of such
    nothing: why it changes nothing; only of such
    """
    wrong = misfits(lora, sizes) if sizes is not None else {}
    reasons: dict[str, list[str]] = {}
    for name, why in {**lora.left_out, **wrong}.items():
        reasons.setdefault(why, []).append(name)
    ranks = [lora.rank_of(layer) for layer in lora.layers]
    alphas = [lora.alpha_of(layer) for layer in lora.layers]
    found = {
        "layers": len(lora.layers) + len(unread(lora)),
        "matched": len(lora.layers) - len(wrong),
        "left_out": [{"why": why, "count": len(all_), "names": all_[:NAMED]} for why, all_ in reasons.items()],
        "rank": _span(ranks),
        "alpha": "not in the file: taken as the rank" if lora.alpha is None else _span(alphas),
        "alpha_from": "" if lora.alpha is None else lora.alpha_from,
        "written_by": lora.origin,
    }
    if lora.converted:
        found |= {"converted": lora.converted, "lost": lora.lost}
        found |= {"alpha": "multiplied into the matrices", "alpha_from": ""}
    return found | ({"nothing": lora.nothing} if lora.nothing else {})


def lines(report: Mapping[str, Any]) -> list[tuple[str, str]]:
    """(label, value) of a report for people; [] for an empty one."""
    if not report:
        return []
    found = [("LoRA", report["lora"])] if "lora" in report else []
    found.append(("layers matched", f"{report['matched']} of {report['layers']}"))
    found += [("left out", left_out(reason)) for reason in report["left_out"]]
    if report.get("nothing"):
        found.append(("changes", f"nothing: {report['nothing']}"))
    if report.get("converted"):
        found.append(("converted", f"from {report['converted']}{loss(report['lost'])}"))
    alpha = f"{report['alpha']} ({report['alpha_from']})" if report.get("alpha_from") else report["alpha"]
    return [*found, ("rank", report["rank"]), ("alpha", alpha), ("written by", report["written_by"])]


def loss(share: float) -> str:
    """What a conversion loses of a LoRA's change, to end a sentence with."""
    return ", exactly" if (words := percent(share)) == "nothing" else f", {words} of the change is lost"


def left_out(reason: Mapping[str, Any]) -> str:
    """What a report says of the layers that were left out for one reason."""
    more = reason["count"] - len(reason["names"])
    names = ", ".join(reason["names"]) + (f" and {more:,} more" if more > 0 else "")
    return f"{names}: {reason['why']}"


def _span(numbers: Sequence[float]) -> str:
    low, high = min(numbers), max(numbers)
    return f"{low:g}" if low == high else f"{low:g} to {high:g}"
