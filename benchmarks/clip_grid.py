"""The clip grid with ten thousand clips: from a click to the page being painted, and what it costs the server.

    python benchmarks/clip_grid.py            with the server in a process of its own and a real browser

"ours" is the median over the pages, "most" the slowest one, "reference" what is promised: 300 ms a page, and memory
that does not grow with the pages looked at. "painted" is when the new cards are on the screen, "with pictures" when
every thumbnail in the window is decoded, too.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
from common import arguments, report
from playwright.sync_api import sync_playwright

from workbench.clips import media
from workbench.clips.records import Clip, write_clips
from workbench.dataset_builder.dataset import Dataset
from workbench.workspace import Workspace

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts.browser import find  # noqa: E402
from tests.browser.server import launch  # noqa: E402
from tests.serving import serve  # noqa: E402

if TYPE_CHECKING:
    from playwright.sync_api import Page

LIMIT_MS = 300.0
CARDS = 48  # a page
WORDS = (
    "a",
    "red",
    "cat",
    "jumps",
    "over",
    "the",
    "lazy",
    "dog",
    "while",
    "rain",
    "falls",
    "on",
    "a",
    "quiet",
    "street",
)
PAINTED = """async (act) => {
    const first = () => document.querySelector('.card')?.dataset.name;
    const frame = () => new Promise(requestAnimationFrame);
    const old = first(), begin = performance.now();
    if (act.click) document.querySelector(act.click).click();
    else {
        const field = document.querySelector(act.field);
        field.value = act.value;
        field.dispatchEvent(new Event('change'));
    }
    while (first() === old) await frame();
    await frame();
    await new Promise((done) => setTimeout(done));  // after the paint that this frame led to
    const painted = performance.now() - begin;
    await frame();
    await frame();  // pictures are asked for when their card is seen
    const inWindow = (one) => one.getBoundingClientRect().top < innerHeight;
    const seen = [...document.querySelectorAll('.picture img')].filter(inWindow);
    await Promise.all(seen.map((one) => one.decode()));
    return [painted, performance.now() - begin];
}"""


def fill(workspace: Workspace, clips: int) -> Dataset:
    """A dataset of that many clips: one video under many names, captions of their own."""
    dataset = Dataset.create(workspace, "Many")
    (dataset.folder / "clips").mkdir()
    (dataset.folder / "thumbs").mkdir()
    video, picture = workspace.root / "one.mp4", workspace.root / "one.jpg"
    noise = np.random.default_rng(0).integers(0, 255, (9, 12, 18, 3), dtype=np.uint8)
    media.encode(noise.repeat(40, axis=1).repeat(40, axis=2), video, 8)
    media.thumbnail(video, picture)
    records = []
    for number in range(clips):
        name = f"{number:016x}"
        os.link(video, dataset.folder / "clips" / f"{name}.mp4")
        os.link(picture, dataset.folder / "thumbs" / f"{name}.jpg")
        text = " ".join(WORDS[(number + place) % len(WORDS)] for place in range(15 + number % 30))
        records.append(
            Clip(
                file_name=f"clips/{name}.mp4",
                text=f"{text} {number}",
                caption_by="hand",
                source=f"IMG_{clips - number:05}.MOV",
                fps=8,
                frames=9,
                width=720,
                height=480,
                sha256=f"{number:064x}",
            )
        )
    write_clips(dataset.folder, records)
    return dataset


def median_row(case: str, times: list[float], reference: float | str = LIMIT_MS) -> dict[str, Any]:
    return {"case": case, "ours": statistics.median(times), "most": max(times), "reference": reference}


def megabytes(server: psutil.Process) -> float:
    return float(server.memory_info().rss) / 1e6


def processor_seconds(server: psutil.Process) -> float:
    """Unlike the time on the clock, hardly longer when other processes keep the machine busy."""
    times = server.cpu_times()
    return float(times.user + times.system)


def saving(page: Page) -> float:
    """Milliseconds from leaving a caption to "saved"."""
    field = page.locator(".card textarea").first
    field.fill(f"typed at {time.time()}")
    began = time.perf_counter()
    field.blur()
    page.locator(".card .state", has_text="saved").first.wait_for()
    return 1000 * (time.perf_counter() - began)


def measure(page: Page, server: psutil.Process, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Turn pages, sort, save; every row but memory in milliseconds."""
    for _ in range(3):  # the browser's and the server's first times
        page.evaluate(PAINTED, {"click": ".forth"})
    before, spent = megabytes(server), processor_seconds(server)
    painted, pictured = zip(*(page.evaluate(PAINTED, {"click": ".forth"}) for _ in range(options.pages)), strict=True)
    after, spent = megabytes(server), processor_seconds(server) - spent
    numbers = [number for number in (200, 3, 150, 80, 9, 120, 1) if number <= options.clips // CARDS]
    jumps = [page.evaluate(PAINTED, {"field": ".number", "value": number})[0] for number in numbers]
    orders = [page.evaluate(PAINTED, {"field": ".sort", "value": order})[0] for order in ("name", "given") * 3]
    saves = [saving(page) for _ in range(10)]
    return [
        median_row("next page, painted, ms", list(painted)),
        median_row("next page, with pictures, ms", list(pictured)),
        {
            "case": "server's processor time a page, ms",
            "ours": 1000 * spent / options.pages,
            "most": "",
            "reference": "",
        },
        median_row("any page by number, painted, ms", jumps),
        median_row("another order, painted, ms", orders),
        median_row("a caption saved, ms", saves, ""),
        {"case": "server's memory before, MB", "ours": before, "most": "", "reference": ""},
        {"case": f"after {options.pages} pages, MB", "ours": after, "most": "", "reference": before},
        {"case": "after saving, MB", "ours": megabytes(server), "most": "", "reference": before},
    ]


def main() -> None:
    parser = arguments((__doc__ or "").splitlines()[0], clips=400, pages=2)
    parser.add_argument("--clips", type=int, default=10_000)
    parser.add_argument("--pages", type=int, default=50)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        workspace = Workspace.open(folder)
        fill(workspace, options.clips)
        server, address = serve("tests.browser.parts_page", workspace.root)
        browser = launch(playwright, str(find()))
        try:
            page = browser.new_page(viewport={"width": 1400, "height": 900})
            page.goto(address)
            page.locator(".card").nth(CARDS - 1).wait_for(timeout=120_000)
            rows = measure(page, psutil.Process(server.pid), options)
        finally:
            browser.close()
            server.kill()
            server.communicate()
    report(rows, options.json, clips=options.clips, load=os.getloadavg())


if __name__ == "__main__":
    main()
