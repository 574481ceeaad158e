"""Clicks that count. The mouse goes down and up a moment apart: where the page moves in between, no button is pressed.

A person sees that and clicks again; so does `click` here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from playwright.sync_api import Locator

WATCH = """(one) => {
    window.clicked = null;
    addEventListener('click', (event) => { window.clicked = event.target }, { capture: true, once: true });
}"""
# The browser gives a click whose two ends met different elements to what holds both, or to nobody.
# An option of a list is chosen as the mouse goes down, and the list closes: its click always goes elsewhere.
MISSED = """(one) => one.role !== 'option' && (window.clicked === null
    || (window.clicked !== one && window.clicked?.contains(one)))"""


MOST = 5  # clicks


def click(locator: Locator, **options: Any) -> None:
    """`locator.click(**options)`, again where it met the element's surroundings. Takes the place of that method.

    A trial clicks nothing.
    """
    from playwright.sync_api import Error

    for _ in range(MOST):
        element = locator.element_handle(timeout=options.get("timeout"))
        element.evaluate(WATCH)
        locator.page_click(**options)  # type: ignore[attr-defined]  # conftest: Playwright's own
        try:
            if options.get("trial") or not element.evaluate(MISSED):
                return
        except Error:  # the page is another one now: the click did that
            return
    raise AssertionError(f"{MOST} clicks on {locator} met something else")
