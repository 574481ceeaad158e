"""The keyboard on lists: each is one tab stop, arrows go through it, and what is chosen keeps the focus."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.server import Server
from tests.browser.test_sample_page import put_samples
from tests.loras.making import layer, put_lora
from tests.test_overview import add_dataset
from workbench.workspace import Workspace

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

pytestmark = [pytest.mark.browser, pytest.mark.long]
STOPS = ":is(button, input, select, textarea, [tabindex]):not([tabindex='-1'])"


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    workspace = Workspace.open(tmp_path)
    for name in ("cat", "cow", "dog"):
        put_lora(workspace, name, layer("blocks.0.to_q", 4, 8, 8))
        add_dataset(workspace, name, "a clip")
    put_samples(workspace, "a cat", "a cow", "a dog")
    running = Server(tmp_path)
    running.start()
    yield running
    running.kill()


def walk(page: Page, items: Locator) -> None:
    """From the first to the last by arrows, and back by Home."""
    items.nth(2).wait_for()
    items.first.focus()
    for number in (1, 2, 2):
        page.keyboard.press("ArrowRight")
        assert items.nth(number).evaluate("one => one === document.activeElement"), number
    page.keyboard.press("Home")
    assert items.first.evaluate("one => one === document.activeElement")


def test_a_list_is_one_tab_stop_and_arrows_go_through_it(server: Server, page: Page) -> None:
    page.goto(f"{server.url}&tab=home")
    for name in ("Newest samples", "Datasets"):
        section = page.locator(f".home section[aria-label='{name}']")
        walk(page, section.locator("li button"))
        assert section.locator(STOPS).count() == 1, name

    page.locator("#tab-loras-button").click()
    boxes = page.locator("#lora-library .card input")
    walk(page, boxes)
    assert page.locator("#lora-library .cards").locator(STOPS).count() == 1
    page.keyboard.press("End")
    page.keyboard.press("Space")
    page.locator("#lora-use").wait_for()
    page.keyboard.press("ArrowLeft")
    page.keyboard.press("Space")
    page.locator("#lora-library .count", has_text="2 chosen").wait_for()
    page.locator("#lora-detail td").first.wait_for()  # the server has answered: both are listed
    assert boxes.nth(1).evaluate("one => one === document.activeElement"), "what is chosen keeps the focus"

    # A row of the LoRA stack: Delete removes it, the arrows left and right go to its scale and its button.
    page.locator("#lora-use").click()
    rows = page.locator("#SampleSettings-loras .lora-row")
    rows.nth(1).wait_for()
    assert [rows.nth(row).locator(STOPS).filter(visible=True).count() for row in (0, 1)] == [1, 1]
    rows.first.locator("select").focus()
    for key, name in (
        ("ArrowRight", "Scale as a number"),
        ("ArrowRight", "Remove this LoRA"),
        ("ArrowLeft", "Scale as a number"),
    ):
        page.keyboard.press(key)
        page.wait_for_function("name => document.activeElement.ariaLabel === name", arg=name)
    page.keyboard.press("ArrowUp")
    assert rows.first.locator("input[type=number]").input_value() == "1.05"
    assert rows.first.locator(STOPS).filter(visible=True).count() == 1
    page.keyboard.press("ArrowLeft")
    rows.first.locator("select").evaluate("one => one === document.activeElement || Promise.reject(one)")
    page.keyboard.press("Delete")
    rows.nth(1).wait_for(state="detached")


def test_a_list_of_choices_is_closed_once_the_tab_key_has_left_its_field(server: Server, page: Page) -> None:
    page.goto(f"{server.url}&tab=sample")
    model = page.locator("#SampleSettings-model input")
    choices = page.locator("#SampleSettings-model [role=option]")
    model.click()
    choices.first.wait_for()
    page.keyboard.press("Tab")
    choices.first.wait_for(state="detached")
    assert model.get_attribute("aria-expanded") == "false"
    assert not model.evaluate("one => one === document.activeElement")
