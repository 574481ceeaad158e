"""A server over a workspace of its own, and a browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from scripts.browser import REMEDY, find
from tests.browser.server import Server, launch
from tests.patience import PATIENCE
from workbench import jobs
from workbench.workspace import Workspace

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    folder = tmp_path / "workspace"
    workspace = Workspace.open(folder)
    running = Server(folder)
    yield running
    running.kill()
    for job in [*workspace.runs.glob("*"), workspace.samples / ".worker"]:
        jobs.kill(job)


@pytest.fixture(scope="module")  # no longer: its event loop would stay in the thread and break other tests
def browser() -> Iterator[Browser]:
    from playwright.sync_api import sync_playwright

    path = find()
    if path is None:
        pytest.fail(REMEDY, pytrace=False)
    with sync_playwright() as playwright:
        opened = launch(playwright, path)
        yield opened
        opened.close()


@pytest.fixture
def viewport() -> tuple[int, int]:
    """Width and height of the window; a file may choose another."""
    return 1400, 900


@pytest.fixture
def page(browser: Browser, viewport: tuple[int, int]) -> Iterator[Page]:
    """A fresh browser profile; what goes wrong inside the page fails the test at once."""
    profile = browser.new_context(viewport={"width": viewport[0], "height": viewport[1]})
    opened = profile.new_page()
    opened.set_default_timeout(PATIENCE * 1000)
    opened.on("pageerror", lambda error: pytest.fail(f"the page's own script failed: {error}"))
    yield opened
    profile.close()
