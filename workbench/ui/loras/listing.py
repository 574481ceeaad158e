"""LoRAs as the page shows them: the cards of the library, one in detail, several as a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from workbench.display.quantities import byte_size
from workbench.loras import view
from workbench.loras.library import LibraryLora
from workbench.loras.removal import PlannedRemoval
from workbench.ui.core import render

EMPTY = "Every LoRA of this workspace is a card here: finished runs add theirs, and others can be imported below."
NOTHING = "Choose a LoRA above for its facts and actions; choose several to merge them."
MOST = 500  # cards at once; the search finds among all


def data(loras: Sequence[LibraryLora], chosen: Sequence[str]) -> dict[str, Any]:
    """The component's value: a card a LoRA, checkpoints under their run; everything as text."""
    return {"loras": [lora_data(lora) for lora in loras], "chosen": list(chosen), "most": MOST}


def lora_data(lora: LibraryLora) -> dict[str, Any]:
    """The data of one LoRA's card."""
    steps = [] if lora.steps is None else [f"{lora.steps:,} steps"]
    return {
        "name": lora.name,
        "title": lora.title,
        "run": lora.run.name if lora.run is not None and lora.step is not None else "",
        "base": lora.base_model or "unknown",
        "trigger": lora.trigger,
        "facts": [f"rank {view.strength(lora)}", *steps, byte_size(lora.bytes)],
        "origin": lora.origin if lora.run is None else "",
        "flags": sorted(lora.flags),
        "sound": lora.sound,
        "video": render.url(lora.previews[0]) if lora.previews else "",
        "created": lora.created,
        "rank": lora.rank,
        "steps": lora.steps or 0,
        "bytes": lora.bytes,
    }


def detail(lora: LibraryLora) -> str:
    """Everything known of one LoRA, as HTML."""
    badges = "".join(render.badge(flag, "good") for flag in sorted(lora.flags))
    videos = "".join(render.video(path, 0, f"{lora.title}, a preview", "small") for path in lora.previews[:6])
    sources, link = view.sources(lora), render.escaped(view.link(lora))
    parts = [
        f'<div class="title"><h2>{render.escaped(lora.title)}</h2>{badges}</div>',
        render.note(lora.sound, "bad") if lora.sound else "",
        f'<p class="doing">{render.escaped(lora.origin)} · <code>{render.escaped(lora.name)}</code></p>',
        render.facts(view.facts(lora)),
        render.facts(matches) if (matches := view.match(lora)) else "",
        f'<p class="doing">on the Hub: <a href="{link}">{link}</a></p>' if link else "",
        f'<div class="lora-previews">{videos}</div>' if videos else "",
        render.table(["strength", "made of", "sha256"], sources) if sources else "",
        "" if lora.sound else f"<p>{render.download(lora.path, f'{lora.path.parent.name}.safetensors')}</p>",
    ]
    return "".join(parts)


def description(loras: Sequence[LibraryLora], any_there: bool = True) -> str:
    """One LoRA in detail, several as a table. any_there: whether there is one to choose"""
    if not any_there:
        return render.empty_state(EMPTY, "Train a LoRA", "#tab-train-button")
    if not loras:
        return render.note(NOTHING, "empty")
    if len(loras) == 1:
        return detail(loras[0])
    models = {lora.base_model for lora in loras}
    warning = render.note("These are for different models and cannot be merged.", "bad") if len(models) > 1 else ""
    rows = [[lora.title, lora.name, lora.base_model, view.strength(lora), byte_size(lora.bytes)] for lora in loras]
    return warning + render.table(["LoRA", "name", "base model", "rank", "size"], rows)


def planned(removals: Sequence[PlannedRemoval]) -> str:
    """The LoRAs that would be removed, as a table."""
    note = f"{len(removals)} would be removed, {view.total_size(removals)}. They can be restored until deleted below."
    rows = [[one.lora.title, one.lora.name, byte_size(one.bytes)] for one in removals]
    return render.note(note, "bad") + render.table(["LoRA", "name", "size"], rows)
