"""What is exported opens from the disk without a server (a report, a grid, a replay), and nothing is requested."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.written_grid import FRAMES, write_grid
from tests.written_run import add_preview, write_run
from workbench.compare.export import export_page
from workbench.demo_space import replays
from workbench.runs.analysis.comparison import compare
from workbench.runs.report import write_report
from workbench.runs.run import Run
from workbench.sampler.samples import write_sample
from workbench.workspace import Workspace

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

pytestmark = pytest.mark.browser

WIDTH = 200  # pixels, of a tiny video at most
READY = "() => [...document.querySelectorAll('wb-video')].every((one) => one.querySelector('video')?.readyState >= 2)"
# Whether all videos stand still and show the same moment, which is not the first.
TOGETHER = """() => {
    const videos = [...document.querySelectorAll('wb-video video')];
    const apart = videos.map((one) => Math.abs(one.currentTime - videos[0].currentTime));
    const still = videos.every((one) => one.paused && !one.seeking);
    return still && videos[0].currentTime > 0 && Math.max(...apart) < 0.02;
}"""


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A report, a grid and a replay; whatever they were made from is gone."""
    folder = tmp_path_factory.mktemp("exports")
    workspace = Workspace.open(folder / "workspace")
    grid = write_grid(workspace)
    frames = np.zeros((FRAMES, 64, 64, 3), np.uint8)
    for number, cell in enumerate(grid.state().all):
        record = {"settings": cell.settings.model_dump(mode="json"), "loras": [], "seconds": 2.0}
        write_sample(grid.video(cell.key), frames + np.uint8(40 * number), 8, record)
    run = Run.open(workspace, "first")
    clip = grid.video(grid.state().all[0].key)
    for step in range(0, 201, 40):
        add_preview(run, step, clip, "a cat")
    found = {"report": folder / "report.html", "grid": folder / "grid.html", "replay": folder / "replay.html"}
    write_report(run).rename(found["report"])
    export_page(grid).rename(found["grid"])
    shown = f"{run._repr_html_()}{compare([run, write_run(workspace, 'second', rank=8)])._repr_html_()}"
    found["notebook"] = folder / "notebook.html"
    found["notebook"].write_text(f"<!doctype html><meta charset=utf-8>{shown}", encoding="utf-8")
    found["replay"].write_text("".join(replays.page(replays.shipped()[0])), encoding="utf-8")
    workspace.root.rename(folder / "elsewhere")
    return found


@pytest.fixture
def asked(page: Page) -> list[str]:
    """Whatever the page requests besides the file and what is inside of it."""
    found: list[str] = []
    page.on("request", lambda one: None if re.match("file:|blob:|data:", one.url) else found.append(one.url))
    page.on("console", lambda said: found.append(said.text) if said.type == "error" else None)
    return found


def scrub(slider: Locator) -> None:
    """Go to the middle of the videos, once they are there."""
    slider.page.wait_for_function(READY)
    slider.fill("5")  # clicking at the current position would not change the value
    slider.page.wait_for_function(TOGETHER)


def test_a_report_plays_its_previews_together_and_its_curves_are_read_and_zoomed(
    files: dict[str, Path], page: Page, asked: list[str]
) -> None:
    page.goto(files["report"].as_uri())
    page.get_by_role("heading", name="first").wait_for()
    assert page.locator(".previews wb-video").count() == 4, "the base model and three of five steps"
    page.get_by_role("button", name="Show all 6 steps").click()
    page.locator(".previews wb-video >> nth=5").wait_for()
    scrub(page.get_by_label("Frame"))
    chart = page.get_by_label(re.compile("^Loss, steps 0 to 200"))
    legend = page.locator("wb-chart", has=chart).locator(".legend")
    chart.focus()
    page.keyboard.press("End")
    page.keyboard.press("ArrowLeft")
    legend.get_by_text("step 199").wait_for()
    assert "step 199" in page.locator("#wb-say").inner_text()
    page.keyboard.press("+")
    page.get_by_label(re.compile("^Loss, steps 1[0-9][0-9] to 200")).wait_for()
    page.keyboard.press("Escape")
    chart.wait_for()
    page.get_by_role("button", name=re.compile("Loss by noise band")).click()
    page.get_by_role("heading", name="Learning rate").wait_for()
    page.get_by_text("settings were left at their defaults").click()
    page.get_by_role("cell", name="weight_decay").wait_for()
    assert asked == []


def test_a_grid_plays_together_by_keys_too_and_tiny_videos_stay_small(
    files: dict[str, Path], page: Page, asked: list[str]
) -> None:
    page.goto(files["grid"].as_uri())
    page.get_by_role("heading", name="first").wait_for()
    cells = page.locator(".cell wb-video")
    assert cells.count() == 6
    assert max(box["width"] for one in cells.all() if (box := one.bounding_box())) <= WIDTH
    scrub(page.get_by_label("Frame"))
    before = page.get_by_text(re.compile(r"^frame \d of 9$")).inner_text()
    page.keyboard.press(".")
    page.get_by_text(f"frame {int(before.split()[1]) + 1} of 9").wait_for()
    page.wait_for_function(TOGETHER)
    page.keyboard.press("w")
    page.get_by_label("Boundary between the two videos").wait_for()
    assert asked == []


def test_a_notebook_without_a_kernel_shows_a_run_and_a_comparison_in_frames(
    files: dict[str, Path], page: Page, asked: list[str]
) -> None:
    page.goto(files["notebook"].as_uri())
    page.get_by_text("first: finished").wait_for()
    frames = page.locator("iframe")
    run, compared = frames.nth(0).content_frame, frames.nth(1).content_frame
    run.get_by_role("heading", name="Checkpoints").wait_for()
    assert run.locator(".previews wb-video").count() == 4
    compared.get_by_role("cell", name="Rank").wait_for()
    assert compared.locator("wb-chart").count() == 5
    assert asked == []


def test_a_replay_goes_through_a_run(files: dict[str, Path], page: Page, asked: list[str]) -> None:
    page.goto(files["replay"].as_uri())
    page.get_by_text(re.compile(r"^step 600, .* after the start")).wait_for()
    page.locator(".legend").get_by_text("step 600").wait_for()
    page.locator(".verdict").get_by_text("Leveled off").wait_for()
    page.get_by_role("columnheader", name="Step 400").wait_for()
    page.wait_for_function(READY.replace("wb-video", ".tiles wb-video"))
    step = page.get_by_label("Training step")
    step.focus()
    page.keyboard.press("Home")
    page.get_by_text("Before training, at the start").wait_for()
    page.keyboard.press("End")
    page.get_by_role("button", name="Play").first.click()
    page.get_by_role("button", name="Pause").first.wait_for()
    page.get_by_text("Before training, at the start").wait_for()
    assert asked == []
