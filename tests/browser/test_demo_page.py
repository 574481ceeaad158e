"""The demo in a real browser: two visitors at once, each with a workspace that the other cannot see."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.patience import PATIENCE
from tests.visiting import Demo
from workbench.workspace import read_json

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = [pytest.mark.browser, pytest.mark.long]


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
    page.locator("#demo-banner").wait_for()  # by way of the page that says that the workspace is prepared
    return page


def test_two_visitors_at_once_see_their_own(browser: Browser, demo: Demo, tmp_path: Path) -> None:
    one, two = visit(browser, demo, 1400), visit(browser, demo, 390)
    one.get_by_role("tab", name="Dataset").click()
    one.locator("#dataset-title textarea, #dataset-title input").fill("Of the first")
    one.locator("#create-dataset").click()
    one.wait_for_function("document.querySelector('#dataset-choice input').value === 'of-the-first'")
    made = next(demo.sessions.glob("*/workspace/datasets/of-the-first"))
    assert "of-the-first" not in two.content()

    # By guessing: the cookie of one does not open what is the other's, though its path is known to the letter.
    secret = made / "words.txt"
    secret.write_text("the first one's captions")
    fetch = "path => fetch('/gradio_api/file=' + path).then(answer => answer.status)"
    assert one.evaluate(fetch, str(secret)) == 200
    assert two.evaluate(fetch, str(secret)) == 403
    assert two.evaluate(fetch, "/etc/passwd") == 403
    assert one.evaluate("document.cookie") == "", "the cookie is out of reach of scripts"

    # A reload comes back to the same workspace.
    one.reload()
    one.wait_for_function("document.querySelector('#dataset-choice input')?.value === 'of-the-first'")

    # The replay: its end shows another video than its beginning.
    one.get_by_role("tab", name="Replay").click()
    video = one.locator(".replay video").nth(1)
    before = video.get_attribute("src")
    one.locator(".replay input[type=range]").fill("1000")
    record = read_json(Path("assets/replays/stripes/replay.json"))
    one.get_by_text(f"step {record['steps']} of {record['steps']}").wait_for()
    assert video.get_attribute("src") != before
    one.wait_for_function("[...document.querySelectorAll('.replay video')].every(video => video.readyState >= 2)")
    one.screenshot(path=str(tmp_path / "wide.png"))
    one.set_viewport_size({"width": 390, "height": 900})
    one.screenshot(path=str(tmp_path / "narrow.png"))
    for page in (one, two):
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "it scrolls sideways"
