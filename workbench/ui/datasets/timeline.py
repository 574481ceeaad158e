"""One source video on a filmstrip: in and out points, marks for cuts, and a crop marked on the picture.

The browser's half is assets/timeline.js. Everything counts in frames and pixels of the recording. Not covered: what the
host makes of a part (datasets), how the filmstrip and the cuts come about (dataset_builder).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gradio as gr

from workbench.ui.core import render

NOTHING: dict[str, Any] = {"clip": ""}


@dataclass(frozen=True)
class TimelineClip:
    """What the timeline shows.

    clip:    names it in every event;  video: the file to play
    frames, fps, width, height: of that file
    part:    first frame of the part, and the one after its last; None for the whole
    strip:   a picture of frames side by side, all of one size;  times: when each is shown, seconds
    cuts:    first frame of each scene but the first;  taken: parts that are clips already, as `part`
    crop:    left, top, width, height, pixels; None for the whole picture
    shape:   width and height whose proportions the crop should have; None when it is free
    """

    clip: str
    video: Path
    frames: int
    fps: float
    width: int
    height: int
    part: tuple[int, int] | None = None
    strip: Path | None = None
    times: Sequence[float] = ()
    cuts: Sequence[int] = ()
    taken: Sequence[tuple[int, int]] = ()
    crop: tuple[int, int, int, int] | None = None
    shape: tuple[int, int] | None = None


class Timeline:
    """Builds the component. Its value is a reel (`value`); its events carry {"clip": ...} and

    span   start_frame, end_frame   the part was changed; end_frame is the one after its last
    cuts   cuts                     the marks that stand, as frames
    crop   crop                     [left, top, width, height], even numbers, or None

    Each comes when the mouse is released or a moment after the last key, never while something is dragged.
    """

    def __init__(self, elem_id: str = "timeline") -> None:
        self.component = gr.HTML(
            value=NOTHING,
            html_template="",
            css_template=render.style("components"),
            js_on_load=render.script("timeline"),
            apply_default_css=False,
            elem_id=elem_id,
        )

    @staticmethod
    def value(reel: TimelineClip | None) -> dict[str, Any]:
        """The component's value; None hides it. The same clip again keeps playhead and zoom."""
        if reel is None:
            return NOTHING
        start, end = reel.part or (0, reel.frames)
        last = max(1, reel.frames)
        start = min(max(start, 0), last - 1)
        return {
            "clip": reel.clip,
            "video": render.url(reel.video),
            "frames": last,
            "fps": reel.fps or 1.0,
            "width": reel.width,
            "height": reel.height,
            "pixelated": reel.width <= render.PIXEL_ART,
            "start_frame": start,
            "end_frame": min(max(end, start + 1), last),
            "strip": render.url(reel.strip) if reel.strip else "",
            "times": list(reel.times),
            "cuts": sorted({cut for cut in reel.cuts if 0 < cut < last}),
            "taken": [list(part) for part in reel.taken],
            "crop": list(reel.crop) if reel.crop else None,
            "shape": list(reel.shape) if reel.shape else None,
        }
