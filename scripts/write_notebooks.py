"""Run the notebooks in a real JupyterLab and keep what they show: `python scripts/write_notebooks.py [NAME ...]`.

GitHub shows neither widgets nor frames, and its readers have no kernel. So text stays text, and every view becomes
a picture of what it showed after the notebook had run. Needs the browser that the tests need (scripts/browser.py) and a
few minutes for each notebook.
"""

from __future__ import annotations

import base64
import io
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from scripts.browser import REMEDY, find

if TYPE_CHECKING:
    from playwright.sync_api import Locator, Page

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = ROOT / "notebooks"
HERE = ROOT / "build" / "notebooks"  # below the checkout, as the first cell expects, and ignored by git
SHOWN_ROOT = "/home/you/video-lora-workbench"  # in place of this machine's folders
MINUTES = 40
WIDTH, HEIGHT, TALL = 1180, 1000, 3000  # of the window; tall, every output is in sight as a whole
COLORS = 128  # of a picture's palette: a third of the bytes, and letters stay sharp
SETTLE_SECONDS = 3.0  # videos and charts of a view
# Puts the shown folder in the place of this machine's, in what is about to be filmed.
RENAME = """([from, to]) => {
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) walker.currentNode.data = walker.currentNode.data.replaceAll(from, to);
}"""
LAB = {
    "notebook-extension/tracker": {"windowingMode": "none"},  # every output stays in the page
    "apputils-extension/notification": {"fetchNews": "false"},  # no dialog that covers an output
}


def main() -> None:
    browser = find()
    if browser is None:
        sys.exit(REMEDY)
    names = sys.argv[1:] or sorted(path.stem for path in NOTEBOOKS.glob("*.ipynb"))
    for name in names:
        shutil.rmtree(HERE, ignore_errors=True)
        (HERE / "temporary").mkdir(parents=True)
        shutil.copy(NOTEBOOKS / f"{name}.ipynb", HERE)
        began = time.monotonic()
        with lab() as address:
            outputs = shown(f"{address}/lab/tree/{name}.ipynb?token=t", browser)
        path = NOTEBOOKS / f"{name}.ipynb"
        path.write_text(with_outputs(json.loads(path.read_text(encoding="utf-8")), outputs), encoding="utf-8")
        print(f"{path.name}: {path.stat().st_size / 1e3:,.0f} kB in {time.monotonic() - began:.0f} s", flush=True)


@contextmanager
def lab() -> Iterator[str]:
    """A JupyterLab of its own on HERE, whose kernels keep their workspace there."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    places = {f"JUPYTER_{name}_DIR": str(HERE / f".{name}") for name in ("RUNTIME", "CONFIG", "DATA")}
    places |= {f"JUPYTERLAB_{name}_DIR": str(HERE / f".{name}") for name in ("WORKSPACES", "SETTINGS")}
    places |= {"WORKBENCH_HOME": str(HERE / "workspace"), "TMPDIR": str(HERE / "temporary"), "TQDM_DISABLE": "1"}
    for name, values in LAB.items():
        settings = HERE / ".SETTINGS" / "@jupyterlab" / f"{name}.jupyterlab-settings"
        settings.parent.mkdir(parents=True, exist_ok=True)
        settings.write_text(json.dumps(values), encoding="utf-8")
    command = [sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root", f"--port={port}"]
    command += ["--LabApp.expose_app_in_browser=True", "--IdentityProvider.token=t", "--LabApp.news_url="]
    command += [f"--ServerApp.root_dir={HERE}"]
    with (HERE / "lab.log").open("w", encoding="utf-8") as log:
        server = subprocess.Popen(command, env=os.environ | places, stdout=log, stderr=subprocess.STDOUT)
    try:
        address = f"http://127.0.0.1:{port}"
        while not answers(f"{address}/api?token=t"):
            time.sleep(0.5)
        yield address
    finally:
        server.terminate()
        server.wait()


def answers(url: str) -> bool:
    try:
        urllib.request.urlopen(url).close()
    except OSError:
        return False
    return True


def shown(url: str, browser: str) -> list[list[dict[str, Any]]]:
    """Return the outputs of each code cell after a run from top to bottom, views as pictures."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        page = opened.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        page.set_default_timeout(MINUTES * 60_000)
        page.goto(url)
        page.locator(".jp-NotebookPanel .jp-Cell").first.wait_for()
        page.get_by_text("| Idle").wait_for()  # in the status bar: the kernel is there
        page.evaluate("void jupyterapp.commands.execute('application:toggle-left-area')")
        page.evaluate("jupyterapp.commands.execute('notebook:run-all-cells')")
        cells = page.locator(".jp-CodeCell")
        last = cells.last.locator(".jp-InputPrompt")
        page.wait_for_function("(one) => /\\d/.test(one.textContent)", arg=last.element_handle())
        page.locator("[data-status=idle]").first.wait_for(state="attached")
        time.sleep(SETTLE_SECONDS)
        page.evaluate("jupyterapp.commands.execute('docmanager:save')")
        page.set_viewport_size({"width": WIDTH, "height": TALL})
        for frame in page.frames:
            frame.evaluate(RENAME, [str(HERE), SHOWN_ROOT])
        (path,) = HERE.glob("*.ipynb")
        saved = json.loads(path.read_text(encoding="utf-8"))
        code = [cell for cell in saved["cells"] if cell["cell_type"] == "code"]
        found = [[*kept(cell["outputs"], cells.nth(number), page)] for number, cell in enumerate(code)]
        opened.close()
    return found


def kept(outputs: list[dict[str, Any]], cell: Locator, page: Page) -> Iterator[dict[str, Any]]:
    """Yield a cell's outputs; of a view its picture, and what it is in words."""
    children = cell.locator(".jp-OutputArea-child")
    for number, output in enumerate(outputs):
        data = output.get("data", {})
        if "text/html" not in data and not any("widget-view" in kind for kind in data):
            yield output
            continue
        view = children.nth(number).locator(".jp-OutputArea-output")
        view.scroll_into_view_if_needed()
        if view.locator("iframe, video").count():
            time.sleep(SETTLE_SECONDS)
        if not (box := view.bounding_box()) or box["height"] < 2:
            continue
        from PIL import Image

        picture = Image.open(io.BytesIO(view.screenshot(animations="disabled"))).convert("RGB")
        target = io.BytesIO()
        picture.quantize(COLORS, dither=Image.Dither.NONE).save(target, "PNG", optimize=True)
        kind = re.match(r"<?([\w.]+)", "".join(data.get("text/plain", "")))
        yield {
            "data": {
                "image/png": base64.b64encode(target.getvalue()).decode(),
                "text/plain": [kind[1].rpartition(".")[2] if kind else "a view"],
            },
            "metadata": {},
            "output_type": "display_data",
        }


def with_outputs(notebook: dict[str, Any], outputs: list[list[dict[str, Any]]]) -> str:
    """Return a committed notebook's text with these outputs. Raises SystemExit if a cell failed."""
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    for number, (cell, found) in enumerate(zip(code, outputs, strict=True), 1):
        for output in found:
            if output["output_type"] == "error" or output.get("name") == "stderr":
                sys.exit(f"cell {number}: {json.dumps(output)[:3000]}")
            output.pop("execution_count", None)
            if "text" in output:
                output["text"] = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in output["text"]]  # colors
            if output["output_type"] == "execute_result":
                output["output_type"] = "display_data"
        cell["execution_count"], cell["outputs"] = number, found
    text = json.dumps(notebook, indent=1, ensure_ascii=False, sort_keys=True) + "\n"
    for folder in (f"{HERE}/temporary", str(HERE), str(ROOT)):
        text = text.replace(folder, "/tmp" if folder.endswith("temporary") else SHOWN_ROOT)
    return text


if __name__ == "__main__":
    main()
