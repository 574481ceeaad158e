"""The main job by the keyboard alone: clips, captions, a run, a sample, a grid; no pointer, no focus set by a script.

Check each tab stop: it is in view, shows that it has the focus, and nothing covers it.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.server import Server, frames
from tests.browser.stripes import FILES
from workbench.runs.run import Run
from workbench.workspace import Workspace

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.long]
MOST_STOPS = 80  # between two things that belong together
MOST_FRAMES = 30
# Why the element with the focus cannot be seen, "" where it can. Gradio's drop zones hold an input that is not seen.
HIDDEN = """() => {
    const one = document.activeElement;
    if (!one || one === document.body || one.type === 'file') return '';
    const box = one.getBoundingClientRect();
    const what = one.outerHTML.slice(0, 200);
    if (box.bottom <= 0 || box.top >= innerHeight) return `out of sight: ${what}`;
    const middle = Math.min(Math.max(box.top + box.height / 2, 1), innerHeight - 1);
    const there = document.elementFromPoint(box.left + box.width / 2, middle);
    const bar = there?.closest('#start-training, #generate, #main-tabs > .tab-wrapper');
    return bar && !bar.contains(one) && !one.contains(bar) ? `below a bar: ${what}` : '';
}"""


# Why a person cannot tell that the element has the focus, "" where something in or around it is outlined or has a ring.
# A video's and a file field's own parts are the browser's.
UNMARKED = """() => {
    let one = document.activeElement;
    while (one?.shadowRoot?.activeElement) one = one.shadowRoot.activeElement;
    if (!one || one === document.body || one.type === 'file' || one.tagName === 'VIDEO') return '';
    const marked = (node) => {
        const style = getComputedStyle(node);
        const outlined = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0;
        return outlined || /[1-9]/.test(style.boxShadow.replace(/rgba?\\([^)]*\\)|color\\([^)]*\\)/g, ''));
    };
    for (let node = one, up = 0; node && up < 4; node = node.parentElement, up += 1) if (marked(node)) return '';
    return `no sign of the focus: ${one.outerHTML.slice(0, 200)}`;
}"""


def in_sight(page: Page) -> None:
    """What has the focus is seen and marked, at the latest when it has slid in and help that opened has moved it."""
    for _ in range(MOST_FRAMES):
        frames(page, 2)
        hidden = page.evaluate(HIDDEN) or page.evaluate(UNMARKED)
        if not hidden:
            return
    raise AssertionError(hidden)


def reach(page: Page, place: str, key: str = "Tab") -> None:
    """Press the key until what has the focus is at this place, or in it."""
    page.locator(f"{place} >> visible=true").first.wait_for()
    passed = []
    for _ in range(MOST_STOPS):
        page.keyboard.press(key)
        in_sight(page)
        if page.evaluate("place => Boolean(document.activeElement.closest(place))", place):
            return
        passed.append(page.evaluate("document.activeElement.id || document.activeElement.outerHTML.slice(0, 80)"))
    raise AssertionError(f"{place} is not among the next stops of {key}: {passed}")


def press(page: Page, place: str, key: str = "Tab") -> None:
    """Reach a button and press it."""
    reach(page, place, key)
    page.keyboard.press("Enter")


def type_into(page: Page, place: str, text: str) -> None:
    reach(page, place)
    page.keyboard.press("Control+A")
    page.keyboard.type(text)


def open_tab(page: Page, name: str) -> None:
    """From wherever the focus is: back to the rail, and along it."""
    reach(page, "#main-tabs > .tab-wrapper [role=tab]", "Shift+Tab")
    for _ in range(6):
        if page.evaluate("document.activeElement.id") == f"tab-{name}-button":
            return
        page.keyboard.press("ArrowDown")
    raise AssertionError(f"the arrows do not reach the tab {name}")


def test_the_keyboard_alone_does_the_main_job(server: Server, page: Page, tmp_path: Path) -> None:
    workspace = Workspace.open(server.workspace)
    clips = tmp_path / "clips"
    clips.mkdir()
    for file in [one for one in FILES if one.suffix == ".mp4"][:4]:
        shutil.copy(file, clips)
    server.start()
    page.goto(server.url)
    page.locator(".next-steps button").nth(1).wait_for()

    press(page, ".next-steps li:nth-child(2) button")
    type_into(page, "#dataset-title", "Stripes")
    press(page, "#create-dataset")
    page.get_by_role("heading", name="Stripes").wait_for()
    type_into(page, "#dataset-path", str(clips))
    press(page, "#import-clips")
    page.locator("#clips .card").nth(3).wait_for()
    for number in range(4):
        type_into(page, f"#clips .card:nth-of-type({number + 1}) textarea", f"a red circle on stripes, {number}")
    page.keyboard.press("Tab")
    page.locator("#clips .card .state", has_text="saved").nth(3).wait_for()

    press(page, "#use-dataset", "Shift+Tab")
    page.locator("#start-training").wait_for()
    type_into(page, "#TrainSettings-steps", "4")
    type_into(page, "#TrainSettings-preview_prompts", "a red circle on a striped background")
    press(page, "#start-training")
    page.locator("#run-head .badge.good").wait_for()
    page.locator("#previews video").first.wait_for()
    assert Run.open(workspace, "stripes").status.step == 4

    press(page, "#sample-run")
    press(page, "#generate")
    page.locator("#sample-result figure.result").wait_for()
    open_tab(page, "compare")
    press(page, "#grid-make")
    page.locator(".video-grid figure[data-state=done]").first.wait_for()
