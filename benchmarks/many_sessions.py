"""Many open pages at once: `python benchmarks/many_sessions.py [--json FILE] [--smallest]`.

A real server holds a small workspace with a run in progress. Each session opens the same event stream as a browser tab
that shows the run. The benchmark advances the run's step repeatedly and measures how long each session waits to hear
about it (median, p95), first with one session and then with all of them, along with the server's memory and CPU time.
The goal is a p95 below two seconds, because the server looks once a second.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import psutil

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from benchmarks.common import arguments, report  # noqa: E402
from benchmarks.hostile_calls import fill, megabytes  # noqa: E402
from tests.serving import Page  # noqa: E402
from tests.test_overview import at_work  # noqa: E402
from workbench.runs.run import Run  # noqa: E402
from workbench.workspace import Workspace  # noqa: E402

SESSIONS, SECONDS, TICK = 50, 30.0, 1.5
GOAL_MS = 2000.0
WATCHED = [[1, "overview/overview", {}], [2, "runs/list", {}], [3, "runs/show", {"name": "a-run"}]]


def main() -> None:
    parser = arguments((__doc__ or "").splitlines()[0], sessions=3, seconds=4.0)
    parser.add_argument("--sessions", type=int, default=SESSIONS)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long to watch them")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        workspace = fill(Path(folder))
        page = Page(workspace.root)
        try:
            rows = asyncio.run(measure(page, workspace, options))
        finally:
            page.close()
    report(rows, options.json, sessions=options.sessions, seconds=options.seconds, load=os.getloadavg())


async def measure(page: Page, workspace: Workspace, options: argparse.Namespace) -> list[dict[str, Any]]:
    server, run = psutil.Process(page.process.pid), Run.open(workspace, "a-run")
    with page.client() as known:
        headers = dict(known.headers)
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=page.url, headers=headers, timeout=600, limits=limits) as client:
        alone = await told(client, run, 1, min(6.0, options.seconds))
        before, spent, began = megabytes(server), sum(server.cpu_times()[:2]), time.perf_counter()
        times = await told(client, run, options.sessions, options.seconds)
        spent, took = sum(server.cpu_times()[:2]) - spent, time.perf_counter() - began
    return [
        row("told of a step, one session, median ms", statistics.median(alone)),
        row(f"told of a step, {options.sessions} sessions, median ms", statistics.median(times)),
        row(f"told of a step, {options.sessions} sessions, p95 ms", p95(times), GOAL_MS),
        row("times measured", len(times)),
        row("the server's processor time a second, ms", 1000 * spent / took),
        row("the server's memory before, MB", before),
        row("the server's memory after, MB", megabytes(server), before),
    ]


def row(case: str, value: float, reference: float | str = "") -> dict[str, Any]:
    return {"case": case, "ours": value, "reference": reference}


def p95(times: list[float]) -> float:
    return sorted(times)[min(int(0.95 * len(times)), len(times) - 1)]


async def told(client: httpx.AsyncClient, run: Run, sessions: int, seconds: float) -> list[float]:
    """Return milliseconds from a written step until a session hears of it, for all sessions and steps."""
    written: dict[int, float] = {}
    times: list[float] = []
    done = asyncio.Event()
    streams = [asyncio.create_task(session(client, written, times, done)) for _ in range(sessions)]
    end, step = time.perf_counter() + seconds, 0
    while time.perf_counter() < end:
        step += 1
        at_work(run, step=step, total=1000)
        written[step] = time.perf_counter()
        await asyncio.sleep(TICK)
    done.set()
    for stream in streams:
        stream.cancel()
    await asyncio.gather(*streams, return_exceptions=True)
    return times


async def session(
    client: httpx.AsyncClient, written: dict[int, float], times: list[float], done: asyncio.Event
) -> None:
    """A tab that shows the run."""
    heard = 0
    async with client.stream("GET", f"/api/v1/watch?what={quote(json.dumps(WATCHED))}") as stream:
        async for line in stream.aiter_lines():
            if done.is_set():
                return
            if not line.startswith('data: {"number":1,'):
                continue
            active = json.loads(line[6:])["value"]["active"]
            shares = [one["share"] for one in active if one["name"] == "a-run"]
            step = round(1000 * (shares[0] or 0)) if shares else 0
            if step > heard and step in written:
                times.append(1000 * (time.perf_counter() - written[step]))
                heard = step


if __name__ == "__main__":
    main()
