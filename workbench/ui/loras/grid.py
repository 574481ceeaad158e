"""The LoRA library as cards: a component that searches, filters and sorts in the browser, and reports the selection.

The browser's half is assets/lora_library.js. Not covered: what can be done with the chosen LoRAs (chosen).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gradio as gr

from workbench.loras import view
from workbench.loras.library import LibraryLora
from workbench.ui.core import render

EMPTY = "No LoRA yet. A finished run adds its own here; import another one below: a file of any trainer, or of the Hub."
MOST = 500  # cards at once; the search finds among all


class LoraGrid:
    """Builds the component. Its event `chosen` carries {"names": [...]}: which cards are selected now."""

    def __init__(self) -> None:
        self.component = gr.HTML(
            value=data([], []),
            html_template="",
            css_template=render.style("lora_library"),
            js_on_load=render.script("lora_library"),
            apply_default_css=False,
            elem_id="lora-library",
        )


def data(loras: Sequence[LibraryLora], chosen: Sequence[str]) -> dict[str, Any]:
    """The component's value: a card a LoRA, checkpoints under their run; everything as text."""
    return {"loras": [lora_data(lora) for lora in loras], "chosen": list(chosen), "empty": EMPTY, "most": MOST}


def lora_data(lora: LibraryLora) -> dict[str, Any]:
    """The data of one LoRA's card."""
    steps = [] if lora.steps is None else [f"{lora.steps:,} steps"]
    return {
        "name": lora.name,
        "title": lora.title,
        "run": lora.run.name if lora.run is not None and lora.step is not None else "",
        "base": lora.base_model or "unknown",
        "trigger": lora.trigger,
        "facts": [f"rank {view.strength(lora)}", *steps, view.size(lora.bytes)],
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
        f'<p class="doing">on the Hub: <a href="{link}">{link}</a></p>' if link else "",
        f'<div class="lora-previews">{videos}</div>' if videos else "",
        render.table(["strength", "made of", "sha256"], sources) if sources else "",
        "" if lora.sound else f"<p>{render.download(lora.path, f'{lora.path.parent.name}.safetensors')}</p>",
    ]
    return "".join(parts)
