"""What the clicks of the Dataset tab do, and what its panels then say: the listeners themselves, without a browser."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import gradio as gr
import numpy as np
import pytest

from tests.dataset_builder import footage
from tests.patience import PATIENCE
from workbench import jobs
from workbench.dataset_builder import Dataset
from workbench.dataset_builder.checks.findings import Severity, picture_finding, write_report
from workbench.errors import ConfigError
from workbench.ui.datasets.captions import CaptionPanel
from workbench.ui.datasets.check import CheckPanel
from workbench.ui.datasets.cut import CutPanel
from workbench.ui.datasets.panel import DatasetPanel, DatasetView
from workbench.workspace import Workspace

P = TypeVar("P", bound=DatasetPanel)


def built(panel: Callable[[Workspace], P], workspace: Workspace) -> P:
    """The panel on a page of its own."""

    async def build() -> P:
        with gr.Blocks():
            return panel(workspace)

    return asyncio.run(build())  # outside of a loop Gradio makes one and never closes it


def shown(panel: DatasetPanel, dataset: Dataset, name: str) -> Any:
    """What a panel shows of a dataset now."""
    value = panel.values(DatasetView(dataset, None, (), "", None, "", dataset.version))[name]
    return value[1]() if isinstance(value, tuple) else value


def defaults(panel: Any) -> list[Any]:
    """The values of a form that nobody touched."""
    return [component.value for component in panel.form.inputs]


def test_a_look_before_the_cut_has_its_progress_and_says_what_would_be(dataset: Dataset, workspace: Workspace) -> None:
    panel, before = built(CutPanel, workspace), dataset.clips
    assert panel._preview(dataset, *defaults(panel)) == ""
    task = dataset.task("split")
    assert task.wait(PATIENCE).state is jobs.State.FINISHED
    assert task.status.total == sum(clip.frames for clip in before)
    progress = shown(panel, dataset, "split_progress")
    assert "0 clips would be cut into 0." in progress
    assert "<li>0.mp4 stays as it is: one shot</li>" in progress
    assert dataset.clips == before


def test_the_rate_of_the_open_clip_is_set(dataset: Dataset, workspace: Workspace) -> None:
    panel, clip = built(CutPanel, workspace), dataset.clips[0]
    assert "Undo" in panel._rate(dataset, clip.file_name, " 4 ")
    assert dataset.clips[0].fps == 4
    with pytest.raises(ConfigError, match="fps is 'fast', must be a number such as 12"):
        panel._rate(dataset, dataset.clips[0].file_name, "fast")
    panel._rate(dataset, dataset.clips[0].file_name, "")
    assert dataset.clips[0] == clip


def test_a_fix_that_cuts_goes_on_behind_the_page(workspace: Workspace) -> None:
    wide = np.repeat(np.repeat(footage.barred(1), 4, axis=1), 4, axis=2)
    dataset = Dataset(footage.write_footage(workspace.dataset("bars"), {"one": wide, "two": wide[2:]}, {}))
    found = [
        picture_finding(
            "letterbox", "Bars", f"bars {clip.id}", Severity.HURTS, [clip], ["crop_bars", "tag"], crop=(0, 64, 640, 320)
        )
        for clip in dataset.clips
    ]
    write_report(dataset.folder, 0.0, "any", dataset.clips, found)
    panel = built(CheckPanel, workspace)
    assert panel._fix(dataset, [found[0].id], "tag") == "Tagged 1 clip."
    assert panel._fix(dataset, ["kind:letterbox"], "crop_bars") is None
    assert shown(panel, dataset, "fix_stop")["visible"]
    assert dataset.task("fix").wait(PATIENCE).state is jobs.State.FINISHED
    assert "Cropped the bars of 2 clips." in shown(panel, dataset, "fix_progress")
    assert not shown(panel, dataset, "fix_stop")["visible"]
    assert [clip.height for clip in dataset.clips] == [320, 320]


def test_captions_that_cannot_come_are_refused_at_the_form(dataset: Dataset, workspace: Workspace) -> None:
    panel = built(CaptionPanel, workspace)
    values = [
        "endpoint" if spec.name == "captioner" else value
        for spec, value in zip(panel.form.specs, defaults(panel), strict=True)
    ]
    said = panel._start_marked(dataset, [dataset.clips[0].file_name], *values)
    assert "base_url is not set: give the server" in said
    assert dataset.task("caption").status.state is jobs.State.NEW
