"""The clip grid and the timeline in a real browser: typing, paging, selecting, dragging, and what may never be lost."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.browser import parts_page
from tests.patience import PATIENCE, until
from tests.serving import serve
from workbench.clips.records import write_clips
from workbench.dataset_builder.checks.findings import finding_of, write_report
from workbench.dataset_builder.dataset import Dataset
from workbench.workspace import Workspace

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

pytestmark = [pytest.mark.browser, pytest.mark.long]
HOSTILE = '<img src=x onerror="window.broken = 1"><b>bold</b>'


@pytest.fixture(scope="module")
def many(imported: Path, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """The six clips five times over, so that there are two pages of 24; the first is hostile in every field."""
    workspace = Workspace.open(tmp_path_factory.mktemp("grid") / "workspace")
    shutil.copytree(imported, workspace.dataset("squares"))
    dataset = Dataset.open(workspace, "squares")
    originals = dataset.clips
    records = []
    for number in range(30):
        clip = originals[number % 6]
        name = f"clips/{number:02}.mp4"
        os.link(dataset.path_of(clip), dataset.folder / name)
        records.append(clip.changed(file_name=name, source=f"take {number}.mov", text=f"caption {number}"))
    records[0] = records[0].changed(text=HOSTILE, source=HOSTILE.replace("/", ""), tags=(HOSTILE,))
    write_clips(dataset.folder, records)
    hostile = finding_of("still", "", [records[1]], title=HOSTILE)
    write_report(dataset.folder, 0.0, "any", records, [hostile])
    return dataset


class Events:
    """What the page told its host so far: pairs of name and data."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self._taken: dict[str, int] = {}

    def next(self, page: Page, name: str) -> Any:
        """The data of the newest event of that name; waits for one that was not asked for before."""
        for _ in range(400):
            found = self.of(name)
            if len(found) > self._taken.get(name, 0):
                self._taken[name] = len(found)
                return found[-1]
            page.wait_for_timeout(50)
        pytest.fail(f"no new event {name!r} came")

    def of(self, name: str) -> list[Any]:
        lines = self.file.read_text().splitlines()
        return [data for event, data in map(json.loads, lines) if event == name]


@pytest.fixture
def events(many: Dataset) -> Events:
    file = many.folder.parent.parent / parts_page.EVENTS
    file.write_text("")
    return Events(file)


@pytest.fixture(scope="module")
def address(many: Dataset) -> Iterator[str]:
    server, address = serve("tests.browser.parts_page", many.folder.parent.parent)
    yield address
    server.kill()
    server.communicate()


@pytest.fixture
def page(browser: Browser, address: str) -> Iterator[Page]:
    profile = browser.new_context(viewport={"width": 1200, "height": 1000})
    opened = profile.new_page()
    opened.set_default_timeout(PATIENCE * 250)
    opened.on("pageerror", lambda error: pytest.fail(f"the page's own script failed: {error}"))
    opened.goto(address)
    opened.locator(".card").first.wait_for()
    opened.locator(".size").select_option("24")
    card(opened, 24).wait_for(state="detached")
    yield opened
    profile.close()


def card(page: Page, number: int) -> Locator:
    return page.locator(f'.card[data-name="clips/{number:02}.mp4"]')


def caption(page: Page, number: int) -> Locator:
    return card(page, number).locator("textarea")


def says(where: Locator, selector: str, text: str) -> None:
    where.locator(selector, has_text=text).wait_for()


def test_captions_are_typed_by_keyboard_alone(page: Page, many: Dataset, events: Events) -> None:
    caption(page, 1).focus()
    page.keyboard.press("Control+A")
    page.keyboard.type("a first one")
    page.keyboard.press("Control+Enter")
    page.keyboard.press("End")
    page.keyboard.type(", and more")
    says(card(page, 1), ".state", "saved")
    says(card(page, 2), ".state", "saved")
    assert [many.clip(f"clips/{n:02}.mp4").text for n in (1, 2)] == ["a first one", "caption 2, and more"]
    assert many.clip("clips/01.mp4").caption_by == "hand"
    assert events.next(page, "changed")["file_name"] in ("clips/01.mp4", "clips/02.mp4")

    page.keyboard.type(" words")  # and the page is turned before a moment has passed
    page.keyboard.press("PageDown")
    caption(page, 24).wait_for()
    page.wait_for_function("document.activeElement.closest('.card')?.dataset.name === 'clips/24.mp4'")
    page.keyboard.press("PageUp")
    caption(page, 2).wait_for()
    assert caption(page, 2).input_value() == "caption 2, and more words"
    says(card(page, 2), ".by", "by hand")
    # The page shows what was typed before the server has it, and "by hand" stands there since the first edit.
    until(lambda: many.clip("clips/02.mp4").text == "caption 2, and more words")

    page.keyboard.press("Escape")
    page.keyboard.press("Control+z")
    assert events.next(page, "undo") == {"dataset": "squares"}
    page.keyboard.press("ArrowRight")
    page.keyboard.press("x")
    page.locator(".card video.playing").wait_for()  # a card that has the focus plays
    page.keyboard.press(" ")
    page.locator(".card video.playing").wait_for(state="detached")
    page.keyboard.press(" ")
    page.locator(".card video.playing").wait_for()
    page.keyboard.press("Enter")
    opened = events.next(page, "open")["file_name"]
    assert events.next(page, "selection")["file_names"] == [opened]


def test_what_somebody_else_wrote_meanwhile_is_kept(page: Page, many: Dataset) -> None:
    for number, choice, expected in ((3, "mine", "my words"), (4, "theirs", "their words")):
        caption(page, number).fill("my words")
        many.set_caption(f"clips/{number:02}.mp4", "their words", by="a-captioner")
        says(card(page, number), ".state", "changed elsewhere")
        says(card(page, number), "blockquote", "their words")
        assert many.clip(f"clips/{number:02}.mp4").text == "their words"
        assert caption(page, number).input_value() == "my words"
        card(page, number).locator(f"button.{choice}").click()
        card(page, number).locator(".other").wait_for(state="hidden")
        if choice == "mine":
            says(card(page, number), ".state", "saved")
        assert caption(page, number).input_value() == expected
        assert many.clip(f"clips/{number:02}.mp4").text == expected


def test_a_server_that_is_away_loses_no_caption(page: Page, many: Dataset) -> None:
    def refuse(route: Any) -> None:
        if "save_caption" in (route.request.post_data or ""):
            route.abort()
        else:
            route.continue_()

    page.route("**/component_server/**", refuse)
    caption(page, 5).fill("typed while it was away")
    says(card(page, 5), ".state", "does not answer")
    page.locator("button.forth").click()
    card(page, 24).wait_for()
    says(page.locator(".clip-grid"), ".unsaved", "05.mp4")
    page.unroute("**/component_server/**")
    page.locator(".unsaved").wait_for(state="hidden")
    assert many.clip("clips/05.mp4").text == "typed while it was away"


def test_a_selection_reaches_over_pages_and_names_are_never_markup(page: Page, events: Events) -> None:
    assert card(page, 0).locator(".name").inner_text() == HOSTILE.replace("/", "")
    assert caption(page, 0).input_value() == HOSTILE
    assert card(page, 1).locator(".mark").inner_text() == HOSTILE
    assert page.evaluate("window.broken") is None

    card(page, 2).locator("input").click()
    card(page, 5).locator("input").click(modifiers=["Shift"])
    says(page.locator(".clip-grid"), ".chosen", "4 clips selected")
    page.locator("button.every").click()
    says(page.locator(".clip-grid"), ".chosen", "30 clips selected")
    while len(events.next(page, "selection")["file_names"]) < 30:
        pass  # the four come first

    page.locator(".search").fill("caption 17")
    card(page, 17).wait_for()
    card(page, 2).wait_for(state="detached")
    assert page.locator(".card").count() == 1


def drag(page: Page, what: Locator, right: float, down: float = 0) -> None:
    box = what.bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    page.mouse.move(x, y)
    page.mouse.down()
    page.mouse.move(x + right, y + down, steps=6)
    page.mouse.up()


def open_timeline(page: Page, number: int) -> None:
    card(page, number).locator(".picture").click()
    page.wait_for_function("(document.querySelector('.stage video')?.readyState ?? 0) >= 2")
    page.wait_for_timeout(100)


def test_the_timeline_cuts_by_mouse_and_by_keyboard(page: Page, many: Dataset, events: Events) -> None:
    open_timeline(page, 1)
    frames = many.clip("clips/01.mp4").frames
    track = page.locator(".track").bounding_box()
    assert track is not None

    drag(page, page.locator(".edge.start"), track["width"] * 4.2 / frames)
    assert events.next(page, "span") == {"clip": "clips/01.mp4", "start_frame": 4, "end_frame": frames}
    assert len(events.of("span")) == 1, "while it is dragged, nobody is told"
    page.locator(".edge.end").focus()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("ArrowLeft")
    assert events.next(page, "span")["end_frame"] == frames - 2
    assert page.locator(".now").inner_text().endswith(f"frame {frames - 3}"), "the last frame of the part is shown"

    page.locator(".timeline").focus()
    page.keyboard.press("Home")
    for _ in range(6):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("i")
    assert events.next(page, "span")["start_frame"] == 6
    page.keyboard.press("m")
    assert 6 in events.next(page, "cuts")["cuts"]
    page.locator(".cut").nth(0).click()
    assert frames // 3 not in events.next(page, "cuts")["cuts"]


def test_a_crop_is_drawn_in_even_numbers_inside_the_picture(page: Page, events: Events) -> None:
    open_timeline(page, 1)
    page.locator(".cropping").click()
    events.next(page, "crop")
    page.locator(".ratio").select_option("1.5")
    left, top, width, height = events.next(page, "crop")["crop"]
    assert abs(width / height - 1.5) < 0.1, "the proportions that were chosen"
    page.locator(".ratio").select_option("0")
    drag(page, page.locator(".grip.se"), -37, 11)
    crop = events.next(page, "crop")["crop"]
    assert crop[:2] == [left, top]
    assert crop[2] < width
    drag(page, page.locator(".box"), 3000, 3000)
    crop = events.next(page, "crop")["crop"]
    assert (crop[0] + crop[2], crop[1] + crop[3]) == (64, 64), "it stops at the border"
    page.locator(".fields input").nth(2).fill("33")
    page.keyboard.press("Enter")
    crop = events.next(page, "crop")["crop"]
    assert crop[2] in (32, 34)
    assert all(number % 2 == 0 for number in crop)
    page.locator(".cropping").click()
    assert events.next(page, "crop")["crop"] is None
