"""A grid in a real browser: all videos at one frame, whatever moves them; marks that stay; a page without a server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.browser.server import Server
from tests.patience import until
from tests.written_run import write_run
from workbench.compare import Grid, GridSettings
from workbench.compare.export import export_page
from workbench.runs.checkpoints import LORA, folder_of
from workbench.sampler.samples import write_sample
from workbench.workspace import Workspace

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.long]
FRAMES, FPS = 33, 8
HOSTILE = '<img src=x onerror="window.broken = 1"></script>'
VIDEOS = "[...document.querySelectorAll('.video-grid .picture video')].filter((video) => video.src)"
TIMES = (
    f"""() => new Promise((done) => requestAnimationFrame(() => done({VIDEOS}.map((video) => video.currentTime))))"""
)


def trained(workspace: Workspace) -> None:
    """A run "demo" with two checkpoints."""
    run = write_run(workspace, "demo", 200, preview_prompts=(HOSTILE, "a cat"), device="cpu")
    for step in (100, 200):
        (folder_of(run.folder, step) / LORA).touch()


@pytest.fixture
def grid(server: Server) -> Grid:
    """Two prompts by base model and two checkpoints; each video counts its frames by brightness."""
    workspace = Workspace.open(server.workspace)
    trained(workspace)
    made = Grid.create(workspace, GridSettings(run="demo"))
    for cells in made.state().cells:
        for place, cell in enumerate(cells):
            frames = np.zeros((FRAMES, 64, 64, 3), np.uint8)
            frames[..., place] = np.arange(FRAMES)[:, None, None] * 7
            record = {"settings": cell.settings.model_dump(mode="json"), "loras": [], "seconds": 1.0, "steps": 2}
            write_sample(made.video(cell.key), frames, FPS, record)
    return made


@pytest.fixture
def viewport() -> tuple[int, int]:
    return 1300, 1000


def at_one_frame(page: Page, videos: int, number: int) -> None:
    """All videos stand in the middle of a frame."""
    page.wait_for_function(
        f"""([count, wanted]) => {{
            const videos = {VIDEOS};
            return videos.length === count && videos.every((video) => video.paused && !video.seeking
                && Math.floor(video.currentTime * 8) === wanted);
        }}""",
        arg=[videos, number],
    )


def runs_in_lock_step(page: Page, videos: int) -> None:
    """While it plays, the videos are within a frame of one another; a busy machine may hold one up for a while."""
    page.wait_for_function(f"count => {VIDEOS}.filter((video) => !video.paused).length === count", arg=videos)

    def apart() -> list[float]:
        seen = [page.evaluate(TIMES) for _ in range(6) if page.wait_for_timeout(90) is None]
        return [max(times) - min(times) for times in seen]

    page.wait_for_function(f"{VIDEOS}.some((video) => video.currentTime > 0)")
    until(lambda: sorted(apart())[3] < 1 / FPS)


def test_a_grid_plays_in_lock_step_and_remembers(server: Server, grid: Grid, page: Page) -> None:
    server.start()
    page.goto(server.url)
    page.get_by_role("tab", name="Compare").click()
    page.locator(".video-grid figure[data-state=done]").nth(5).wait_for()
    runs_in_lock_step(page, 6)

    page.locator(".video-grid button.play").click()
    stops = ".video-grid tbody :is([tabindex='0'], button:not([tabindex]))"
    assert page.locator(stops).count() == 1
    page.locator(stops).focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("r")
    page.locator(".video-grid figure.rejected").wait_for()
    page.keyboard.press("r")
    page.locator(".video-grid figure.rejected").wait_for(state="detached")
    page.keyboard.press("Enter")
    page.locator("dialog.large video").wait_for()
    page.keyboard.press("Escape")

    page.locator(".video-grid .scrub").fill("20")
    at_one_frame(page, 6, 20)
    page.keyboard.press("ArrowRight")
    at_one_frame(page, 6, 21)
    page.locator(".video-grid button.back").click()
    at_one_frame(page, 6, 20)

    page.locator(".video-grid .mode").select_option("difference")
    page.wait_for_function(  # at frame 20 the base model is 140 red, step 100 as much green: the difference is both
        """() => { const canvas = document.querySelectorAll('.video-grid canvas')[1];
            if (!canvas?.width) return false;
            const [red, green, blue] = canvas.getContext('2d').getImageData(32, 32, 1, 1).data;
            return red > 100 && green > 100 && blue < 60; }"""
    )
    page.locator(".video-grid .speed").select_option("0.5")
    page.locator(".video-grid .star").nth(1).click()
    page.locator(".video-grid figure.starred").wait_for()
    page.locator(".video-grid .pick").nth(0).click()
    page.locator(".video-grid .pick").nth(1).click()
    page.locator(".video-grid button.wipe").click()
    page.locator("dialog .divider").fill("25")
    assert page.evaluate("document.querySelector('.wiping').style.getPropertyValue('--at')") == "25%"
    page.keyboard.press("Escape")
    page.locator(".video-grid button.vote").click()
    assert page.locator("dialog figcaption").all_text_contents() == ["?", "?"]
    page.locator("dialog button.left").click()
    page.locator("dialog .after", has_text="1 of 1 votes").wait_for()
    page.keyboard.press("Escape")
    assert len(grid.marked.votes) == 1
    assert grid.state().cells[0][1].starred

    page.reload()
    page.locator(".video-grid figure.starred").wait_for()
    assert page.locator(".video-grid .speed").input_value() == "0.5"
    assert page.locator(".video-grid .mode").input_value() == "difference"
    page.locator(".video-grid .picture").nth(4).click()
    page.locator("dialog .details dd", has_text="a cat").wait_for()
    with page.expect_download() as download:
        page.locator("dialog button.gif").click()
    assert download.value.suggested_filename == "demo-2-2.gif"
    page.locator("dialog button.use").click()
    page.wait_for_function("document.querySelector('#SampleSettings-prompt textarea')?.value === 'a cat'")
    assert page.evaluate("window.broken") is None

    server.kill()
    page.goto(export_page(grid).as_uri())
    runs_in_lock_step(page, 6)
    page.locator(".video-grid button.play").click()
    page.locator(".video-grid .scrub").fill("7")
    at_one_frame(page, 6, 7)
    assert page.evaluate("window.broken") is None


def test_a_run_that_ends_while_the_page_is_open_is_offered_for_a_grid(server: Server, page: Page) -> None:
    server.start()
    page.goto(server.url)
    page.get_by_role("button", name="Train the demo").wait_for()
    trained(Workspace.open(server.workspace))
    page.get_by_role("tab", name="Compare").click()
    page.wait_for_function("document.querySelector('#GridSettings-run input')?.value === 'demo'")
    page.locator("#grid-cost", has_text="14 videos: 2 rows by 7 columns").wait_for()
    page.get_by_role("tab", name="Curves").click()
    page.wait_for_function("Object.values(localStorage).includes('curves')")
    page.reload()
    page.locator("#tab-curves-button[aria-selected=true]").wait_for()
    page.locator("#compared").wait_for()


def test_nothing_plays_by_itself_where_less_motion_is_wanted(server: Server, grid: Grid, page: Page) -> None:
    page.emulate_media(reduced_motion="reduce")
    server.start()
    page.goto(f"{server.url}&tab=compare")
    page.locator(".video-grid figure[data-state=done]").nth(5).wait_for()
    page.locator(".video-grid button.play", has_text="Play").wait_for()
    at_one_frame(page, 6, 0)
    page.locator(".video-grid button.play").click()
    runs_in_lock_step(page, 6)
