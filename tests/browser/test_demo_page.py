"""The demo in a real browser: two visitors at once, each with a workspace that the other cannot see."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.browser.stripes import FILES
from tests.patience import PATIENCE, until
from tests.visiting import Demo

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.browser, pytest.mark.long]
FETCH = "path => fetch('gradio_api/file=' + path).then(answer => answer.status)"
CALL = """([operation, values]) => fetch(`api/v1/call/${operation}`, {method: 'POST', body: JSON.stringify(values)})
    .then((answer) => answer.json())"""


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    running = Demo(tmp_path_factory.mktemp("demo") / "sessions", OMP_NUM_THREADS="1")
    yield running
    running.close()


def visit(browser: Browser, demo: Demo, width: int) -> Page:
    page = browser.new_context(viewport={"width": width, "height": 900}).new_page()
    page.set_default_timeout(PATIENCE * 1000)
    page.on("pageerror", lambda error: pytest.fail(f"the page's own script failed: {error}"))
    page.goto(demo.url)
    page.locator(".notice").wait_for()  # by way of the page that says that the workspace is prepared
    return page


def test_two_visitors_at_once_see_their_own(browser: Browser, demo: Demo) -> None:
    one, two = visit(browser, demo, 1400), visit(browser, demo, 390)
    with one.expect_file_chooser() as chooser:
        one.get_by_role("button", name="Choose files").first.click()
    chooser.value.set_files([str(path) for path in FILES if path.suffix == ".mp4"][:2])
    one.wait_for_function("location.hash.startsWith('#/dataset/')")
    one.locator("main wb-video").nth(1).wait_for()
    address = str(one.evaluate("location.hash"))
    until(lambda: list(demo.sessions.glob("*/workspace/datasets/*/metadata.jsonl")))
    (made,) = demo.sessions.glob("*/workspace/datasets/*/metadata.jsonl")
    two.evaluate("(address) => { location.hash = address }", address)
    two.get_by_text("no dataset").first.wait_for()

    # By guessing: the cookie of one does not open what is the other's, though its path is known to the letter.
    assert one.evaluate(FETCH, str(made)) == 200
    assert two.evaluate(FETCH, str(made)) == 403
    assert two.evaluate(FETCH, "/etc/passwd") == 403
    assert one.evaluate("document.cookie") == "", "the cookie is out of reach of scripts"

    # An operation that the demo disables responds with an error, even when called directly.
    refused = one.evaluate(CALL, ["publishing/lora", {"name": "runs/demo", "repo_id": "me/x"}])
    assert "switched off in this demo" in refused["error"]

    # A reload comes back to the same workspace.
    one.reload()
    one.locator("main wb-video").nth(1).wait_for()
    for page in (one, two):
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "it scrolls sideways"
        page.context.close()
