"""`show_page` with a real page: started once, found again, shown in a notebook's frame by a browser, stopped."""

from __future__ import annotations

import http.server
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import httpx
import pytest

from scripts.browser import REMEDY, find
from tests.browser.server import launch
from tests.patience import PATIENCE, until
from tests.warm_processes import WarmHosts
from workbench.errors import ConfigError
from workbench.jobs import processes
from workbench.notebook import PageView, show_page
from workbench.notebook import page as notebook_page
from workbench.workspace import Workspace

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory, warm: WarmHosts | None) -> Iterator[PageView]:
    """A page that the tests of this file share, forked from a warm process where the system can."""
    with pytest.MonkeyPatch.context() as patch:
        if warm is not None:
            patch.setattr(notebook_page, "subprocess", warm.module)
        page = show_page(Workspace.open(tmp_path_factory.mktemp("shown") / "workspace"), "dataset", 700)
        yield page
        page.stop()


@pytest.fixture
def notebook(shown: PageView, tmp_path: Path) -> Iterator[str]:
    """The address of a page on another port that embeds the view, as Jupyter does."""
    (tmp_path / "notebook.html").write_text(f"<!doctype html><body>{shown._repr_html_()}</body>")
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"{server.server_address[1]}/notebook.html"
        server.shutdown()


def test_the_page_is_found_again_and_its_token_lets_in(shown: PageView) -> None:
    again = show_page(shown.workspace, "train")
    assert again.process == shown.process
    assert repr(again).endswith("#/train")
    kept = shown.workspace.root / ".notebook-page.json"
    assert kept.stat().st_mode & 0o077 == 0, "the token is for its owner alone"
    with httpx.Client(follow_redirects=True, timeout=PATIENCE) as client:
        assert "elements" in client.get(again.url).text
    with pytest.raises(ConfigError, match="no tab 'shelf'"):
        show_page(shown.workspace, "shelf")  # type: ignore[arg-type]


def test_a_notebook_shows_the_page_at_its_tab(notebook: str) -> None:
    from playwright.sync_api import sync_playwright

    path = find()
    if path is None:
        pytest.fail(REMEDY, pytrace=False)
    with sync_playwright() as playwright:
        browser = launch(playwright, path)
        for host in ("localhost", "127.0.0.1"):
            page = browser.new_page()
            page.goto(f"http://{host}:{notebook}")
            frame = page.frame_locator("iframe")
            frame.get_by_role("heading", name="Datasets").wait_for(timeout=PATIENCE * 1000)
        browser.close()


def test_a_stopped_page_is_started_again(shown: PageView) -> None:
    """Keep this test last: it stops the page that the others share."""
    shown.stop()
    until(lambda: not processes.alive(shown.process))
    second = show_page(shown.workspace)
    assert second.process != shown.process
    second.stop()
    until(lambda: not processes.alive(second.process))
