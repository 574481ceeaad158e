"""The shelf as cards: a component that searches, filters and sorts in the browser, and tells which were chosen.

The browser's half is assets/shelf.js. Not covered: what is done with the chosen ones (tab).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import gradio as gr

from workbench.loras.library import ShelfLora
from workbench.ui.core import render

EMPTY = (
    "No LoRA yet. A run that has finished puts its own here; bring another one with the field below: a file of any "
    "trainer, or one of the Hub."
)
MOST = 500  # cards at once; the search finds among all


class LoraCards:
    """Builds the component. Its event `chosen` carries {"names": [...]}: which cards are selected now."""

    def __init__(self) -> None:
        self.component = gr.HTML(
            value=data([], []),
            html_template="",
            css_template=render.style("shelf"),
            js_on_load=render.script("shelf"),
            apply_default_css=False,
            elem_id="shelf",
        )


def data(loras: Sequence[ShelfLora], chosen: Sequence[str]) -> dict[str, Any]:
    """What the component shows: a card a LoRA, checkpoints under their run; everything as text."""
    return {"loras": [card(lora) for lora in loras], "chosen": list(chosen), "empty": EMPTY, "most": MOST}


def card(lora: ShelfLora) -> dict[str, Any]:
    """One LoRA as its card shows it."""
    facts = [f"rank {strength(lora)}", "" if lora.steps is None else f"{lora.steps:,} steps", size(lora.bytes)]
    return {
        "name": lora.name,
        "title": lora.title,
        "run": lora.run.name if lora.run is not None and lora.step is not None else "",
        "base": lora.base_model or "unknown",
        "trigger": lora.trigger,
        "facts": [fact for fact in facts if fact],
        "origin": lora.origin if lora.run is None else "",
        "flags": sorted(lora.flags),
        "sound": lora.sound,
        "video": render.url(lora.previews[0]) if lora.previews else "",
        "created": lora.created,
        "rank": lora.rank,
        "steps": lora.steps or 0,
        "bytes": lora.bytes,
    }


def strength(lora: ShelfLora) -> str:
    """Rank, and alpha where it is another: "16", "16, alpha 8", "up to 7"."""
    alpha = "" if lora.alpha is None or lora.alpha == lora.rank or lora.mixed else f", alpha {lora.alpha:g}"
    return f"{'up to ' if lora.mixed else ''}{lora.rank}{alpha}{', DoRA' if lora.dora else ''}"


def size(count: float) -> str:
    """A file's size in words."""
    return f"{count / 1e6:.1f} MB" if count >= 1e5 else f"{count / 1e3:.1f} kB"


def detail(lora: ShelfLora, made_of: Sequence[dict[str, Any]]) -> str:
    """All that is known of one LoRA, as HTML."""
    pairs = [
        ("base model", lora.base_model or "unknown"),
        ("trigger word", lora.trigger or "none"),
        ("rank", strength(lora)),
        ("steps", "unknown" if lora.steps is None else f"{lora.steps:,}"),
        ("file", size(lora.bytes)),
        ("made", time.strftime("%Y-%m-%d %H:%M", time.localtime(lora.created))),
    ]
    badges = "".join(render.badge(flag, "good") for flag in sorted(lora.flags))
    videos = "".join(render.video(path, 0, f"{lora.title}, a preview", "small") for path in lora.previews[:6])
    sources = [
        [f"{source.get('weight', 1):g}", str(source.get("name", "")), str(source.get("sha256", ""))[:16]]
        for source in made_of
    ]
    link = str(lora.published.get("url", ""))
    return "".join(
        (
            f'<div class="title"><h2>{render.escaped(lora.title)}</h2>{badges}</div>',
            render.note(lora.sound, "bad") if lora.sound else "",
            f'<p class="doing">{render.escaped(lora.origin)} · <code>{render.escaped(lora.name)}</code></p>',
            render.facts(pairs),
            f'<p class="doing">on the Hub: <a href="{render.escaped(link)}">{render.escaped(link)}</a></p>'
            if link.startswith(("https://", "http://"))
            else "",
            f'<div class="shelf-previews">{videos}</div>' if videos else "",
            render.table(["strength", "made of", "sha256"], sources) if sources else "",
            f"<p>{render.download(lora.path, f'{lora.path.parent.name}.safetensors')}</p>" if not lora.sound else "",
        )
    )
