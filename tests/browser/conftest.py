"""A page over a workspace of its own that the tests of a file share, and a fresh browser profile for each test."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from scripts.browser import REMEDY, find
from tests.browser.server import Server, launch
from tests.patience import PATIENCE
from tests.test_overview import at_work
from workbench import jobs
from workbench.runs.run import Run
from workbench.workspace import Workspace

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

SAID = "() => [...document.querySelectorAll('.toast, [role=alert], .hint.bad')].map((one) => one.innerText.trim())"


class Site:
    """The page of a workspace: `open` shows an address of it."""

    def __init__(self, folder: Path) -> None:
        self.workspace = Workspace.open(folder)
        self.server = Server(folder)

    def open(self, page: Page, address: str = "#/") -> None:
        """Log the browser in and show an address, as from a bookmark."""
        page.context.request.get(self.server.url)
        page.goto(self.server.url.partition("?")[0] + address)
        page.locator("wb-app main h1").first.wait_for(state="attached")

    def close(self) -> None:
        """End the server, and whatever was started from it."""
        self.server.kill()
        for job in [*self.workspace.runs.glob("*"), self.workspace.samples / ".worker"]:
            jobs.kill(job)


@contextlib.contextmanager
def training(run: Run, step: int, total: int) -> Iterator[None]:
    """The run looks as if it were at this step."""
    at_work(run, step=step, total=total)
    try:
        yield
    finally:
        (run.folder / jobs.PROCESS).unlink()  # it names this very process


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Started; a file's own fixture fills the workspace before or after."""
    made = Site(tmp_path_factory.mktemp("page") / "workspace")
    made.server.start()
    yield made
    made.close()


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
    """A fresh browser profile; an error of the page's own script fails the test at its end.

    Not at once: what a handler of the browser's events raises would end its connection, and with it all tests to come.
    """
    profile = browser.new_context(viewport={"width": viewport[0], "height": viewport[1]})
    opened = profile.new_page()
    opened.set_default_timeout(PATIENCE * 1000)
    failed: list[str] = []
    opened.on("pageerror", lambda error: failed.append(str(error)))
    yield opened
    profile.close()
    assert not failed, f"the page's own script failed: {failed}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """With a failed test goes what the page said at that moment, and the end of the server's log."""
    report = yield
    fixtures = getattr(item, "funcargs", {})
    if report.when == "call" and report.failed and "page" in fixtures and "site" in fixtures:
        from playwright.sync_api import Error

        try:
            said = "\n".join(fixtures["page"].evaluate(SAID))
        except Error as error:  # the browser is gone; a hook that raises would end the whole session
            said = f"unknown: {error}"
        report.sections.append(("messages on the page", said))
        log = fixtures["site"].workspace.root / "server.log"
        report.sections.append(("the server's log", log.read_text()[-4000:] if log.exists() else "no log"))
    return report
