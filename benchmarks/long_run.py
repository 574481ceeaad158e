"""Measure the page of a running run of 100,000 steps: first paint, updates while lines are appended, server memory.

    python benchmarks/long_run.py             with the server in a separate process and a real browser

The run's folder is realistic: a line per step with two clips each, a measurement every 100 steps, two previews every
500, 13 checkpoints. The trainer keeps what it has read of the metrics with each checkpoint; a run of an earlier version
has nothing kept. "ours" is the median, "most" the slowest, "reference" the promise: charts within a second of first
opening the page and within half a second later, an update within 2 seconds of its line (the page asks once a second),
100 ms of the browser's CPU time for it, and memory that does not grow with updates.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
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

from workbench import jobs
from workbench.clips import media
from workbench.jobs import platform
from workbench.runs import checkpoints
from workbench.runs.analysis.curves import KEPT, Curves
from workbench.runs.metrics import METRICS
from workbench.runs.settings import TrainSettings
from workbench.workspace import Workspace, write_bytes, write_json

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from scripts.browser import find  # noqa: E402
from tests.browser.server import Server, launch  # noqa: E402

if TYPE_CHECKING:
    from playwright.sync_api import Browser, BrowserContext, Page

FIRST_MS, NEXT_MS, UPDATE_MS, TICK_MS = 1000.0, 500.0, 2000.0, 100.0
SECONDS = 3  # ticks
MEASURED, PREVIEWED, SAVED = 100, 500, 10_000  # every so many steps
PROMPTS = ("a red ring moves left on a black background", "a blue ring turns")
# A chart is painted once its curves exist.
CHART = "main wb-chart svg path.line"
# When the browser has painted them: in the task after the frame that follows their being there. Playwright itself looks
# again when the page has done all else that it does as it opens, up to 0.4 s later.
PAINTED = f"""window.painted = new Promise((done) => {{
    const seen = new MutationObserver(() => {{
        if (!document.querySelector("{CHART}")) return;
        seen.disconnect();
        requestAnimationFrame(() => {{
            const after = new MessageChannel();
            after.port1.onmessage = () => done(performance.now());
            after.port2.postMessage(null);
        }});
    }});
    seen.observe(document, {{childList: true, subtree: true}});
}})"""
REPAINTED = """() => new Promise((done) => {
    const chart = document.querySelector("main wb-chart");
    const seen = new MutationObserver(() => requestAnimationFrame(() => { seen.disconnect(); done(); }));
    seen.observe(chart, {childList: true, subtree: true, attributes: true});
})"""


class Writer:
    """Write a run's folder like the trainer, as fast as the disk allows."""

    def __init__(self, workspace: Workspace, steps: int) -> None:
        self.run, self.step, self._draw = workspace.run("long"), 0, random.Random(0)
        self.total = 10 * steps
        self.run.mkdir()
        TrainSettings(dataset="rings", steps=self.total, preview_prompts=PROMPTS).save(self.run / jobs.CONFIG)
        (self.run / jobs.LOG).write_text(
            "".join(f"step {step}: held-out loss 0.3\n" for step in range(0, steps, MEASURED))
        )
        pid = os.getpid()
        identity = {"pid": pid, "start_time": platform.start_time(pid), "boot_id": platform.boot_id()}
        write_json(self.run / jobs.PROCESS, {"module": "benchmark", **identity, "started_at": time.time()})

    def advance(self, steps: int) -> None:
        """Append the lines of so many steps, and beat."""
        with (self.run / METRICS).open("a") as file:
            for _ in range(steps):
                self.step += 1
                file.write(json.dumps(self._line()) + "\n")
                if self.step % MEASURED == 0:
                    file.write(json.dumps(self._measurement()) + "\n")
        beat = {"phase": "training", "step": self.step, "total": self.total, "time": time.time(), "step_seconds": 1.0}
        write_json(self.run / jobs.HEARTBEAT, beat)

    def _line(self) -> dict[str, Any]:
        learned = 0.7 + 0.3 * math.exp(-self.step / 20_000)
        samples = [
            [quantile, learned * (0.1 + 0.5 * math.exp(-10 * quantile)) * self._draw.uniform(0.8, 1.2)]
            for quantile in (self._draw.random() for _ in range(2))
        ]
        return {
            "step": self.step,
            "time": time.time(),
            "loss": statistics.fmean(loss for _, loss in samples),
            "lr": 1e-4,
            "grad_norm": self._draw.uniform(0.1, 1),
            "seconds": 1.03,
            "memory_gb": 21.5,
            "samples": samples,
        }

    def _measurement(self) -> dict[str, Any]:
        bands = [0.3 * math.exp(-self.step / 30_000) + 0.1 * band for band in range(5)]
        return {
            "step": self.step,
            "time": time.time(),
            "held_out_loss": statistics.fmean(bands),
            "held_out_bands": bands,
            "change_own": 0.2,
            "change_others": 0.05,
        }

    def past(self, steps: int) -> None:
        """Write everything that a run of so many steps has left."""
        self.advance(steps)
        video = self.run / "one.mp4"
        noise = np.random.default_rng(0).integers(0, 255, (9, 12, 18, 3), dtype=np.uint8)
        media.encode(noise.repeat(8, axis=1).repeat(8, axis=2), video, 8)
        for step in range(0, steps + 1, PREVIEWED):
            folder = self.run / "previews" / f"step-{step:08d}"
            folder.mkdir(parents=True)
            for place, prompt in enumerate(PROMPTS):
                os.link(video, folder / f"{place}.mp4")
                record = {"prompt": prompt, "kind": "sample", "scale": 1.0, "step": step, "seed": 7}
                (folder / f"{place}.json").write_text(json.dumps(record))
        for step in (*range(SAVED, steps + 1, SAVED), *(steps - 300, steps - 200, steps - 100)):
            checkpoints.publish(self.run, step, lambda folder: write_bytes(folder / checkpoints.LORA, bytes(1000)))
        Curves(self.run).refresh()


def fresh(browser: Browser) -> BrowserContext:
    """Return a context that has nothing of the page in its cache."""
    context = browser.new_context(viewport={"width": 1400, "height": 1800})
    context.set_default_timeout(120_000)
    context.add_init_script(PAINTED)
    return context


def opening(context: BrowserContext, address: str) -> tuple[Page, float]:
    """Open a new tab and return the milliseconds until its charts are shown."""
    page = context.new_page()
    page.goto(address)
    page.locator(CHART).first.wait_for()
    return page, float(page.evaluate("() => window.painted"))


def update(page: Page, writer: Writer, steps: int) -> tuple[float, float]:
    """Return the milliseconds from a written line to the updated head, and to the updated chart."""
    page.evaluate(f"() => {{ window.repainted = ({REPAINTED})(); }}")
    writer.advance(steps)
    began = time.perf_counter()
    page.locator("main wb-run .facts", has_text=f"{writer.step:,} of").wait_for()
    told = 1000 * (time.perf_counter() - began)
    page.evaluate("() => window.repainted")
    return told, 1000 * (time.perf_counter() - began)


def tick(page: Page, writer: Writer, steps: int) -> float:
    """Return the CPU milliseconds that the page's main thread takes for a second with so many new steps."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def spent() -> float:
        metrics = session.send("Performance.getMetrics")["metrics"]
        return float(next(one["value"] for one in metrics if one["name"] == "TaskDuration"))

    page.evaluate("() => document.querySelectorAll('video').forEach((video) => video.pause())")  # they cost more
    writer.advance(steps)
    before = spent()
    page.wait_for_timeout(1000 * SECONDS)
    return 1000 * (spent() - before) / SECONDS


def megabytes(server: psutil.Process) -> float:
    return float(server.memory_info().rss) / 1e6


def processor_seconds(server: psutil.Process) -> float:
    """Return CPU seconds, which unlike wall time hardly depend on other processes."""
    times = server.cpu_times()
    return float(times.user + times.system)


def row(case: str, times: list[float], reference: float | str = "") -> dict[str, Any]:
    return {"case": case, "ours": statistics.median(times), "most": max(times), "reference": reference}


def measure(
    context: BrowserContext, server: Server, writer: Writer, options: argparse.Namespace
) -> list[dict[str, Any]]:
    """Open the page several times, then watch it. Times are in milliseconds."""
    process, url = psutil.Process(server.pid), f"{server.url}#/train/long"
    idle = megabytes(process)
    page, first = opening(context, url)  # the server reads the whole file, the browser has nothing of the page yet
    opened, openings = megabytes(process), []
    for _ in range(options.openings):
        page.close()
        page, took = opening(context, url)
        openings.append(took)
    update(page, writer, 100)
    before, spent, began = megabytes(process), processor_seconds(process), time.perf_counter()
    told, drawn = zip(*(update(page, writer, 100) for _ in range(options.updates)), strict=True)
    spent, watched = processor_seconds(process) - spent, time.perf_counter() - began
    ticks = [tick(page, writer, 100 * SECONDS) for _ in range(5)]
    return [
        row("charts painted, first visit, ms", [first], FIRST_MS),
        row("charts painted, next visits, ms", openings, NEXT_MS),
        row("a line told in the head, ms", list(told), UPDATE_MS),
        row("a line drawn in the chart, ms", list(drawn), UPDATE_MS),
        row("browser's processor time a tick, ms", ticks, TICK_MS),
        row("server's processor time a second of watching, ms", [1000 * spent / watched]),
        row("server's memory before the visit, MB", [idle]),
        row("after the first visit, MB", [opened]),
        row("before the updates, MB", [before]),
        row(f"after {options.updates} updates, MB", [megabytes(process)], before),
    ]


def main() -> None:
    parser = arguments((__doc__ or "").splitlines()[0], steps=600, openings=1, updates=1)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--openings", type=int, default=5)
    parser.add_argument("--updates", type=int, default=100)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        workspace = Workspace.open(folder)
        writer = Writer(workspace, options.steps)
        writer.past(options.steps)
        server = Server(workspace.root)
        server.start()
        browser = launch(playwright, str(find()))
        try:
            rows = measure(fresh(browser), server, writer, options)
            server.kill()
            (writer.run / KEPT).unlink(missing_ok=True)
            server.start()
            _, unread = opening(fresh(browser), f"{server.url}#/train/long")
            rows.append(row("charts painted, first visit, nothing kept, ms", [unread]))
        finally:
            browser.close()
            server.kill()
    report(rows, options.json, steps=options.steps, load=os.getloadavg())


if __name__ == "__main__":
    main()
