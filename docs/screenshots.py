"""Make the pictures of docs/images: `python docs/screenshots.py` trains the demo in a real browser and films the page.

Writes demo.webp, then every place at 1280 px by light and dark, and Home and a run on a phone and at 1920 px. With
`--workspace FOLDER` only the places, of what that workspace holds. `--every FOLDER` takes every place at each size,
light and dark, to be looked at, and leaves docs/images as they are. Needs what browser tests need (scripts/browser.py).
"""

from __future__ import annotations

import argparse
import io
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, sync_playwright

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts.browser import REMEDY, find  # noqa: E402
from tests.browser.server import Server, launch  # noqa: E402
from workbench import jobs  # noqa: E402

IMAGES = ROOT / "docs" / "images"
VIEW = {"width": 1280, "height": 860}
PHONE, WIDE = {"width": 390, "height": 844}, {"width": 1920, "height": 1080}
# The address of each place, and an element that appears once it has loaded. NAME is the newest dataset, run, or grid.
PLACES = {
    "home": ("#/", "main wb-video video"),
    "dataset": ("#/dataset/NAME", "main article"),
    "train": ("#/train", "main table"),
    "run": ("#/train/NAME", "main wb-chart svg"),
    "new_run": ("#/train/new", "main .input"),
    "sample": ("#/sample", "main wb-result video"),
    "compare": ("#/compare/NAME", "main wb-grid video"),
    "loras": ("#/loras", "main article"),
}
OBJECTS = "fetch('api/v1/call/overview/objects', {method: 'POST'}).then((answer) => answer.json())"
SECONDS = 4.0  # for videos and charts of a place
QUALITY, FILM_QUALITY = 82, 75
WIDTH = 1000  # pixels of the moving picture
MOST_FRAMES = 36  # of the training
FIRST_MS, SHOWN_MS, ENDING_MS, LAST_MS = 1500, 350, 900, 2500
PATIENCE_MS = 900_000


def main() -> None:
    path = find()
    if path is None:
        sys.exit(REMEDY)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workspace", type=Path, help="take the places of this workspace, and no film")
    parser.add_argument("--every", type=Path, metavar="FOLDER", help="take every place at each size, and no film")
    options = parser.parse_args()
    given, target = options.workspace, options.every or IMAGES
    target.mkdir(parents=True, exist_ok=True)
    os.environ["OMP_NUM_THREADS"] = "1"  # the browser, which draws without a GPU here, takes the other core
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        server = Server(given or Path(folder))
        server.start()
        browser = launch(playwright, path)
        try:
            if not given:
                training, ending = film(opened(browser, server, VIEW, "light"), server)
                if not options.every:
                    write(training, ending)
            for name, picture in (every if options.every else pictures)(browser, server):
                picture.save(target / f"{name}.webp", quality=QUALITY, method=6)
        finally:
            browser.close()
            server.kill()
            if not given:
                for job in [*Path(folder, "runs").glob("*"), Path(folder, "samples", ".worker")]:
                    jobs.kill(job)


def opened(browser: Browser, server: Server, view: dict[str, int], theme: str) -> Page:
    """The page in a browser profile of its own."""
    page = browser.new_context(viewport=view, color_scheme=theme).new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.goto(server.url)
    page.locator("main h1").first.wait_for(state="attached")
    return page


def show(page: Page, place: str) -> None:
    """Open a place and wait until it is whole."""
    address, ready = PLACES[place]
    kind = {"dataset": "dataset", "run": "run", "compare": "grid"}.get(place)
    if kind:
        objects = page.evaluate(
            "fetch('api/v1/call/overview/objects', {method: 'POST'}).then((answer) => answer.json())"
        )
        address = next((one["address"] for one in objects if one["kind"] == kind), address.removesuffix("/NAME"))
    page.evaluate("(address) => { location.hash = address }", address)
    page.locator(f"{ready} >> visible=true").first.wait_for()


def pictures(browser: Browser, server: Server) -> Iterator[tuple[str, Image.Image]]:
    """Name and picture: of every place, then Home and a run at other sizes."""
    for theme, end in (("light", ""), ("dark", "-dark")):
        page = opened(browser, server, VIEW, theme)
        yield from ((f"{place}{end}", picture_of(page, place)) for place in PLACES)
    for view, end in ((PHONE, "-phone"), (WIDE, "-wide")):
        page = opened(browser, server, view, "light")
        yield from ((f"{place}{end}", picture_of(page, place)) for place in ("home", "run"))


def every(browser: Browser, server: Server) -> Iterator[tuple[str, Image.Image]]:
    """Name and picture of every place at each size."""
    for theme in ("light", "dark"):
        for size, view in (("1280", VIEW), ("phone", PHONE), ("1920", WIDE)):
            page = opened(browser, server, view, theme)
            yield from ((f"{place}-{theme}-{size}", picture_of(page, place)) for place in PLACES)


def picture_of(page: Page, place: str) -> Image.Image:
    """A place, from its top."""
    show(page, place)
    page.mouse.move(0, 0)
    time.sleep(SECONDS)
    page.evaluate("scrollTo(0, 0)")
    return Image.open(io.BytesIO(page.screenshot())).convert("RGB")


def film(page: Page, server: Server) -> tuple[list[Image.Image], list[Image.Image]]:
    """The training, a frame a second; then the finished run, a sample and a grid, which the tabs then show."""
    frames: list[Image.Image] = []
    ending: list[Image.Image] = []
    demo = page.get_by_role("button", name="Train the demo")
    demo.wait_for()
    time.sleep(SECONDS)
    take(page, frames)
    demo.click()
    page.locator("main wb-run .state.going").first.wait_for()
    run = server.workspace / "runs" / "demo"
    while jobs.status(run).state.alive:
        take(page, frames)
        time.sleep(1.0)
    page.locator("main wb-run .head .state", has_text="Finished").wait_for()
    time.sleep(3.0)
    take(page, ending)
    page.get_by_role("link", name="Sample it").click()
    page.locator("main button[data-do=generate]").click()
    page.locator("main wb-result video").first.wait_for()
    for _ in range(3):
        time.sleep(1.0)
        take(page, ending)
    page.locator("main wb-result").get_by_role("button", name="Compare").click()
    make = page.locator("dialog[open] button[data-do=make]")
    make.or_(page.locator("main wb-grid")).first.wait_for()
    if make.count():
        make.click()
    page.locator("main wb-grid video").first.wait_for()
    page.wait_for_function("!document.querySelector('main .making')")  # every video is generated
    for _ in range(3):
        time.sleep(1.0)
        take(page, ending)
    return frames, ending


def take(page: Page, frames: list[Image.Image]) -> None:
    picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
    frames.append(picture.resize((WIDTH, WIDTH * picture.height // picture.width), Image.Resampling.LANCZOS))


def write(training: list[Image.Image], ending: list[Image.Image]) -> None:
    kept = training[:: max(1, len(training) // MOST_FRAMES)]
    times = [FIRST_MS] + [SHOWN_MS] * (len(kept) - 1) + [ENDING_MS] * (len(ending) - 1) + [LAST_MS]
    kept[0].save(
        IMAGES / "demo.webp",
        save_all=True,
        append_images=[*kept[1:], *ending],
        duration=times,
        loop=0,
        quality=FILM_QUALITY,
        method=6,
    )


if __name__ == "__main__":
    main()
