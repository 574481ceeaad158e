"""Many open pages at once: `python benchmarks/many_sessions.py [--json FILE] [--smallest]`.

A real page over a small workspace with a run. Sessions load it, four at a time; then each asks once a second what the
Train tab of an open page asks at each tick, and waits for all answers. Measured are the times from asking to the last
answer (median, p95), of the first load and of the ticks, with one session and with all, and the server's memory and
processor time. The goal: a p95 below the second after which the next tick comes.
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
from pathlib import Path
from typing import Any

import httpx
import psutil

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.common import arguments, report  # noqa: E402
from benchmarks.hostile_calls import fill, megabytes  # noqa: E402
from tests.serving import Page  # noqa: E402

SESSIONS, SECONDS, TICK = 50, 30.0, 1.0
GOAL_MS = 1000.0
TRAIN = 2  # which of the page's timers is the Train tab's


def main() -> None:
    parser = arguments((__doc__ or "").splitlines()[0], sessions=3, seconds=2.0)
    parser.add_argument("--sessions", type=int, default=SESSIONS)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long they are watched")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        page = Page(fill(Path(folder)).root)
        try:
            rows = asyncio.run(measure(page, options))
        finally:
            page.close()
    report(rows, options.json, sessions=options.sessions, seconds=options.seconds, load=os.getloadavg())


async def measure(page: Page, options: argparse.Namespace) -> list[dict[str, Any]]:
    server = psutil.Process(page.process.pid)
    with page.client() as known:
        headers, config = dict(known.headers), known.get("/config").json()
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=options.sessions)
    async with httpx.AsyncClient(base_url=page.url, headers=headers, timeout=600, limits=limits) as client:
        await watched(client, config, 1, 1.0)  # what the first one loads stays loaded
        _, alone = await watched(client, config, 1, min(5.0, options.seconds))
        before, spent, began = megabytes(server), sum(server.cpu_times()[:2]), time.perf_counter()
        loads, ticks = await watched(client, config, options.sessions, options.seconds)
        spent, took = sum(server.cpu_times()[:2]) - spent, time.perf_counter() - began
    return [
        row("a tick, one session, median ms", statistics.median(alone)),
        row(f"a tick, {options.sessions} sessions, median ms", statistics.median(ticks)),
        row(f"a tick, {options.sessions} sessions, p95 ms", p95(ticks), GOAL_MS),
        row("the first load, four at a time, p95 ms", p95(loads)),
        row("ticks measured", len(ticks)),
        row("the server's processor time a second, ms", 1000 * spent / took),
        row("the server's memory before, MB", before),
        row("the server's memory after, MB", megabytes(server), before),
    ]


def row(case: str, value: float, reference: float | str = "") -> dict[str, Any]:
    return {"case": case, "ours": value, "reference": reference}


def p95(times: list[float]) -> float:
    return sorted(times)[min(int(0.95 * len(times)), len(times) - 1)]


async def watched(
    client: httpx.AsyncClient, config: dict[str, Any], sessions: int, seconds: float
) -> tuple[list[float], list[float]]:
    """Milliseconds of the first loads, four at a time, then of the ticks of all, which begin spread over one tick."""
    names, together = [secrets.token_hex(6) for _ in range(sessions)], asyncio.Semaphore(4)
    shown = {one["id"] for one in config["components"] if one["type"] == "browserstate"}
    loads = await asyncio.gather(*(load(client, config, name, shown, together) for name in names))
    ticks = await asyncio.gather(
        *(watch(client, config, name, shown, TICK * n / sessions, seconds) for n, name in enumerate(names))
    )
    return list(loads), [tick for times in ticks for tick in times]


async def load(
    client: httpx.AsyncClient, config: dict[str, Any], name: str, shown: set[int], together: asyncio.Semaphore
) -> float:
    """Open the page with the Train tab; milliseconds until all that it asks for then is answered."""
    async with together:
        began = time.perf_counter()
        (await client.get("/")).raise_for_status()
        tab = next(one["id"] for one in config["components"] if one["props"].get("elem_id") == "tab-train")
        await asked(client, name, handlers(config, tab, "select"), shown)
        return 1000 * (time.perf_counter() - began)


async def watch(
    client: httpx.AsyncClient, config: dict[str, Any], name: str, shown: set[int], delay: float, seconds: float
) -> list[float]:
    """The ticks of one open page, each a second after the one before was asked for, or later; milliseconds of each."""
    timers = [one["id"] for one in config["components"] if one["type"] == "timer"]
    at_tick, times = handlers(config, timers[TRAIN], "tick"), list[float]()
    await asyncio.sleep(delay)
    end = time.perf_counter() + seconds
    while not times or time.perf_counter() < end:
        began = time.perf_counter()
        await asked(client, name, at_tick, shown)
        times.append(1000 * (time.perf_counter() - began))
        await asyncio.sleep(max(TICK - times[-1] / 1000, 0))
    return times


def handlers(config: dict[str, Any], component: int, event: str) -> list[dict[str, Any]]:
    """The handlers of an event of a component."""
    return [one for one in config["dependencies"] if one["backend_fn"] and [component, event] in one["targets"]]


async def asked(client: httpx.AsyncClient, name: str, calls: list[dict[str, Any]], shown: set[int]) -> None:
    """Call handlers as a page does that shows the run, and wait for all answers. shown: components with its name"""
    for one in calls:
        data = ["a-run" if component in shown else None for component in one["inputs"]]
        body = {"fn_index": one["id"], "data": data, "session_hash": name}
        (await client.post("/gradio_api/queue/join", json=body)).raise_for_status()
    left = len(calls)
    async with client.stream("GET", f"/gradio_api/queue/data?session_hash={name}") as stream:
        async for line in stream.aiter_lines():
            left -= line.startswith("data:") and json.loads(line[5:])["msg"] == "process_completed"
            if left <= 0:
                return


if __name__ == "__main__":
    main()
