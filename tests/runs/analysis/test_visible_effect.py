"""What a run shows: the change of its previews beside that of the controls."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.drawing import MakeClip
from tests.written_run import add_preview, write_run
from workbench.runs.analysis.visible_effect import VisibleEffect, from_line, measure
from workbench.workspace import Workspace


@pytest.mark.parametrize(
    ("own", "control", "visible", "spoiled"),
    [
        ((7.6,), (5.5,), False, False),  # measured where no sample shows the concept
        ((8.85, 5.27, 7.44), (5.49, 10.49, 6.49), False, False),  # so, too
        ((13.6,), (5.3,), True, False),  # where 42 % do
        ((34.0,), (8.0,), True, False),  # where 67 % do
        ((4.0,), (0.5,), False, False),  # far from the controls, but nobody sees it
        ((4.0,), (), False, False),
        ((8.0,), (), True, False),
        ((45.0,), (30.0,), True, True),
        ((90.0,), (30.0,), True, False),
        ((30.0,), (20.0,), True, False),  # another video, while the controls are the same scene still
    ],
)
def test_the_rule_agrees_with_what_samples_showed(
    own: tuple[float, ...], control: tuple[float, ...], visible: bool, spoiled: bool
) -> None:
    found = VisibleEffect(own, control)
    assert (found.visible, found.spoiled) == (visible, spoiled)


def test_a_line_of_the_metrics_holds_each_prompt_and_the_middle() -> None:
    line = VisibleEffect((12.0, None, 30.0), (4.0, 8.0)).line()
    assert line == {
        "preview_changes": [12.0, None, 30.0],
        "control_changes": [4.0, 8.0],
        "visible_effects": [2.0, None, 5.0],
        "visible_effect": 3.5,
    }
    again = from_line(line)
    assert again is not None
    assert again.words == "21.0 levels of 255, 3.5 times the controls' 6.0"
    assert VisibleEffect((12.0,)).line() == {"preview_changes": [12.0]}
    assert from_line({"preview_changes": [None]}) is from_line({}) is None


def test_controls_that_stand_still_are_no_reason_to_divide_by_nothing() -> None:
    assert VisibleEffect((12.0,), (0.0,)).effect == 12.0


def test_videos_are_compared_with_those_of_step_0_of_the_same_prompt(
    workspace: Workspace, make_clip: MakeClip, tmp_path: Path
) -> None:
    run = write_run(workspace, "cats")
    one, other = make_clip(tmp_path / "0.mp4"), make_clip(tmp_path / "1.mp4", color="blue")
    add_preview(run, 0, one, "a cat")
    add_preview(run, 0, one, "a dog", "control-0")
    assert measure(run.folder, 200) is None, "there is nothing to compare yet"
    add_preview(run, 200, other, "a cat")
    add_preview(run, 200, other, "on request", "1")
    add_preview(run, 200, one, "a dog", "control-0")
    add_preview(run, 200, other, "the settings have another prompt now", "control-1")
    line = measure(run.folder, 200)
    assert line is not None
    assert line["preview_changes"][0] > 1
    assert line["preview_changes"][1] is None
    assert line["control_changes"] == [0.0, None]
    assert line["visible_effect"] == pytest.approx(line["preview_changes"][0], abs=0.001)
