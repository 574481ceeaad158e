"""The main job by the keyboard alone: clips, captions, a run, a sample, a comparison; no pointer, no script.

Each stop of the Tab key is looked at: it is in sight, marked, and no bar lies over it.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.conftest import Site
from tests.browser.server import frames
from tests.browser.stripes import FILES
from tests.patience import until
from workbench.clips.records import read_clips
from workbench.runs.run import Run

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.long]
MOST_STOPS = 60  # between two things that belong together
MOST_FRAMES = 30
CAPTIONS = "main wb-clips textarea"
# Why the element with the focus cannot be seen, "" where it can.
HIDDEN = """() => {
    const one = document.activeElement;
    if (!one || one === document.body) return '';
    const box = one.getBoundingClientRect();
    const what = one.outerHTML.slice(0, 200);
    if (box.bottom <= 0 || box.top >= innerHeight) return `out of sight: ${what}`;
    const middle = Math.min(Math.max(box.top + box.height / 2, 1), innerHeight - 1);
    const there = document.elementFromPoint(box.left + box.width / 2, middle);
    const bar = there?.closest('.bar, .floating, .top, .start-bar, wb-rail');
    return bar && !bar.contains(one) && !one.contains(bar) ? `below a bar: ${what}` : '';
}"""
# Why a person cannot tell that the element has the focus, "" where it or something around it is outlined. A view's
# heading, which takes the focus from what has gone, shows none: it is where the next Tab begins.
UNMARKED = """() => {
    const one = document.activeElement;
    if (!one || one === document.body || one.matches('main h1')) return '';
    for (let node = one, up = 0; node && up < 4; node = node.parentElement, up += 1) {
        const style = getComputedStyle(node);
        if (style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) > 0) return '';
    }
    return `no sign of the focus: ${one.outerHTML.slice(0, 200)}`;
}"""


def in_sight(page: Page) -> None:
    """What has the focus is seen and marked, at the latest when what it has opened has moved it."""
    for _ in range(MOST_FRAMES):
        frames(page, 2)
        hidden = page.evaluate(HIDDEN) or page.evaluate(UNMARKED)
        if not hidden:
            return
    raise AssertionError(hidden)


def reach(page: Page, place: str, key: str = "Tab") -> None:
    """Press the key until what has the focus is at this place, or in it."""
    page.locator(place).first.wait_for()
    passed = []
    for _ in range(MOST_STOPS):
        page.keyboard.press(key)
        in_sight(page)
        if page.evaluate("place => Boolean(document.activeElement.closest(place))", place):
            return
        passed.append(page.evaluate("document.activeElement.outerHTML.slice(0, 80)"))
    raise AssertionError(f"{place} is not among the next stops of {key}: {passed}")


def press(page: Page, place: str, key: str = "Tab") -> None:
    """Reach a button or a link, and press it."""
    reach(page, place, key)
    page.keyboard.press("Enter")


def type_into(page: Page, place: str, text: str) -> None:
    reach(page, place)
    page.keyboard.press("Control+A")
    page.keyboard.type(text)


def command(page: Page, words: str) -> None:
    """Do something by the palette."""
    page.keyboard.press("Control+k")
    page.get_by_role("combobox", name="Search or do").wait_for()
    page.keyboard.type(words)
    page.get_by_role("option", selected=True, name=re.compile(words)).wait_for()
    page.keyboard.press("Enter")


def test_the_keyboard_alone_does_the_main_job(site: Site, page: Page, tmp_path: Path) -> None:
    clips = tmp_path / "clips"
    clips.mkdir()
    for file in [one for one in FILES if one.suffix == ".mp4"][:4]:
        shutil.copy(file, clips)
    site.open(page)
    name = f"stripes-{tmp_path.name[-1]}"  # another one if the test runs again

    page.keyboard.press("g")
    page.keyboard.press("d")
    page.get_by_role("heading", name="Datasets").wait_for()
    press(page, "main .head summary")
    press(page, "main .menu .button[data-do=add]")
    type_into(page, "main input[data-input=name]", name)
    type_into(page, "main textarea[name=sources]", str(clips))
    press(page, "main wb-task-form .primary")
    page.locator("wb-import .strip", has_text="4 taken").wait_for()  # until then the clips' order may change
    for number in range(4):
        type_into(page, CAPTIONS, f"a red circle on stripes, {number}")
    page.keyboard.press("Tab")
    until(lambda: all(clip.text for clip in read_clips(site.workspace.dataset(name))))

    press(page, "main .head .primary", "Shift+Tab")
    type_into(page, "wb-setting [name=steps]", "4")
    type_into(page, "wb-setting [name=preview_prompts]", "a red circle on a striped background")
    page.locator("wb-new-run .start-bar .primary:not(:disabled)").wait_for()
    command(page, "Start")
    page.locator("wb-run .pill", has_text="Finished").wait_for()
    assert Run.open(site.workspace, name).status.step == 4

    press(page, "wb-run a[href^='#/sample/with']")
    press(page, "main .button[data-do=generate]")
    page.locator("wb-result figure video").wait_for()
    press(page, "wb-result .button[data-do=compare]")
    page.locator("wb-grid .cell video").first.wait_for()
