"""Compare on the page: videos on one clock, marks by the keyboard, wipe, blind vote and film; new comparisons."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.browser.conftest import Site
from tests.patience import PATIENCE
from tests.written_grid import run_to_compare
from workbench.compare import Grid, GridSettings
from workbench.sampler.samples import new_id, video_path, write_sample
from workbench.sampler.settings import SampleSettings

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.long]
FRAMES, FPS = 9, 8
HOSTILE = '<img src=x onerror="window.broken = 1"></script>'
VIDEOS = "[...document.querySelectorAll('wb-grid .cell video')]"


@pytest.fixture(scope="module")
def grid(site: Site) -> Grid:
    """Two prompts by base model and two checkpoints; each video counts its frames by brightness."""
    run_to_compare(site.workspace, (HOSTILE, "a cat"))
    made = Grid.create(site.workspace, GridSettings(run="first"))
    for cells in made.state().cells:
        for place, cell in enumerate(cells):
            frames = np.zeros((FRAMES, 64, 96, 3), np.uint8)
            frames[..., place] = np.arange(FRAMES)[:, None, None] * 20
            record = {"settings": cell.settings.model_dump(mode="json"), "loras": [], "seconds": 1.0, "steps": 2}
            write_sample(made.video(cell.key), frames, FPS, record)
    return made


BACK = """() => new Promise((done) => {
    let before = Infinity, back = 0;
    const look = setInterval(() => {
        const { currentTime: now } = document.querySelector('wb-grid .cell video');
        back = now < before && before < 1.1 && before - now < 0.3 ? back + 1 : back;
        before = now;
        if (back > 3) { clearInterval(look); done(true); }
    }, 20);
})"""


@pytest.fixture(autouse=True)
def patient(page: Page) -> None:
    page.set_default_timeout(1000 * PATIENCE)


def at_one_frame(page: Page, number: int) -> None:
    shows_it = f"one.paused && Math.floor({FPS} * one.currentTime + 0.01) === wanted"
    page.wait_for_function(f"wanted => {VIDEOS}.length === 6 && {VIDEOS}.every((one) => {shows_it})", arg=number)


def test_videos_of_a_grid_are_one_clock_and_marked_by_the_keyboard(site: Site, grid: Grid, page: Page) -> None:
    site.open(page, f"#/compare/{grid.name}")
    page.wait_for_function(f"{VIDEOS}.length === 6 && {VIDEOS}.every((one) => !one.paused && one.readyState > 1)")
    page.locator("wb-scrubber input").fill("6")
    at_one_frame(page, 5)
    page.locator("body").press(".")
    at_one_frame(page, 6)

    page.locator(".cell[tabindex='0']").focus()
    for key in ("ArrowRight", "ArrowDown", "s"):
        page.keyboard.press(key)
    page.locator(".cell[data-id='1-1'] .mark[aria-pressed=true]").wait_for()
    page.keyboard.press("x")
    page.locator(".cell.rejected").wait_for()
    page.keyboard.press("x")
    page.locator(".cell.rejected").wait_for(state="detached")
    page.keyboard.press("b")
    page.locator(".column-head .state.good").wait_for()
    page.keyboard.press("Enter")
    page.locator("dialog.large-video dd", has_text="a cat").wait_for()
    with page.expect_download() as download:
        page.get_by_role("button", name="Download as GIF").click()
    assert download.value.suggested_filename.endswith("-2-2.gif")
    page.keyboard.press("Escape")
    page.locator("dialog.large-video").wait_for(state="detached")
    page.wait_for_function("document.activeElement.dataset.id === '1-1'")
    assert page.evaluate("window.broken") is None


def test_two_under_a_wipe_and_checkpoint_after_checkpoint(site: Site, grid: Grid, page: Page) -> None:
    site.open(page, f"#/compare/{grid.name}")
    page.locator(".cell[data-id='1-2']").wait_for()
    page.locator(".cell[data-id='1-2']").focus()
    page.keyboard.press("w")
    page.locator(".wipe .name.right", has_text="Step 200").wait_for()
    page.locator(".wipe input").fill("25")
    assert page.evaluate("document.querySelector('.wipe').style.getPropertyValue('--x')") == "25%"
    page.select_option("wb-wipe select[name=right]", label="Step 100")
    page.locator(".wipe .name.right", has_text="Step 100").wait_for()
    page.reload()  # the address says the mode, and what was chosen is kept
    page.locator(".wipe .name.right", has_text="Step 100").wait_for()
    page.get_by_role("link", name="Epochs").click()
    page.locator(".film-name", has_text="Step 200").wait_for()
    page.locator(".film-view input").fill("0")
    page.locator(".film-name", has_text="Base model").wait_for()


def test_a_blind_vote_hides_names_until_its_end(site: Site, grid: Grid, page: Page) -> None:
    votes = len(grid.marked.votes)
    site.open(page, f"#/compare/{grid.name}/vote")
    page.locator(".vote p", has_text="Pair 1 of 6").wait_for()
    assert "Step" not in page.locator(".vote").inner_text()
    for number, key in ((2, "ArrowLeft"), (3, "ArrowRight"), (4, "ArrowDown")):
        page.keyboard.press(key)
        page.locator(".vote p", has_text=f"Pair {number} of 6").wait_for()
    page.get_by_role("button", name="Show the result").click()
    page.locator(".vote td", has_text="too few votes to say").first.wait_for()
    assert len(grid.marked.votes) == votes + 3


def test_a_comparison_is_proposed_changed_removed_and_brought_back(site: Site, grid: Grid, page: Page) -> None:
    site.open(page, "#/compare")
    page.locator(".tile", has_text="base, 2 checkpoints").wait_for()
    page.get_by_role("button", name="New comparison").first.click()
    page.locator("dialog [role=status]", has_text="14 videos: 2 rows by 7 columns").wait_for()
    page.locator(".chip", has_text="Step 100").click()
    page.locator("dialog [role=status]", has_text="8 videos: 2 rows by 4 columns").wait_for()
    page.fill("dialog input[name=scales]", "loud")
    page.locator("dialog [role=alert]", has_text="scales has 'loud'").wait_for()
    page.keyboard.press("Escape")

    page.goto(page.url.partition("#")[0] + f"#/compare/{grid.name}")
    page.locator(".bar details.menu summary").click()
    page.get_by_role("button", name="Delete this comparison").click()
    page.wait_for_function("location.hash === '#/compare'")
    page.locator(".toast .button", has_text="Undo").click()
    page.wait_for_function(f"location.hash === '#/compare/{grid.name}'")
    page.locator(".cell[data-id='1-2']").wait_for()


def test_samples_stand_side_by_side(site: Site, page: Page) -> None:
    ids = []
    for number in range(2):
        settings = SampleSettings(prompt=f"a dog {number}", seed=number)
        record = {"settings": settings.model_dump(mode="json"), "seed": number, "fps": 8.0, "frames": 9}
        ids.append(new_id())
        frames = np.full((9, 48, 96, 3), 80 * number, np.uint8)
        write_sample(video_path(site.workspace, ids[-1]), frames, 8, record)
    site.open(page, "#/sample")
    for tile in (0, 1):
        page.locator(".sample-tile").nth(tile).hover()
        page.locator(".sample-tile input").nth(tile).check()
    page.get_by_role("link", name="Side by side").click()
    page.locator(".column-head", has_text="dog 1").wait_for()
    page.locator(".cell").nth(1).wait_for()
    assert not page.get_by_role("link", name="Blind vote").count()


def test_videos_go_forward_and_backward_and_columns_get_a_size(site: Site, grid: Grid, page: Page) -> None:
    site.open(page, f"#/compare/{grid.name}")
    page.wait_for_function(f"{VIDEOS}.length === 6 && {VIDEOS}.every((one) => one.readyState > 1)")
    page.get_by_role("button", name="Forward and backward in turn").click()
    assert page.evaluate(BACK)
    page.get_by_role("button", name="Pause").click()
    page.get_by_label("Size", exact=True).fill("300")
    page.wait_for_function("document.querySelector('.comparison .cell').clientWidth === 300")
    page.reload()
    page.wait_for_function("document.querySelector('.comparison .cell')?.clientWidth === 300")
    page.get_by_role("button", name="Fit to the window").click()
    page.wait_for_function("document.querySelector('.comparison .cell').clientWidth < 300")
