"""What is said of still pictures before a run starts, and in the dataset check."""

from __future__ import annotations

import pytest

from workbench.clips.frame_plan import shape_for
from workbench.clips.records import Clip, read_clips, write_clips
from workbench.dataset_builder import Dataset
from workbench.dataset_builder.checks.dataset_check import check_plans
from workbench.dataset_builder.checks.findings import Finding, Severity
from workbench.families import find_model
from workbench.fit.warnings import run_warnings
from workbench.runs.settings import TrainSettings
from workbench.workspace import Workspace

SHAPES = ("9x40x40", "1x40x40")


def make_pictures(dataset: Dataset, count: int) -> list[Clip]:
    """Record the first clips as pictures."""
    records = read_clips(dataset.folder)
    records = [clip.changed(frames=1, fps=0.0) if n < count else clip for n, clip in enumerate(records)]
    write_clips(dataset.folder, records)
    return records


def warning(workspace: Workspace, **values: object) -> str:
    settings = TrainSettings().changed(dataset="squares", held_out=0, **values)
    return " ".join(run_warnings(workspace, settings))


def test_a_run_is_warned_by_what_it_draws(workspace: Workspace, dataset: Dataset) -> None:
    assert warning(workspace, buckets=SHAPES) == ""
    make_pictures(dataset, 1)
    assert warning(workspace, buckets=SHAPES) == ""
    make_pictures(dataset, 5)
    assert warning(workspace, buckets=SHAPES).startswith("83% of what is trained on is still pictures")
    assert warning(workspace) == ""  # without a shape of one frame they are left out
    assert warning(workspace, buckets=SHAPES, picture_share=0.2) == ""
    assert warning(workspace, buckets=["10x40x40"]) == ""  # starting says what is wrong
    make_pictures(dataset, 6)
    assert "motion is not taught" in warning(workspace, buckets=SHAPES)


@pytest.mark.parametrize(
    ("count", "severity"), [(0, None), (1, Severity.LOOK), (5, Severity.HURTS), (6, Severity.HURTS)]
)
def test_the_dataset_check_says_so_too(dataset: Dataset, count: int, severity: Severity | None) -> None:
    _, model = find_model("tiny-cogvideox")
    clips = make_pictures(dataset, count)
    found: list[Finding] = list(check_plans(clips, shape_for(model, None, None, None, None), model.title))
    images = [one for one in found if one.kind == "images"]
    assert [one.severity for one in images] == ([severity] if severity else [])
    assert all(len(one.clips) == count for one in images)
    assert all("picture_share" in one.sentence for one in images if 0 < count < 6 and severity is Severity.HURTS)
