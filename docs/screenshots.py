"""Make the README's pictures: `python docs/screenshots.py` trains the demo in a real browser and films the page.

Writes train.png, grid.png and demo.webp into docs/images. Needs what the browser tests need (scripts/browser.py).
"""

from __future__ import annotations

import io
import os
import sys
import tempfile
import time
from pathlib import Path

from PIL import Image
from playwright.sync_api import Page, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts.browser import REMEDY, find  # noqa: E402
from tests.browser.server import Server, launch  # noqa: E402
from workbench import jobs  # noqa: E402

IMAGES = ROOT / "docs" / "images"
VIEW = {"width": 1280, "height": 860}
WIDTH = 900  # pixels of the moving picture
MOST_FRAMES = 36
SHOWN_MS, LAST_MS = 350, 2500
PATIENCE_MS = 900_000


def main() -> None:
    path = find()
    if path is None:
        sys.exit(REMEDY)
    IMAGES.mkdir(exist_ok=True)
    os.environ["OMP_NUM_THREADS"] = "1"  # the browser, which draws without a GPU here, takes the other core
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        server = Server(Path(folder))
        server.start()
        browser = launch(playwright, path)
        try:
            page = browser.new_context(viewport=VIEW).new_page()
            page.set_default_timeout(PATIENCE_MS)
            page.goto(f"{server.url}?__theme=light")
            film(page, server)
        finally:
            browser.close()
            server.kill()
            for job in [*Path(folder, "runs").glob("*"), Path(folder, "samples", ".worker")]:
                jobs.kill(job)


def film(page: Page, server: Server) -> None:
    """The whole loop, a frame every time the page has changed."""
    frames: list[Image.Image] = []
    page.locator("#train-demo").wait_for()
    take(page, frames)
    page.locator("#train-demo").click()
    page.locator("#run-head .badge.going").wait_for()
    run = server.workspace / "runs" / "demo"
    while jobs.status(run).state.alive:
        take(page, frames)
        time.sleep(1.0)
    page.locator("#run-head .badge.good").wait_for()
    page.locator("#before-after video").first.wait_for()
    time.sleep(3.0)
    page.screenshot(path=IMAGES / "train.png", full_page=False)
    take(page, frames)
    page.locator("#sample-run").click()
    page.locator("#generate").click()
    page.locator("#sample-result figure.result").wait_for()
    for _ in range(3):
        time.sleep(1.0)
        take(page, frames)
    write(frames)
    page.get_by_role("tab", name="Compare").click()
    page.locator("#grid-make").click()
    page.wait_for_function(  # every video is drawn and measured
        """() => { const all = [...document.querySelectorAll('.video-grid figure')];
            const ready = (one) => one.dataset.state === 'done' && one.querySelector('.measurements li');
            return all.length && all.every(ready); }"""
    )
    page.mouse.move(0, 0)
    time.sleep(3.0)
    page.screenshot(path=IMAGES / "grid.png", full_page=False)


def take(page: Page, frames: list[Image.Image]) -> None:
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    frames.append(picture.resize((WIDTH, WIDTH * picture.height // picture.width), Image.Resampling.LANCZOS))


def write(frames: list[Image.Image]) -> None:
    kept = frames[:: max(1, len(frames) // MOST_FRAMES)]
    times = [SHOWN_MS] * (len(kept) - 1) + [LAST_MS]
    kept[0].save(
        IMAGES / "demo.webp", save_all=True, append_images=kept[1:], duration=times, loop=0, quality=55, method=6
    )


if __name__ == "__main__":
    main()
