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
from workbench.dataset_builder.checks.findings import finding_of, write_report
from workbench.dataset_builder.settings import CaptionSettings, SplitSettings
from workbench.display import states
from workbench.errors import ConfigError
from workbench.ui.datasets.captions import CaptionPanel
from workbench.ui.datasets.check import CheckPanel
from workbench.ui.datasets.cut import CutPanel, _beside
from workbench.ui.datasets.findings import Chosen, ChosenFix
from workbench.ui.datasets.panel import DatasetPanel, DatasetView
from workbench.workspace import Workspace

P = TypeVar("P", bound=DatasetPanel)


def built(panel: Callable[[Workspace], P], workspace: Workspace) -> P:
    """The panel on a page of its own."""

    async def build() -> P:
        with gr.Blocks():
            return panel(workspace)

    return asyncio.run(build())  # outside of a loop Gradio makes one and never closes it


def shown(panel: DatasetPanel, dataset: Dataset, component: Any) -> Any:
    """What a component of a panel shows of a dataset now."""
    value = panel.values(DatasetView(dataset, None, (), "", None, "", dataset.version))[component]
    return value[1]() if isinstance(value, tuple) else value


def test_a_look_before_the_cut_has_its_progress_and_says_what_would_be(dataset: Dataset, workspace: Workspace) -> None:
    panel, before = built(CutPanel, workspace), dataset.clips
    panel._preview(dataset, [], SplitSettings())
    task = dataset.task("split")
    assert task.wait(PATIENCE).state is jobs.State.FINISHED
    assert task.status.total == sum(clip.frames for clip in before)
    progress = shown(panel.task, dataset, panel.task.progress)
    assert "0 clips would be cut into 0." in progress
    assert "<li>0.mp4 stays as it is: one shot</li>" in progress
    assert dataset.clips == before


def test_the_rate_of_the_open_clip_is_set(dataset: Dataset, workspace: Workspace) -> None:
    panel, clip = built(CutPanel, workspace), dataset.clips[0]
    assert panel._rate(dataset, clip, " 4 ") == dataset.clips[0].file_name
    assert dataset.clips[0].fps == 4
    with pytest.raises(ConfigError, match="fps is 'fast', must be a number such as 12"):
        panel._rate(dataset, dataset.clips[0], "fast")
    panel._rate(dataset, dataset.clips[0], "")
    assert dataset.clips[0] == clip


def test_part_and_crop_are_one_change_and_the_clip_stays_open(dataset: Dataset, workspace: Workspace) -> None:
    panel, clip, count = built(CutPanel, workspace), dataset.clips[0], len(dataset.history)
    name = clip.file_name
    with pytest.raises(ConfigError, match="part and crop are unchanged"):
        panel._apply(dataset, clip, ["clips/other.mp4", 0, 4], None)
    opened = panel._apply(dataset, clip, [name, 1, 5], [name, [0, 0, 32, 16]])
    new = dataset.clip(opened)
    assert (new.frames, new.width, new.height) == (4, 32, 16)
    assert len(dataset.history) == count + 1
    assert dataset.history[-1].what == f"span and crop of {clip.name}"
    names = [one.file_name for one in dataset.clips]
    assert names.index(opened) == 0
    assert (_beside(dataset, new, 1), _beside(dataset, new, -1)) == (names[1], names[-1])
    back = panel._apply(dataset, new, None, [opened, None])
    assert (dataset.clip(back).width, dataset.clip(back).frames) == (clip.width, 4)


def test_a_fix_that_cuts_goes_on_behind_the_page(workspace: Workspace) -> None:
    wide = np.repeat(np.repeat(footage.barred(1), 4, axis=1), 4, axis=2)
    dataset = Dataset(footage.write_footage(workspace.dataset("bars"), {"one": wide, "two": wide[2:]}, {}))
    found = [finding_of("letterbox", f"bars {clip.id}", [clip], crop=(0, 64, 640, 320)) for clip in dataset.clips]
    write_report(dataset.folder, 0.0, "any", dataset.clips, found)
    panel = built(CheckPanel, workspace)
    one = {"dataset": "bars", "kind": "letterbox", "title": "Black bars", "finding": found[0].id}
    every = one | {"finding": ""}
    assert panel.found.fix(ChosenFix(**one, fix="tag")) == {"done": "Tagged 1 clip for later."}
    ways = panel.found.ways(Chosen(**every))["ways"]
    assert [way["does"] for way in ways][:2] == ["Crop the bars of 2 clips.", "Remove 2 clips."]
    assert panel.found.fix(ChosenFix(**every, fix="crop_bars")) == {"done": ""}
    assert shown(panel.fixing, dataset, panel.fixing.stop)["visible"]
    assert dataset.task("fix").wait(PATIENCE).state is jobs.State.FINISHED
    assert "Cropped the bars of 2 clips." in shown(panel.fixing, dataset, panel.fixing.progress)
    assert not shown(panel.fixing, dataset, panel.fixing.stop)["visible"]
    assert [clip.height for clip in dataset.clips] == [320, 320]


def test_findings_come_by_kind_with_severity_as_icon_word_and_colour(dataset: Dataset, workspace: Workspace) -> None:
    panel = built(CheckPanel, workspace)
    value = shown(panel, dataset, panel.found.component)
    assert (value["tone"], value["groups"]) == ("empty", [])
    found = [finding_of("still", f"{clip.name} stands still", [clip]) for clip in dataset.clips]
    found.append(finding_of("damaged", "broken", dataset.clips[:1]))
    write_report(dataset.folder, 0.0, "any", dataset.clips, found)
    groups = shown(panel, dataset, panel.found.component)["groups"]
    assert [(one["icon"], one["severity"], one["tone"]) for one in groups] == [
        (states.TONE_ICONS["bad"], "stops the training", "bad"),
        (states.TONE_ICONS["warn"], "hurts it", "warn"),
    ]
    assert [(one["counted"], one["fixable"]) for one in groups] == [("1 finding", True), ("6 findings", True)]
    picture = groups[0]["findings"][0]["pictures"][0]
    assert picture["name"] == dataset.clips[0].name
    with pytest.raises(ConfigError, match="fixed or changed meanwhile"):
        panel.found.ways(Chosen(dataset=dataset.name, kind="blur", title="Blurred"))


def test_captions_that_cannot_come_are_refused_at_the_form(dataset: Dataset, workspace: Workspace) -> None:
    panel = built(CaptionPanel, workspace)
    with pytest.raises(ConfigError, match="base_url is not set: give the server"):
        panel._start_marked(dataset, [dataset.clips[0].file_name], CaptionSettings(captioner="endpoint"))
    assert dataset.task("caption").status.state is jobs.State.NEW


def test_only_what_the_chosen_captioner_reads_is_shown(dataset: Dataset, workspace: Workspace) -> None:
    panel = built(CaptionPanel, workspace)
    form = panel.task.form
    assert "chosen" not in {spec.name for spec in form.specs}, "the marked clips are it"
    assert (form.field("model").visible, form.field("base_url").visible) == (True, False)
    needs, *fields = panel._follow("endpoint")
    assert "OpenAI" in needs
    now = dict(zip(panel.own, (field["visible"] for field in fields), strict=True))
    assert now == {name: name not in ("model", "device") for name in panel.own}
    server: dict[str, Any] = {"captioner": "endpoint", "base_url": "http://localhost:1/v1", "endpoint_model": "any"}
    with pytest.raises(ConfigError, match="which is chosen, but no clip is"):
        panel.task.begin(dataset, [], CaptionSettings(which="chosen", **server))


def test_many_clips_are_cut_that_are_marked(dataset: Dataset, workspace: Workspace) -> None:
    panel, clip = built(CutPanel, workspace), dataset.clips[2]
    panel._preview(dataset, [clip.file_name, "clips/gone.mp4"], SplitSettings())
    assert dataset.task("split").wait(PATIENCE).state is jobs.State.FINISHED
    assert len(dataset.task("split").result["splits"]) == 1
