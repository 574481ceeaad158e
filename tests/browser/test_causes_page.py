"""Which clips caused this? in the browser: the mark, the answer, and the clips that are removed because of it."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from tests.browser.conftest import Site
from tests.drawing import MakeClip
from tests.patience import PATIENCE, until
from workbench.dataset_builder import Dataset
from workbench.sampler.samples import Samples, new_id, video_path, write_sample
from workbench.sampler.settings import SampleSettings
from workbench.trainer import causes
from workbench.trainer.causes import Answer, Cause

LONG = 1000 * PATIENCE
pytestmark = [pytest.mark.browser, pytest.mark.long]


def test_the_clips_that_caused_a_sample_are_shown_and_removed(
    site: Site, page: Page, make_clip: MakeClip, tmp_path: Path
) -> None:
    dataset = Dataset.create(site.workspace, "colors of causes")
    for frames, name in enumerate(("red", "green", "blue", "yellow", "long"), 9):
        make_clip(tmp_path / f"{name}.mp4", frames, color="red" if name == "long" else name)
    dataset.import_files([tmp_path])
    made, settings = new_id(), SampleSettings(prompt="a red square", loras=("runs/one",))
    record = {"settings": settings.model_dump(mode="json"), "fps": 8.0, "frames": 9, "width": 96, "height": 64}
    write_sample(
        video_path(site.workspace, made),
        np.full((9, 64, 96, 3), 90, np.uint8),
        8,
        {**record, "loras": [{"name": "runs/one", "scale": 1.0}]},
    )
    scores = {"red.mp4": 0.8, "green.mp4": 0.02, "blue.mp4": -0.01, "yellow.mp4": 0.01, "long.mp4": -0.02}
    clips = [
        Cause(file_name=one.file_name, name=one.name, dataset=dataset.name, caption="", score=scores[one.source])
        for one in dataset.clips
    ]
    told = Answer(
        key=f"{made}-00000001", run="one", steps=[2, 4], box=[], frames=[], clips=causes.judged(clips), agreement=0.95,
        missing=[], seconds=1.0, time=1.0,
    )  # fmt: skip
    causes.keep(Samples(site.workspace).get(made), told)

    page.set_default_timeout(LONG)
    site.open(page, f"#/sample/{made}")
    page.get_by_role("button", name="Which clips caused this?").click()
    shown = page.locator("wb-causes")
    expect(shown.locator(".verdict")).to_contain_text(
        re.compile(r"^red\S* most likely caused this sample"), timeout=LONG
    )
    expect(shown.locator(".cause-rows li")).to_have_count(5, timeout=LONG)
    expect(shown.locator(".balance.caused-it")).to_have_count(1, timeout=LONG)

    # -- a mark: a box whose corner is dragged, and a question that names it when it is refused
    shown.get_by_role("button", name="Mark a box").click()
    expect(shown.get_by_label("Width")).to_have_value("48", timeout=LONG)
    corner, stage = shown.locator(".corner.se").bounding_box(), shown.locator(".stage").bounding_box()
    assert corner is not None
    assert stage is not None
    page.mouse.move(corner["x"] + 9, corner["y"] + 9)
    page.mouse.down()
    page.mouse.move(stage["x"] + stage["width"] - 1, stage["y"] + stage["height"] - 1, steps=4)
    page.mouse.up()
    expect(shown.get_by_label("Width")).to_have_value("72", timeout=LONG)
    expect(shown.get_by_label("Height")).to_have_value("48", timeout=LONG)
    shown.get_by_role("button", name="Find what caused the mark").click()
    expect(page.get_by_text("no run of this workspace trained a LoRA of this sample")).to_be_visible(timeout=LONG)

    # -- the run that is asked to do without the clip is gone
    shown.get_by_role("button", name="Try without").click()
    expect(page.get_by_text("there is no run 'one'")).to_be_visible(timeout=LONG)

    # -- the named clip is removed, and comes back
    shown.get_by_role("button", name="Remove this clip from the dataset").click()
    expect(page.get_by_text(f"1 clip removed from {dataset.name}.")).to_be_visible(timeout=LONG)
    assert len(dataset.clips) == 4
    page.get_by_role("button", name="Undo").click()
    until(lambda: len(dataset.clips) == 5)
