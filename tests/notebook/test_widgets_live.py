"""Widgets in a real JupyterLab, in a browser: what they show, where they lead, what is typed, what a kernel changes."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from scripts.browser import REMEDY, find
from tests.browser.server import launch, own_port
from tests.loras.making import layer, put_lora
from tests.patience import PATIENCE, until
from workbench.workspace import Workspace

if TYPE_CHECKING:
    from playwright.sync_api import FrameLocator, Page

pytestmark = pytest.mark.long
ROOT = Path(__file__).resolve().parent.parent.parent
FRAME = "iframe[title='Video LoRA Workbench']"
BEGIN = (
    f"import sys; sys.path.insert(0, {str(ROOT)!r})\nimport time\nfrom workbench import Workspace, notebook\n"
    "from workbench.notebook.widget import View\n"
    "from workbench.loras import library\n"
    # The thread that hears the page is slow, so the cell after a change of the form overtakes the change.
    "heard = View._handle_msg\nView._handle_msg = lambda self, message: (time.sleep(0.2), heard(self, message))\n"
    "from workbench.runs.settings import TrainSettings\n"
    "workspace = Workspace.open('workspace')\nview = View(workspace, '#/loras')\nview"
)
FORM = "form = notebook.form(TrainSettings, workspace)\nform"
SET = "form.set(rank=24)\nprint('steps', form.settings.steps)"
AGAIN = "again = View(workspace, '#/loras/loras%2Flion')\nagain"
BUSY = "print('saw', view.address)\nlibrary.star(workspace, 'loras/lion')\ntime.sleep(600)"


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[str]:
    """The address of a notebook in a JupyterLab that is its own."""
    import nbformat

    workspace = Workspace.open(tmp_path / "workspace")
    for name in ("ring", "lion"):
        put_lora(workspace, name, layer("transformer_blocks.0.attn1.to_q", 4, 8, 8), 8.0)
    cells = [nbformat.v4.new_code_cell(cell) for cell in (BEGIN, FORM, SET, AGAIN, BUSY)]
    notebook = nbformat.v4.new_notebook(cells=cells)
    nbformat.write(notebook, tmp_path / "a.ipynb")
    places = {f"JUPYTER_{name}_DIR": str(tmp_path / f".{name}") for name in ("RUNTIME", "CONFIG", "DATA")}
    places |= {
        "JUPYTERLAB_WORKSPACES_DIR": str(tmp_path / ".spaces"),
        "JUPYTERLAB_SETTINGS_DIR": str(tmp_path / ".set"),
    }
    port = own_port()
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", f"--port={port}"]
    command += [
        "--LabApp.expose_app_in_browser=True",
        "--IdentityProvider.token=t",
        f"--ServerApp.root_dir={tmp_path}",
        "--LabApp.news_url=",
    ]
    with (tmp_path / "lab.log").open("w") as log:
        server = subprocess.Popen(command, env=os.environ | places, stdout=log, stderr=subprocess.STDOUT)
    until(lambda: answers(f"http://127.0.0.1:{port}/api?token=t"))
    yield f"http://127.0.0.1:{port}/lab/tree/a.ipynb?token=t"
    server.terminate()
    server.wait(PATIENCE)


def answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url).close()
    except OSError:
        return False
    return True


@pytest.fixture
def page(lab: str) -> Iterator[Page]:
    from playwright.sync_api import sync_playwright

    path = find()
    if path is None:
        pytest.fail(REMEDY, pytrace=False)
    with sync_playwright() as playwright:
        browser = launch(playwright, path)
        page = browser.new_page(viewport={"width": 1280, "height": 1000})
        page.set_default_timeout(PATIENCE * 1000)
        page.goto(lab)
        page.locator(".jp-NotebookPanel .jp-Cell").first.wait_for()
        page.locator(".jp-Dialog .jp-mod-accept").click()  # the only kernel
        page.locator("[data-status=idle]").first.wait_for(state="attached")
        yield page
        browser.close()


def run_next(page: Page) -> None:
    """Run the cell whose turn it is, without waiting for its end."""
    page.evaluate("void jupyterapp.commands.execute('notebook:run-cell-and-select-next')")


def shown(page: Page, number: int) -> FrameLocator:
    return page.frame_locator(FRAME).nth(number)


def test_a_form_is_shared_links_lead_within_a_widget_and_changes_are_pushed_while_a_cell_runs(page: Page) -> None:
    for _ in range(2):
        run_next(page)
    form = shown(page, 1)
    form.locator("[name=steps]").fill("77")
    run_next(page)
    page.get_by_text("steps 77").wait_for()
    form.locator("[name=rank]").wait_for()
    until(lambda: form.locator("[name=rank]").input_value() == "24")
    assert form.locator("[name=steps]").input_value() == "77"

    first = shown(page, 0)
    first.locator(".tile.lora").nth(1).wait_for()
    notebook = page.url
    run_next(page)
    second = shown(page, 2)
    second.locator("wb-lora h2:text('lion')").wait_for()
    first.locator(".tile.lora a.one-line:has-text('ring')").click()
    first.locator("wb-lora h2:text('ring')").wait_for()
    first.locator("wb-lora [aria-label^='Star:']").click()
    first.locator("wb-lora [aria-label^='Starred:']").wait_for()
    assert page.url == notebook, "a link of a widget leads within the widget"
    run_next(page)
    page.get_by_text("saw #/loras/loras%2Fring").wait_for()
    # The cell goes on; what it has changed is pushed meanwhile.
    second.locator("wb-lora [aria-label^='Starred:']").wait_for()
    assert page.locator("[data-status=busy]").count()
    assert first.locator("html.light").count() == 1
    page.evaluate("document.body.style.background = 'black'; document.body.dataset.jpThemeLight = 'false'")
    page.add_style_tag(content=".jp-NotebookPanel *, .jp-NotebookPanel { background-color: #111 !important }")
    page.evaluate("document.body.dataset.again = 'true'")
    first.locator("html.dark").wait_for(state="attached")
