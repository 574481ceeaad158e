"""Measure the cost of a look at the queue while samples wait: on the page, on Home, in the shell, in a notebook.

    python benchmarks/waiting_samples.py                  10, 100 and 1,000 waiting samples
    python benchmarks/waiting_samples.py --waiting 5000

CPU milliseconds, medians of nine looks: "page" is the list on the Sample page, "count" the count on Home, "one" the
progress of a single sample, "revive" the check for a crashed worker. No worker runs; this process takes its place.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from common import arguments, report

from workbench import jobs
from workbench.jobs import processes
from workbench.jobs.queue import REQUESTS
from workbench.operations import samples
from workbench.sampler import queue
from workbench.sampler.settings import SampleSettings
from workbench.workspace import Workspace, write_json

LOOKS = 9


def main() -> None:
    parser = arguments(__doc__ or "", waiting=[2])
    parser.add_argument("--waiting", type=int, nargs="+", default=[10, 100, 1000])
    chosen = parser.parse_args()
    rows = []
    for count in chosen.waiting:
        with tempfile.TemporaryDirectory() as folder:
            rows.append(measure(Workspace.open(Path(folder) / "workspace"), count))
    report(rows, chosen.json)


def measure(workspace: Workspace, count: int) -> dict[str, object]:
    """Return one row: the cost of each look while so many samples wait."""
    folder = queue.worker_folder(workspace)
    request = {"settings": SampleSettings(prompt="a cat").model_dump(mode="json"), "into": "", "bulk": False}
    ids = [f"20260101-000000-{number:06d}-aaaa" for number in range(count)]
    for name in ids:
        write_json(folder / REQUESTS / f"{name}.json", request)
    write_json(folder / jobs.PROCESS, {**processes.identity(os.getpid()), "started_at": time.time()})
    write_json(folder / jobs.HEARTBEAT, {"phase": "idle", "time": time.time()})
    return {
        "waiting": count,
        "page": taken(lambda: samples.queue_(workspace)),
        "count": taken(lambda: queue.pending_samples(workspace)),
        "one": taken(lambda: queue.progress(workspace, ids[-1])),
        "revive": taken(lambda: queue.revive(workspace)),
    }


def taken(look: Callable[[], object]) -> float:
    """Return CPU milliseconds."""
    times = []
    for _ in range(LOOKS):
        began = time.process_time()
        look()
        times.append(1000 * (time.process_time() - began))
    return median(times)


if __name__ == "__main__":
    main()
