"""The frame of the page: addresses, the window's title, the palette, and what happens while the server is away."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from playwright.sync_api import expect

from tests.browser.conftest import Site, training
from tests.patience import until
from tests.written_run import ended, write_run
from workbench.dataset_builder import Dataset
from workbench.operations.runs import show
from workbench.runs.run import Run

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = [pytest.mark.browser, pytest.mark.long]
PLACES = {"h": "#/", "d": "#/dataset", "t": "#/train", "s": "#/sample", "c": "#/compare", "l": "#/loras"}


@pytest.fixture(scope="module")
def filled(site: Site) -> Iterator[Site]:
    """A run that is going on, one that ended, and a dataset."""
    write_run(site.workspace, "ended", 40)
    Dataset.create(site.workspace, "Cats")
    with training(write_run(site.workspace, "hiker-2", 100), step=47, total=100):
        yield site


def here(page: Page) -> str:
    return str(page.evaluate("location.hash"))


def test_every_place_has_an_address_and_back_leads_to_where_one_was(filled: Site, page: Page) -> None:
    filled.open(page, "#/train/ended/log")
    page.locator("main pre, main .log").first.wait_for()
    page.keyboard.press("g")
    page.keyboard.press("l")
    page.get_by_role("heading", name="LoRAs", exact=True).wait_for()
    page.go_back()
    page.locator("main h1", has_text="ended").wait_for()
    assert here(page) == "#/train/ended/log"
    page.reload()
    page.locator("main h1", has_text="ended").wait_for()
    page.go_forward()
    page.get_by_role("heading", name="LoRAs", exact=True).wait_for()
    for key, address in PLACES.items():
        page.keyboard.press("g")
        page.keyboard.press(key)
        page.wait_for_function("(address) => location.hash === address", arg=address)
    page.evaluate("location.hash = '#/nowhere'")
    page.get_by_role("heading", name="Page not found").wait_for()


def test_the_window_says_how_far_the_run_is_and_what_is_open(filled: Site, page: Page) -> None:
    filled.open(page, "#/loras")
    page.wait_for_function("document.title === '47% · LoRAs · Video LoRA Workbench'")
    page.evaluate("location.hash = '#/train/ended'")
    page.wait_for_function("document.title === '47% · ended · Video LoRA Workbench'")
    page.wait_for_function("document.activeElement.tagName === 'H1'")  # the focus goes to the heading of a new object


def test_the_example_of_home_is_explored_as_a_run_is(filled: Site, page: Page) -> None:
    filled.open(page)
    line = page.locator("[data-id=run-hiker-2]")
    line.get_by_text("Training 47%.").wait_for()
    assert "of 100" not in line.inner_text()
    page.get_by_role("link", name="Explore this run").click()
    page.locator("wb-replay .pill", has_text="Finished").wait_for()
    page.locator("wb-replay wb-chart svg").wait_for()
    page.locator("wb-replay .pair").nth(1).wait_for()
    step = page.get_by_label("Training step")
    step.focus()
    page.keyboard.press("Home")
    page.get_by_text("Before training, at the start").wait_for()
    assert here(page) == "#/train/example"


def test_what_is_between_backticks_in_a_message_is_code(filled: Site, page: Page) -> None:
    filled.open(page)
    page.evaluate(
        "document.dispatchEvent(new CustomEvent('workbench-toast', {detail: {text: 'run `<b>make</b>` first'}}))"
    )
    page.locator(".toast code", has_text="<b>make</b>").wait_for()


def test_the_palette_finds_and_opens_by_keyboard_alone(filled: Site, page: Page) -> None:
    filled.open(page)
    page.keyboard.press("Control+k")
    field = page.get_by_role("combobox", name="Search or do")
    field.wait_for()
    page.get_by_role("option", name="hiker-2").wait_for()  # objects come a moment later
    page.keyboard.type("hkr2")
    option = page.get_by_role("option", selected=True)
    assert option.inner_text().startswith("hiker-2")
    page.keyboard.press("Enter")
    page.locator("main h1", has_text="hiker-2").wait_for()
    page.keyboard.press("Control+k")
    page.keyboard.type("dark theme")
    page.keyboard.press("Enter")
    page.wait_for_function("document.documentElement.classList.contains('dark')")
    page.reload()
    page.wait_for_function("document.documentElement.classList.contains('dark')")
    page.keyboard.press("Control+k")
    page.keyboard.press("Escape")
    assert not page.locator("dialog[open]").count()


def test_a_click_while_the_server_is_away_is_kept_and_done(filled: Site, page: Page) -> None:
    write_run(filled.workspace, "noted", 20)
    filled.open(page, "#/train/noted/notes")
    note = page.locator("main textarea").first
    note.wait_for()
    filled.server.kill()
    page.locator("wb-app.lost").wait_for()
    page.wait_for_function("document.title.startsWith('Offline')")
    note.fill("written in the dark")
    note.blur()
    page.locator(".lost-banner", has_text=re.compile("kept")).wait_for()
    filled.server.start()
    page.context.request.get(filled.server.url)  # as the cookie does: it outlives the server
    page.locator("wb-app:not(.lost)").wait_for()
    page.wait_for_function("!document.title.startsWith('Offline')")
    until(lambda: show(Run.open(filled.workspace, "noted")).own_notes == "written in the dark")
    assert page.evaluate("location.hash") == "#/train/noted/notes"


def test_figures_are_gray_while_the_server_is_away_and_a_late_click_is_refused(filled: Site, page: Page) -> None:
    run = write_run(filled.workspace, "late", 60)
    with training(run, step=60, total=100):
        filled.open(page, "#/train/late")
        step = page.locator("wb-run .facts .live").first
        expect(step).to_have_text("60")
        expect(step).to_have_css("font-style", "normal")
        filled.server.kill()
        page.locator("wb-app.lost").wait_for()
        expect(step).to_have_css("font-style", "italic")
        expect(step).to_have_text("60")  # the last known, in gray
        page.get_by_role("button", name="Pause", exact=True).click()
        page.locator(".lost-banner", has_text="1 click kept").wait_for()
        ended(run.folder, "finished", 0)
        filled.server.start()
        page.context.request.get(filled.server.url)
        page.locator("wb-app:not(.lost)").wait_for()
        page.locator(".toast.bad", has_text="finished").wait_for()  # too late to pause it
        expect(page.locator("wb-run .pill")).to_contain_text("Finished")
        expect(step).to_have_css("font-style", "normal")


def test_a_restarted_server_shows_the_truth(filled: Site, page: Page) -> None:
    filled.open(page, "#/train")
    page.locator("main", has_text="ended").wait_for()
    filled.server.kill()
    write_run(filled.workspace, "meanwhile", 20)
    filled.server.start()
    page.locator("main", has_text="meanwhile").wait_for()
