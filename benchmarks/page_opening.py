"""What opening the page costs the server: `python benchmarks/page_opening.py [--json FILE] [--smallest]`.

A headless Chromium opens the page over a small workspace, once for the first time and once again; what it asks for
until it is at rest is recorded, ticks left out. Then sessions ask for the same, each under a name of its own: one after
the other for the processor time and the bytes of an opening, and all at once for the time until the last one has all
its answers. Gradio's own files, which a browser keeps, are a row of their own. What the page's scripts cost the browser
is measured with listeners as assets/before_gradio.js makes them and, as the reference, as Gradio has them.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import secrets
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import httpx
import psutil

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.common import arguments, report  # noqa: E402
from benchmarks.hostile_calls import fill  # noqa: E402
from scripts.browser import REMEDY, find  # noqa: E402
from tests.browser.server import launch  # noqa: E402
from tests.serving import Page  # noqa: E402

if TYPE_CHECKING:
    from playwright.sync_api import Browser

ROUNDS, SESSIONS = 10, 50
TICKS, PATIENCE_SECONDS = 3, 300.0  # a page is at rest after so many ticks of its open tab
AS_GRADIO_HAS_THEM = """(() => {
    const set = Object.setPrototypeOf;
    Object.setPrototypeOf = (one, like) => (like?.constructor.name === 'Listener' ? one : set(one, like));
})()"""
GOALS = {"seconds": 0.06, "kB": 100.0}
ENCODINGS = "gzip, deflate, br"
QUEUE_FULL = 503
REFUSED: list[int] = []  # handlers that were not called because too many waited
FILES = ("/assets/", "/static/", "/favicon.ico", "/svelte/")  # what a browser keeps


@dataclass
class Opening:
    """What a browser asked for: pages and files in order, and the bodies of its calls.

    seconds: processor time of the server meanwhile
    """

    paths: list[str] = field(default_factory=list)
    calls: list[dict[str, Any]] = field(default_factory=list)
    seconds: float = 0.0


def main() -> None:
    parser = arguments((__doc__ or "").splitlines()[0], sessions=3, rounds=1)
    parser.add_argument("--sessions", type=int, default=SESSIONS, help="so many open the page at once")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="openings one after the other")
    parser.add_argument("--tab", default="home", help="the tab that is open")
    options = parser.parse_args()
    path = find()
    if path is None:
        sys.exit(REMEDY)
    from playwright.sync_api import sync_playwright

    with tempfile.TemporaryDirectory() as folder:
        page = Page(fill(Path(folder)).root)
        try:
            with sync_playwright() as playwright:
                browser = launch(playwright, path)
                recorded = record(browser, page, options.tab)
                scripts = script_seconds(browser, page, options.tab, options.rounds)
                browser.close()
            rows = [*asyncio.run(measure(page, recorded, options)), scripts]
        finally:
            page.close()
    report(rows, options.json, sessions=options.sessions, tab=options.tab, load=os.getloadavg())


def record(browser: Browser, page: Page, tab: str) -> Opening:
    """Open the page twice in one profile; what was asked for the second time, when the server had nothing to load."""
    with page.client() as known:
        ticks = {one["id"] for one in known.get("/config").json()["dependencies"] if is_tick(one)}
    context = browser.new_context()
    opened = context.new_page()
    opened.set_default_timeout(1000 * PATIENCE_SECONDS)
    found, server = Opening(), psutil.Process(page.process.pid)
    requests: list[Any] = []
    opened.on("request", lambda request: requests.append(request))
    for address in (page.opened, f"{page.opened.split('?')[0]}?tab={tab}"):
        requests.clear()
        began = sum(server.cpu_times()[:2])
        opened.goto(address)
        until = time.monotonic() + PATIENCE_SECONDS
        while sum(called(request) in ticks for request in requests) < TICKS and time.monotonic() < until:
            opened.wait_for_timeout(200)
        found.seconds = sum(server.cpu_times()[:2]) - began
    for request in requests:
        address, number = urlsplit(request.url), called(request)
        if number is not None:
            if number not in ticks:
                found.calls.append(json.loads(request.post_data))
        elif request.method == "GET" and address.scheme == "http" and "/gradio_api/" not in address.path:
            found.paths.append(f"{address.path}?{address.query}".rstrip("?"))
    context.close()
    return found


def script_seconds(browser: Browser, page: Page, tab: str, rounds: int) -> dict[str, Any]:
    """The browser's processor time in scripts until the page stands: medians of openings that take turns, each in a
    profile of its own, with listeners as before_gradio.js makes them and as Gradio has them."""
    spent: dict[bool, list[float]] = {True: [], False: []}
    for turn in range(2 * rounds):
        context = browser.new_context()
        opened = context.new_page()
        opened.set_default_timeout(1000 * PATIENCE_SECONDS)
        metrics = context.new_cdp_session(opened)
        metrics.send("Performance.enable")
        if turn % 2:
            opened.add_init_script(AS_GRADIO_HAS_THEM)
        opened.goto(page.opened)
        opened.goto(f"{page.opened.split('?')[0]}?tab={tab}")
        opened.wait_for_function("window.workbenchTabs")
        found = {one["name"]: one["value"] for one in metrics.send("Performance.getMetrics")["metrics"]}
        spent[turn % 2 == 0].append(found["ScriptDuration"])
        context.close()
    return row(
        "the browser's processor time in scripts, s (reference: with listeners as Gradio has them)",
        statistics.median(spent[True]),
        statistics.median(spent[False]),
    )


def called(request: Any) -> int | None:
    """The number of the handler that a request calls; None for other requests."""
    return json.loads(request.post_data)["fn_index"] if urlsplit(request.url).path.endswith("/queue/join") else None


def is_tick(dependency: dict[str, Any]) -> bool:
    return any(kind == "tick" for _, kind in dependency["targets"])


async def measure(page: Page, recorded: Opening, options: argparse.Namespace) -> list[dict[str, Any]]:
    with page.client() as known:
        headers = {**known.headers, "accept-encoding": ENCODINGS}
    files = [path for path in dict.fromkeys(recorded.paths) if path.startswith(FILES)]
    pages = [path for path in dict.fromkeys(recorded.paths) if path not in files]
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=options.sessions)
    server = psutil.Process(page.process.pid)
    async with httpx.AsyncClient(base_url=page.url, headers=headers, timeout=600, limits=limits) as client:
        await opening(client, pages, recorded.calls)
        await fetched(client, files)
        spent, began = sum(server.cpu_times()[:2]), time.perf_counter()
        size = [await opening(client, pages, recorded.calls) for _ in range(options.rounds)][-1]
        took, spent = time.perf_counter() - began, sum(server.cpu_times()[:2]) - spent
        began = time.perf_counter()
        await asyncio.gather(*(opening(client, pages, recorded.calls) for _ in range(options.sessions)))
        together = time.perf_counter() - began
        spent_files = sum(server.cpu_times()[:2])
        size_files = await fetched(client, files)
        spent_files = sum(server.cpu_times()[:2]) - spent_files
    return [
        row("handlers called by an opening", len(recorded.calls)),
        row("the server's processor time an opening, s", spent / options.rounds, GOALS["seconds"]),
        row(f"the same as a browser does it, with {TICKS} ticks, s", recorded.seconds),
        row("until all is answered, alone, s", took / options.rounds),
        row(f"until all is answered, {options.sessions} at once, s", together),
        row("handlers refused then, since too many waited", len(REFUSED), 0.0),
        row("over the wire, without the files below, kB", size / 1000, GOALS["kB"]),
        row(f"Gradio's {len(files)} files, at a first visit, kB", size_files / 1000),
        row("the server's processor time for them, s", spent_files),
    ]


def row(case: str, value: float, reference: float | str = "") -> dict[str, Any]:
    return {"case": case, "ours": value, "reference": reference}


async def opening(client: httpx.AsyncClient, pages: list[str], calls: list[dict[str, Any]]) -> int:
    """What a browser asks for, as a session of its own; bytes of the answers."""
    size, name, left = await fetched(client, pages), secrets.token_hex(6), 0
    for body in calls:
        answer = await client.post("/gradio_api/queue/join", json={**body, "session_hash": name})
        REFUSED.append(body["fn_index"]) if answer.status_code == QUEUE_FULL else answer.raise_for_status()
        left += answer.is_success
        size += answer.num_bytes_downloaded
    while left > 0:
        async with client.stream("GET", f"/gradio_api/queue/data?session_hash={name}") as stream:
            async for line in stream.aiter_lines():
                left -= line.startswith("data:") and json.loads(line[5:])["msg"] == "process_completed"
                if left <= 0:
                    break
            size += stream.num_bytes_downloaded
    return size


async def fetched(client: httpx.AsyncClient, paths: list[str]) -> int:
    size = 0
    for path in paths:
        answer = await client.get(path)
        answer.raise_for_status()
        size += answer.num_bytes_downloaded
    return size


if __name__ == "__main__":
    main()
