"""A finished sample as HTML: the video, what made it, how well each LoRA fitted, and what can be done with it.

Not covered: doing it (sample_tab).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from workbench.errors import ConfigError
from workbench.families import find_model
from workbench.jobs import duration
from workbench.sampler.loras import split_scale
from workbench.sampler.samples import Sample
from workbench.ui.core import render

CHECKPOINT = re.compile(r"([^/]+)/checkpoints/step-0*(\d+)/lora\.safetensors$")
# Lets buttons drawn as HTML speak: {do, id} of the one that was pressed.
BUTTONS = """
element.addEventListener('click', (event) => {
  const button = event.target.closest('[data-do]');
  if (button) trigger('asked', { do: button.dataset.do, id: button.dataset.id ?? '' });
});
"""


def empty() -> str:
    return render.note(
        "No video yet. Say what it shall show, choose a LoRA of yours if there is one, and press Generate.", "empty"
    )


def shown(sample: Sample, short: str = "") -> str:
    """The sample, large. short: what its prompt was written from by a language model; "" for a person's own."""
    settings = sample.settings
    written = f'<p class="hint">Written by a language model from: {render.escaped(short)}</p>' if short else ""
    prompt = f'<p class="prompt">{render.escaped(settings.prompt or "(no prompt)")}</p>{written}'
    return (
        f'<figure class="result">{render.video(sample.path, width_of(sample), settings.prompt)}<figcaption>'
        f"{prompt}{render.facts(facts(sample))}{report(sample.record)}{_actions(sample)}</figcaption></figure>"
    )


def facts(sample: Sample) -> list[tuple[str, str]]:
    """Settings that matter, as they were in the end."""
    settings, record = sample.settings, sample.record
    seconds, fps = record.get("seconds"), float(record.get("fps") or 0)
    frames = int(record.get("frames") or settings.frames or 0)
    length = f"{frames} frames" + (f", {frames / fps:.1f} s" if fps else "")
    pairs = [
        ("model", str(record.get("model") or settings.model)),
        ("seed", str(record.get("seed", settings.seed))),
        ("steps", str(record.get("steps", settings.steps or "the model's own"))),
        ("guidance", str(record.get("guidance_scale", settings.guidance_scale or "the model's own"))),
        ("length", length),
        ("speed", settings.speed),
    ]
    pairs += [("drawn by", f"run {record['run']}, step {record['step']}, while it trained")] if "run" in record else []
    pairs += [("begins with", "a picture")] if settings.image else []
    pairs += [("changes", f"a video, strength {settings.strength:g}")] if settings.video else []
    pairs += [("goes on from", "a video")] if settings.continue_from else []
    return [*pairs, *([("took", duration(seconds))] if isinstance(seconds, int | float) else [])]


def report(record: Mapping[str, Any]) -> str:
    """How well each LoRA fitted the model; "" without LoRAs."""
    rows = []
    for lora in record.get("loras") or []:
        matched, tensors = lora.get("matched"), lora.get("tensors")
        fits = f"{matched} of {tensors} tensors" if matched is not None and tensors else ""
        partly = ' class="bad"' if fits and matched != tensors else ""
        made_for = " · ".join(str(lora[key]) for key in ("base_model", "origin") if lora.get(key))
        rows.append(
            f"<tr><td>{render.escaped(short_name(str(lora.get('name', '?'))))}</td>"
            f"<td>{_number(lora.get('scale'))}</td><td{partly}>{render.escaped(fits) or '–'}</td>"
            f"<td>{_number(lora.get('rank'))}</td><td>{_number(lora.get('alpha'))}</td>"
            f"<td>{render.escaped(made_for) or '–'}</td></tr>"
        )
    if not rows:
        return '<p class="hint">No LoRA: the base model drew this.</p>'
    head = "".join(f"<th>{name}</th>" for name in ("LoRA", "scale", "fits", "rank", "alpha", "made for"))
    return (
        f'<div class="scroll"><table class="plain loras"><thead><tr>{head}</tr></thead>'
        f"<tbody>{''.join(rows)}</tbody></table></div>"
    )


def _number(value: Any) -> str:
    return f"{value:g}" if isinstance(value, int | float) else "–"


def _actions(sample: Sample) -> str:
    """What can be done with it, as buttons."""
    changes = task_of(sample.settings.model) == "text-to-video"
    offered = [
        ("settings", "Use these settings", "restore-sample"),
        ("seed", "Keep this seed", ""),
        *([("change", "Change this video", "")] if changes else []),
        ("continue", "Continue it", ""),
        ("grid", "Put it in a grid", ""),
        ("remove", "Take out of the history", ""),
    ]
    buttons = "".join(
        f'<button type="button" data-do="{do}" data-id="{sample.id}"{f" id={name!r}" if name else ""}>{words}</button>'
        for do, words, name in offered
    )
    url, name = render.escaped(render.url(sample.path)), sample.path.name
    link = f'<a class="download" href="{url}" download="{name}">Download</a>'
    return f'<div class="actions">{buttons}{link}</div>'


def task_of(model: str) -> str:
    """What a model draws from; "" for one that is gone."""
    try:
        return find_model(model)[1].task
    except ConfigError:
        return ""


def width_of(sample: Sample) -> int:
    """The video's width, pixels; of one that is not known, so much that it is not enlarged with sharp edges."""
    width = sample.record.get("width") or sample.settings.width
    if width:
        return int(width)
    try:
        return find_model(sample.settings.model)[1].width
    except ConfigError:
        return render.PIXEL_ART + 1


def short_name(lora: str) -> str:
    """A LoRA of a setting as people call it, with its scale where that is not 1."""
    try:
        name, scale = split_scale(lora)
    except ConfigError:
        return lora
    if checkpoint := CHECKPOINT.search(name):
        name = f"{checkpoint[1]}@{checkpoint[2]}"
    elif name.endswith(".safetensors"):
        path = Path(name)
        name = path.parent.name if path.name == "lora.safetensors" else path.stem
    name = name.removeprefix("runs/").removeprefix("loras/")
    return name if scale == 1 else f"{name} at {scale:g}"
