"""A click counts although the page moves under the mouse."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Page

pytestmark = pytest.mark.browser
# The button moves away as the mouse goes down on it for the first time.
PAGE = """<body><p id="above"></p><button onclick="this.dataset.clicks = Number(this.dataset.clicks ?? 0) + 1"
    onmousedown="document.getElementById('above').style.height = '300px'">Remove</button></body>"""


def test_a_click_under_which_the_page_moved_is_done_again(page: Page) -> None:
    page.set_content(PAGE)
    button = page.get_by_role("button", name="Remove")
    button.page_click()  # type: ignore[attr-defined]
    assert button.get_attribute("data-clicks") is None
    page.set_content(PAGE)
    button.click()
    assert button.get_attribute("data-clicks") == "1"


def test_a_trial_and_a_list_that_closes_as_the_mouse_goes_down_are_not_clicked_again(page: Page) -> None:
    page.set_content(PAGE)
    button = page.get_by_role("button", name="Remove")
    button.click(trial=True)
    assert button.get_attribute("data-clicks") is None
    page.set_content(
        "<body data-chosen=0><p role=option onmousedown='document.body.dataset.chosen++; hidden = true'>one</p></body>"
    )
    page.get_by_role("option").click()
    assert page.locator("body").get_attribute("data-chosen") == "1"
