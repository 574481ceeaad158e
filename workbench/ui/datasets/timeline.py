"""One source video on a filmstrip: in and out points, marks for cuts, and a crop marked on the picture.

The component's events carry {"clip": name} and

    span   start_frame, end_frame   the part was changed; end_frame is the one after its last
    cuts   cuts                     the marks that stand, as frames
    crop   crop                     [left, top, width, height], even numbers, or None

Each comes when the mouse is released or a moment after the last key, never while something is dragged. All numbers are
frames and pixels of the source video. The browser's half is assets/timeline.js.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gradio as gr

from workbench.dataset_builder.cuts.cutting import Cut, Master
from workbench.dataset_builder.cuts.scenes import Filmstrip
from workbench.ui.core import render
from workbench.ui.core.widgets import component

NOTHING: dict[str, Any] = {"clip": ""}  # hides it


def build() -> gr.HTML:
    """The component."""
    return component("timeline", NOTHING, render.script("timeline"))


def value(
    clip: str,
    master: Master,
    strip: Filmstrip,
    cut: Cut,
    cuts: Sequence[int] = (),
    taken: Sequence[tuple[int, int]] = (),
) -> dict[str, Any]:
    """The component's value. The same clip again keeps playhead and zoom.

    clip: names it in every event;  cut: the part and the crop;  cuts: first frame of each scene but the first
    taken: parts that are clips already, as (first frame, frame after the last)
    """
    frames = max(1, master.frames)
    start = min(max(cut.start, 0), frames - 1)
    return {
        "clip": clip,
        "video": render.url(master.path),
        "frames": frames,
        "fps": master.fps or 1.0,
        "width": master.width,
        "height": master.height,
        "pixelated": master.width <= render.PIXEL_ART,
        "start_frame": start,
        "end_frame": min(max(cut.end, start + 1), frames),
        "strip": render.url(strip.path),
        "times": list(strip.times),
        "cuts": sorted({frame for frame in cuts if 0 < frame < frames}),
        "taken": [list(part) for part in taken],
        "crop": list(cut.crop) if cut.crop else None,
    }
