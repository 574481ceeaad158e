"""A page over a workspace of its own that the tests of a file share, and a fresh browser profile for each test."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.browser.conftest import browser, page, viewport
from tests.browser.server import Server
from workbench import jobs
from workbench.workspace import Workspace

if TYPE_CHECKING:
    from playwright.sync_api import Page

__all__ = ["browser", "page", "viewport"]


class Site:
    """The page of a workspace: `open` shows an address of it."""

    def __init__(self, folder: Path) -> None:
        self.workspace = Workspace.open(folder)
        self.server = Server(folder)

    def open(self, page: Page, address: str = "#/") -> None:
        """Log the browser in and show an address, as from a bookmark."""
        page.context.request.get(self.server.url)
        page.goto(self.server.url.partition("?")[0] + "next" + address)
        page.locator("wb-app main h1").first.wait_for(state="attached")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Started; a file's own fixture fills the workspace before or after."""
    made = Site(tmp_path_factory.mktemp("page") / "workspace")
    made.server.start()
    yield made
    made.server.kill()
    for job in [*made.workspace.runs.glob("*"), made.workspace.samples / ".worker"]:
        jobs.kill(job)
