"""What the timeline is given: plain data, always inside the source video."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from workbench.ui.datasets.timeline import Timeline, TimelineClip

REEL = TimelineClip("clips/a.mp4", Path("/w/datasets/x/.masters/a b.mp4"), frames=100, fps=25, width=640, height=360)


def test_the_whole_recording_is_the_part_unless_one_is_given() -> None:
    value = Timeline.value(REEL)
    assert (value["start_frame"], value["end_frame"], value["crop"]) == (0, 100, None)
    assert value["video"].endswith("/a%20b.mp4")
    json.dumps(value)


def test_what_lies_outside_the_recording_is_brought_inside() -> None:
    value = Timeline.value(replace(REEL, part=(90, 400), cuts=(0, 50, 50, 10, 100, -3)))
    assert (value["start_frame"], value["end_frame"], value["cuts"]) == (90, 100, [10, 50])
    value = Timeline.value(replace(REEL, part=(300, 200)))
    assert (value["start_frame"], value["end_frame"]) == (99, 100)


def test_none_hides_it() -> None:
    assert Timeline.value(None) == {"clip": ""}
