"""Runs side by side, as the page, a notebook and the shell show them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.drawing import MakeClip
from tests.written_run import add_preview, write_run
from workbench.errors import ConfigError
from workbench.runs.analysis.comparison import MOST, compare
from workbench.runs.metrics import MetricsWriter
from workbench.runs.run import Run
from workbench.runs.view import compared_charts
from workbench.workspace import Workspace


@pytest.fixture
def runs(workspace: Workspace) -> list[Run]:
    return [write_run(workspace, "slow"), write_run(workspace, "fast", 100, learning_rate=3e-4, targets="to_q")]


def test_what_differs_and_what_came_of_it(runs: list[Run]) -> None:
    made = compare(runs)
    assert made.names == ["slow", "fast"]
    assert made.settings == [
        ("Steps", ["200", "100"]),
        ("Learning rate", ["0.0001", "0.0003"]),
        ("Trained layers", ["attention", "to_q"]),
    ]
    results = dict(made.results)
    assert results["steps"] == ["200", "100"]
    assert results["best checkpoint"] == ["step 200", "step 100"]
    assert all("(0.10 of the change)" in drift for drift in results["prior drift"])
    assert results["state"] == ["finished", "finished"]


def test_a_run_without_the_pairs_is_compared_by_what_both_have(runs: list[Run], workspace: Workspace) -> None:
    old = write_run(workspace, "old")
    writer = MetricsWriter(old.folder, 0)
    for step in range(1, 50):
        writer.write(step=step, time=0.0, loss=0.5, lr=1e-4)
    made = compare([runs[0], old])
    assert dict(made.results)["prior drift"][1] == ""
    charts = {one["title"]: one for one in compared_charts([(one.name, one.curves) for one in made.runs])}
    loss = charts["Training loss, smoothed"]
    assert [one["name"] for one in loss["lines"]] == ["slow", "old"]
    assert loss["lines"][1]["points"][-1] == (49, 0.5)


def test_previews_of_the_same_prompt_stand_side_by_side(runs: list[Run], make_clip: MakeClip, tmp_path: Path) -> None:
    clip = make_clip(tmp_path / "0.mp4")
    for run, last in zip(runs, (200, 100), strict=True):
        for step in (0, 50, last):
            add_preview(run, step, clip, "a cat")
    add_preview(runs[0], 200, clip, "a dog", "1")
    add_preview(runs[0], 200, clip, "a cat", "0-scale-0.5", scale=0.5)
    ((prompt, found),) = compare(runs).previews
    assert prompt == "a cat"
    assert [one and one.step for one in found] == [0, 200, 100]
    assert [prompt for prompt, _ in compare(runs[:1]).previews] == ["a cat", "a dog"]


def test_more_than_can_be_told_apart_are_refused(runs: list[Run]) -> None:
    with pytest.raises(ConfigError, match=f"at most {MOST}"):
        compare(runs[:1] * (MOST + 1))
