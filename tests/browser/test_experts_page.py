"""A model of two experts in a real browser: one click trains both, and samples take the pair; its scenes are joined."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.browser.server import Server, unfold
from tests.browser.stripes import few_clips
from workbench.clips import media
from workbench.families.wan import FAMILY
from workbench.runs.run import Run
from workbench.sampler.samples import Samples
from workbench.workspace import Workspace

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.long]
QUICK = {
    "steps": 2,
    "batch_size": 1,
    "rank": 2,
    "held_out": 0,
    "preview_every": 0,
    "evaluate_every": 0,
    "save_every": 2,
}
PROMPTS = ["a red circle moves left", "a blue square moves up"]


def fill(page: Page, name: str, value: str) -> None:
    field = page.locator(f"#{name} :is(input, textarea)").first
    field.fill(value)
    field.press("Tab")


def test_one_click_trains_both_experts_and_a_story_takes_the_pair(server: Server, page: Page) -> None:
    workspace = Workspace.open(server.workspace)
    dataset = few_clips(workspace).dataset
    toy = FAMILY.toy(server.workspace / "toy", "a14b")
    server.start()
    page.goto(f"{server.url}&tab=train")
    unfold(page, "#new-run .more > button")
    fill(page, "TrainSettings-model", toy.source)
    page.locator("#TrainSettings-expert").wait_for()
    fill(page, "TrainSettings-dataset", dataset)
    fill(page, "run-name", "pair")
    for name, value in QUICK.items():
        fill(page, f"TrainSettings-{name}", str(value))
    page.locator("#start-training").click()
    page.get_by_text("2 runs are in the queue").wait_for()
    for name in ("pair-expert-high-noise", "pair-expert-low-noise"):
        page.locator("#runs li:has(.badge.good)", has_text=name).wait_for()
    names = [run.name for run in Run.all(workspace)]
    assert sorted(names) == ["pair-expert-high-noise", "pair-expert-low-noise"]

    page.locator("#sample-run").click()  # of the run that is shown, with its model; the other is put beside it
    loras = page.locator("#SampleSettings-loras select")
    loras.first.wait_for()
    page.locator("#SampleSettings-loras .add").click()
    for number, name in enumerate(sorted(names)):
        loras.nth(number).select_option(f"runs/{name}")
    unfold(page, ".sample-side .more > button")
    fill(page, "SampleSettings-prompt", "\n".join(PROMPTS))
    fill(page, "SampleSettings-steps", "2")
    page.locator("#SampleSettings-scenes input").check()
    page.locator("#generate").click()

    # Two scenes and, as the result, the video that joins them, with a line for each.
    page.locator("#sample-result ol.prompt li").nth(1).wait_for()
    assert page.locator("#sample-result ol.prompt li").all_inner_texts() == PROMPTS
    assert page.locator("#sample-result .loras tbody tr").count() == 2
    page.locator("#sample-history .sample").nth(2).wait_for()
    page.set_viewport_size({"width": 390, "height": 844})  # on a phone its text is not cut: its table scrolls
    page.wait_for_function("document.querySelector('#sample-result figcaption').getBoundingClientRect().right <= 390")
    page.set_viewport_size({"width": 1400, "height": 900})
    joined, second, first = Samples(workspace).history()
    assert [one["experts"] for one in first.record["loras"]] == [["high noise"], ["low noise"]]
    frames = [media.probe(one.path).frames for one in (joined, first, second)]
    assert frames[0] == frames[1] + frames[2] - second.record["kept_frames"]

    # Its settings are those of the story: its lines are scenes again.
    page.locator("#SampleSettings-scenes input").uncheck()
    fill(page, "SampleSettings-prompt", "something else")
    page.locator("#sample-result [data-do=settings]").click()
    page.wait_for_function("document.querySelector('#SampleSettings-scenes input').checked")
    assert page.locator("#SampleSettings-prompt textarea").input_value() == "\n".join(PROMPTS)
