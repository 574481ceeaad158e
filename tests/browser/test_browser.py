"""The whole loop as a person does it, with a real server, real jobs and a real browser.

The page must lead from clips to a sample without a reload, and lose nothing when its server is killed.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.server import Server, open_again, unfold
from tests.browser.stripes import FILES, few_clips
from tests.patience import PATIENCE
from workbench.runs.run import Run
from workbench.workspace import Workspace

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.long]


# Pictures that the browser shows its sign for a broken one in place of.
BROKEN = """() => [...document.images].filter((one) => one.complete && one.currentSrc && !one.naturalWidth
    && one.offsetParent && getComputedStyle(one).visibility !== 'hidden').map((one) => one.currentSrc)"""


def refusals(page: Page) -> list[str]:
    """What the server refuses or does not have, from now on: the browser writes each to its console."""
    found: list[str] = []
    page.on("response", lambda one: found.append(f"{one.status} {one.url}") if one.status >= 400 else None)
    return found


def visit(page: Page, server: Server, tab: str = "home") -> None:
    page.goto(f"{server.url}&tab={tab}")
    page.locator("#header").wait_for()


def go_to(page: Page, tab: str) -> None:
    page.get_by_role("tab", name=tab, exact=True).click()


def field(name: str) -> str:
    return f"#{name} input, #{name} textarea"


def build_dataset(page: Page) -> None:
    go_to(page, "Dataset")
    page.locator(field("dataset-title")).fill("Rings")
    page.locator("#create-dataset").click()
    page.get_by_role("heading", name="Rings").wait_for()
    files = [str(path) for path in FILES]
    page.locator("#dataset-files input[type=file]").set_input_files(files)
    page.locator("#dataset-files").get_by_text(Path(files[-1]).stem).first.wait_for()
    page.locator("#import-clips").click()
    page.locator("#import-progress").get_by_text("Imported:").wait_for()
    page.locator("#clips .card").nth(5).wait_for()


def caption_a_clip(page: Page, workspace: Path) -> None:
    """Open a clip, say what it shows, leave the field: it is on disk, and the model's frames can be played."""
    page.locator("#clips .card .picture").first.click()
    page.locator("#clip-player video").wait_for()
    page.locator("#clips .card textarea").first.fill("a ring of a kind never seen")
    page.locator("#clips .card .state", has_text="saved").first.wait_for()
    assert "never seen" in (workspace / "datasets" / "rings" / "metadata.jsonl").read_text()
    page.locator("#undo-change", has_text="caption of").wait_for()
    page.get_by_role("tab", name="Model input", exact=True).click()
    page.locator("#play-plan").click()
    page.locator("#plan-video video").wait_for()


def cut_and_check(page: Page, workspace: Path) -> None:
    """Shorten a clip on the filmstrip and take that back; then check it, and fix a finding."""
    records = workspace / "datasets" / "rings" / "metadata.jsonl"
    before = records.read_text()
    page.get_by_role("tab", name="Cut", exact=True).click()
    page.locator("#timeline .edge.start").focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_timeout(1500)  # the timeline speaks a moment after the last key
    page.locator("#apply-cut").click()
    page.locator("#undo-change", has_text="span of").wait_for()
    assert ".masters/" in records.read_text()
    page.locator("#undo-change").click()
    page.locator("#redo-change", has_text="span of").wait_for()
    assert records.read_text() == before

    page.get_by_role("tab", name="Check", exact=True).click()
    page.locator("#start-check").click()
    page.locator("#findings .note", has_text="clips checked").wait_for()


def start_run(page: Page, steps: int) -> float:
    """Start a run from the dataset and return the seconds from the click to the first loss on the page."""
    page.locator("#use-dataset").click()
    page.locator("#start-training").wait_for()
    page.locator(field("run-name")).first.fill("rings")
    page.locator("#TrainSettings-preview_prompts textarea").fill("a red ring moves left on a black background")
    unfold(page, "#new-run .more button")
    quick = {"steps": steps, "preview_every": 5, "save_every": 5, "held_out": 1, "preview_steps": 4}
    for name, value in quick.items():
        page.locator(field(f"TrainSettings-{name}")).fill(str(value))
    page.locator("#start-training").click()
    began = time.monotonic()
    page.locator("#run-head dt", has_text="loss, smoothed").wait_for()
    return time.monotonic() - began


def plays(page: Page, selector: str) -> None:
    """The video is there, decodes and moves."""
    page.wait_for_function("name => (document.querySelector(name)?.currentTime ?? 0) > 0", arg=selector)


def test_from_clips_to_a_sample_and_over_a_crash(server: Server, page: Page) -> None:
    ready = server.start()
    began = time.monotonic()
    refused = refusals(page)
    visit(page, server)
    painted = time.monotonic() - began
    page.get_by_role("button", name="Train the demo").wait_for()  # the first visit offers something to do

    build_dataset(page)
    caption_a_clip(page, server.workspace)
    cut_and_check(page, server.workspace)
    first_loss = start_run(page, steps=5000)
    page.locator("#previews th", has_text="base model").wait_for()
    page.locator("#previews th", has_text="step 5").first.wait_for()
    plays(page, "#previews video")
    assert not refused, "over an import, a cut, a check and a run with previews"
    assert page.evaluate(BROKEN) == []

    run = Run(server.workspace / "runs" / "rings")
    pid, step = run.status.pid, run.status.step
    server.kill()
    again = server.start()
    open_again(page, server.url)
    page.locator("#run-head h2", has_text="rings").wait_for()
    page.locator("#run-head .badge.going").wait_for()
    assert run.status.pid == pid, "the run is the same process as before the crash"
    end = time.monotonic() + PATIENCE
    while run.status.step <= step:
        assert time.monotonic() < end, "the run went on"
        time.sleep(0.1)

    page.locator("#stop-run").click()
    page.locator("#run-head .badge", has_text="stopped").wait_for()
    page.locator("#resume-run", has_text="Resume from step").wait_for()
    print(
        f"\nready {ready:.1f} s, first paint {painted:.1f} s, Start to first loss {first_loss:.1f} s, "
        f"ready again after kill -9 {again:.1f} s"
    )


def test_a_finished_run_is_tried_in_the_sample_tab(server: Server, page: Page) -> None:
    workspace = Workspace.open(server.workspace)
    settings = few_clips(workspace).changed(
        steps=4, preview_every=4, save_every=4, evaluate_every=0, preview_steps=2, preview_prompts=["a red ring"]
    )
    run = Run.create(workspace, settings, "short")
    run.start()  # from the shell, as far as the page knows
    server.start()
    refused = refusals(page)
    visit(page, server, "train")
    page.locator("#before-after video").first.wait_for()
    page.locator("#run-ending a.download").wait_for()
    assert page.locator("#run-head .bar").count() == 0  # the badge says that it is done

    page.locator("#sample-run").click()
    page.locator("#generate").wait_for()
    page.locator(field("SampleSettings-steps")).fill("30")
    page.locator(field("SampleSettings-videos")).fill("2")
    page.locator("#generate").click()
    page.locator("#sample-history .sample").nth(1).wait_for()  # the latent previews come and go
    assert not refused
    assert page.evaluate(BROKEN) == []
    page.locator("#sample-result figure.result").wait_for()
    plays(page, "#sample-result video")
    record = next(path for path in workspace.samples.glob("[0-9]*/*.json"))
    assert json.loads(record.read_text())["settings"]["loras"] == ["short"]

    page.reload()
    page.locator("#sample-history").get_by_role("button").first.wait_for()  # the tab is remembered, too
    page.locator("#SampleSettings-prompt textarea").fill("something else")
    page.locator("#sample-result [data-do=settings]").click()
    page.wait_for_function("!document.querySelector('#SampleSettings-prompt textarea').value.includes('else')")


def test_wrong_settings_are_named_on_the_page(server: Server, page: Page) -> None:
    server.start()
    visit(page, server, "train")
    page.locator(field("TrainSettings-rank")).fill("0")
    page.locator("#start-training").click()
    page.locator(".problems", has_text="1 to 1024").wait_for()
    assert not list((server.workspace / "runs").iterdir())
