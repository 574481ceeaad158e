"""Measure opening the page: `python benchmarks/page_opening.py [--json FILE] [--smallest]`.

A headless Chromium opens pages over a small workspace, each time in a new profile. It measures the time from the first
byte until the page is usable (heading and server data are painted), kilobytes, and CPU time of scripts. Then it
switches between runs: until the other run's heading and placeholders are painted, and until its numbers are. Finally
sessions make the same requests without a browser: the server's CPU time for one session, and the wait of all at once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import httpx
import psutil

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.common import arguments, report  # noqa: E402
from benchmarks.hostile_calls import fill  # noqa: E402
from scripts.browser import REMEDY, find  # noqa: E402
from tests.browser.server import launch  # noqa: E402
from tests.serving import Page  # noqa: E402
from tests.written_run import write_run  # noqa: E402

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROUNDS, SESSIONS = 10, 50
PATIENCE_SECONDS = 300.0
ADDRESSES = {"Home": "#/", "a run": "#/train/a-run", "a dataset": "#/dataset/clips", "Sample": "#/sample"}
GOALS = {"ms": 600.0, "kB": 100.0, "seconds": 0.06, "switched": 100.0}
RUNS = ("lower", "higher")
ENCODINGS = "gzip, deflate, br"
# When a person can use it: in the task after the frame that follows the heading and the machine's figures being there.
USABLE = """window.usable = new Promise((done) => {
    const look = () => {
        if (!document.querySelector('main h1') || !document.querySelector('wb-rail .machine')) return;
        seen.disconnect();
        requestAnimationFrame(() => {
            const after = new MessageChannel();
            const [{responseStart}] = performance.getEntriesByType('navigation');
            after.port1.onmessage = () => done(performance.now() - responseStart);
            after.port2.postMessage(null);
        });
    };
    const seen = new MutationObserver(look);
    seen.observe(document, {childList: true, subtree: true});
})"""
SWITCHED = """(name) => new Promise((done) => {
    const began = performance.now(), marks = ['.skeleton, .facts', '.facts'], found = marks.map(() => null);
    const look = () => {
        if (document.querySelector('main wb-run h1')?.textContent !== name) return;
        marks.forEach((mark, index) => {
            if (found[index] !== null || !document.querySelector(`main wb-run :is(${mark})`)) return;
            found[index] = 0;
            requestAnimationFrame(() => {
                const after = new MessageChannel();
                after.port1.onmessage = () => {
                    found[index] = performance.now() - began;
                    if (found.every((one) => one)) { seen.disconnect(); done(found); }
                };
                after.port2.postMessage(null);
            });
        });
    };
    const seen = new MutationObserver(look);
    seen.observe(document, {childList: true, subtree: true, characterData: true});
    location.hash = `#/train/${name}`;
})"""
FETCHED = """() => [...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]
    .filter(({name}) => !/gradio_api|watch/.test(name)).reduce((sum, {transferSize}) => sum + transferSize, 0)"""


def main() -> None:
    parser = arguments((__doc__ or "").splitlines()[0], sessions=3, rounds=1)
    parser.add_argument("--sessions", type=int, default=SESSIONS, help="sessions that open the page at once")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="openings of each address, one after the other")
    options = parser.parse_args()
    path = find()
    if path is None:
        sys.exit(REMEDY)
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder:
        workspace = fill(Path(folder))
        for number, name in enumerate(RUNS):
            write_run(workspace, name, rank=8 + number)
        page = Page(workspace.root)
        try:
            with sync_playwright() as playwright:
                browser = launch(playwright, path)
                rows = [*openings(browser, page, options.rounds), *switches(browser, page, options.rounds)]
                browser.close()
            rows += asyncio.run(together(page, options))
        finally:
            page.close()
    report(rows, options.json, sessions=options.sessions, load=os.getloadavg())


def openings(browser: Browser, page: Page, rounds: int) -> list[dict[str, Any]]:
    """Return medians of opening each address, in turn."""
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in ADDRESSES}
    for _ in range(rounds):
        for name, address in ADDRESSES.items():
            context = browser.new_context()
            opened = context.new_page()
            opened.set_default_timeout(1000 * PATIENCE_SECONDS)
            opened.add_init_script(USABLE)
            context.request.get(page.opened)
            metrics = context.new_cdp_session(opened)
            metrics.send("Performance.enable")
            opened.goto(f"{page.url}/{address}")
            usable = float(opened.evaluate("() => window.usable"))
            size = float(opened.evaluate(FETCHED))
            spent = {one["name"]: one["value"] for one in metrics.send("Performance.getMetrics")["metrics"]}
            found[name].append((usable, size / 1000, 1000 * spent["ScriptDuration"]))
            context.close()
    rows = []
    for name, times in found.items():
        usable, size, scripts = (statistics.median(each) for each in zip(*times, strict=True))
        rows.append(row(f"{name}: from the first byte to usable, ms", usable, GOALS["ms"]))
        rows.append(row(f"{name}: over the wire at a first visit, kB", size, GOALS["kB"]))
        rows.append(row(f"{name}: the browser's processor time in scripts, ms", scripts))
    return rows


def switches(browser: Browser, page: Page, rounds: int) -> list[dict[str, Any]]:
    """Return medians of switching from a run to another and back."""
    context = browser.new_context()
    opened = context.new_page()
    opened.set_default_timeout(1000 * PATIENCE_SECONDS)
    context.request.get(page.opened)
    opened.goto(f"{page.url}/#/train/{RUNS[0]}")
    opened.locator("main wb-run .facts").wait_for()
    times = [opened.evaluate(SWITCHED, RUNS[(turn + 1) % 2]) for turn in range(2 * rounds)]
    context.close()
    shape, numbers = (statistics.median(each) for each in zip(*times, strict=True))
    return [
        row("to another run: heading and the shape of its numbers, ms", shape, GOALS["switched"]),
        row("to another run: its numbers, ms", numbers),
    ]


async def together(page: Page, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Measure the server's cost of one session, and of all at once."""
    with page.client() as known:
        headers = {**known.headers, "accept-encoding": ENCODINGS}
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=options.sessions)
    server = psutil.Process(page.process.pid)
    async with httpx.AsyncClient(base_url=page.url, headers=headers, timeout=600, limits=limits) as client:
        await opening(client)
        spent, began = sum(server.cpu_times()[:2]), time.perf_counter()
        for _ in range(options.rounds):
            await opening(client)
        took, spent = time.perf_counter() - began, sum(server.cpu_times()[:2]) - spent
        began = time.perf_counter()
        await asyncio.gather(*(opening(client) for _ in range(options.sessions)))
        all_of_them = time.perf_counter() - began
    return [
        row("the server's processor time an opening, s", spent / options.rounds, GOALS["seconds"]),
        row("until all is there, alone, s", took / options.rounds),
        row(f"until all is there, {options.sessions} at once, s", all_of_them),
    ]


async def opening(client: httpx.AsyncClient) -> None:
    """Request the document, the elements, and the first answer that Home watches."""
    document = (await client.get("/")).text
    for name in re.findall(r"elements/elements-[\w.]+", document):
        (await client.get(f"/{name}")).raise_for_status()
    asked = quote(json.dumps([[1, "overview/overview", {}]]))
    async with client.stream("GET", f"/api/v1/watch?what={asked}") as stream:
        async for line in stream.aiter_lines():
            if line.startswith("data:"):
                return


def row(case: str, value: float, reference: float | str = "") -> dict[str, Any]:
    return {"case": case, "ours": value, "reference": reference}


if __name__ == "__main__":
    main()
