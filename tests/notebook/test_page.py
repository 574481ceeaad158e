"""`show_page` with a real page: started once, found again, shown in a notebook's frame by a browser, ended."""

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
from workbench.errors import ConfigError
from workbench.jobs import processes
from workbench.notebook import PageView, show_page
from workbench.workspace import Workspace

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def shown(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PageView]:
    page = show_page(Workspace.open(tmp_path_factory.mktemp("shown") / "workspace"), "dataset", 700)
    yield page
    page.stop()


@pytest.fixture
def notebook(shown: PageView, tmp_path: Path) -> Iterator[str]:
    """The address of a page on another port, as Jupyter's, that has the view in it."""
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


def test_a_page_that_was_stopped_is_started_anew(tmp_path: Path) -> None:
    workspace = Workspace.open(tmp_path / "workspace")
    first = show_page(workspace)
    first.stop()
    until(lambda: not processes.alive(first.process))
    second = show_page(workspace)
    assert second.process != first.process
    second.stop()
    until(lambda: not processes.alive(second.process))
