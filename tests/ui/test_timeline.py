"""What the timeline is given: plain data, always inside the source video."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from workbench.dataset_builder.cuts.cutting import Cut, Master
from workbench.dataset_builder.cuts.scenes import Filmstrip
from workbench.ui.datasets import timeline

MASTER = Master("x", Path("/w/datasets/x/.masters/a b.mp4"), "", frames=100, fps=25, width=640, height=360)
STRIP = Filmstrip(Path("/w/cache/strips/a.jpg"), (0.0, 2.0), 64)


def value(cut: Cut, **more: Any) -> dict[str, Any]:
    return timeline.value("clips/a.mp4", MASTER, STRIP, cut, **more)


def test_the_whole_source_video_is_the_part_of_a_whole_clip() -> None:
    shown = value(MASTER.whole)
    assert (shown["start_frame"], shown["end_frame"], shown["crop"]) == (0, 100, None)
    assert shown["video"].endswith("/a%20b.mp4")
    json.dumps(shown)


def test_what_lies_outside_the_source_video_is_brought_inside() -> None:
    shown = value(Cut(90, 400), cuts=(0, 50, 50, 10, 100, -3))
    assert (shown["start_frame"], shown["end_frame"], shown["cuts"]) == (90, 100, [10, 50])
    shown = value(Cut(300, 200))
    assert (shown["start_frame"], shown["end_frame"]) == (99, 100)


def test_a_value_without_a_clip_hides_it() -> None:
    assert timeline.NOTHING == {"clip": ""}
