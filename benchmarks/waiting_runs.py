"""Measure the cost of waiting runs: processes, cores, memory, and the speed of the run that trains.

    python benchmarks/waiting_runs.py                 0, 99 and 1,000 waiting runs behind one that trains
    python benchmarks/waiting_runs.py --waiting 0 9 --seconds 2

A miniature model trains, because its steps are so short that any other load shows. "CPU ms" is the CPU time of a step,
which does not depend on other work on the machine. "processes", "cores" and "MB" are those of all processes of the
workspace except the one that trains (memory: not shared with others); "put in" is the time to queue one more run,
"list" that of `run_queue.order`.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
from common import arguments, report

from workbench import jobs
from workbench.dataset_builder import Dataset
from workbench.demo import DEMO_CLIPS
from workbench.families import families
from workbench.jobs import queue
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.workspace import Workspace

PATIENCE = 600.0


def main() -> None:
    parser = arguments(__doc__ or "", waiting=[0, 2], seconds=0.5)
    parser.add_argument("--waiting", type=int, nargs="+", default=[0, 99, 1000])
    parser.add_argument("--seconds", type=float, default=10.0)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace.open(Path(folder) / "workspace")
        try:
            rows = measure(workspace, Path(folder) / "toy", sorted(chosen.waiting), chosen.seconds)
        finally:
            for one in (queue.STARTER, *(path.name for path in workspace.runs.glob("*/")), queue.STARTER):
                jobs.kill(workspace.runs / one)
    report(rows, chosen.json)


def measure(workspace: Workspace, toy: Path, counts: Sequence[int], seconds: float) -> list[dict[str, Any]]:
    """Return a row for each number of waiting runs, the fewest first."""
    family = families()[0]
    model = family.toy(toy, family.toys[0])
    Dataset.create(workspace, "Clips").import_files(sorted(DEMO_CLIPS.glob("*/*.mp4"))[:4])
    settings = TrainSettings(
        model=model.source,
        dataset="clips",
        steps=1_000_000,
        save_every=1_000_000,
        preview_every=0,
        evaluate_every=0,
        held_out=0,
        frames=9,
        device="cpu",
        tracker="none",
    )
    first = Run.create(workspace, settings, "trains")
    first.start()
    _until(first, lambda: len(first.metrics) > 50)
    rows, waiting = [], 0
    for count in counts:
        began = time.monotonic()
        for number in range(waiting, count):
            folder = workspace.run(f"waits-{number}")
            folder.mkdir()
            settings.save(folder / jobs.CONFIG)
            Run(folder).start()
        put_in = (time.monotonic() - began) / max(1, count - waiting)
        waiting = max(waiting, count)
        if count:
            _until(first, lambda: "held by run trains" in Run(workspace.run("waits-0")).status.phase)
        rows.append({"case": f"{count} waiting", **_costs(workspace, first, seconds), "put in (ms)": 1000 * put_in})
    return rows


def _costs(workspace: Workspace, first: Run, seconds: float) -> dict[str, Any]:
    others = [one for one in _processes(workspace) if one.pid != first.status.pid]
    own = psutil.Process(first.status.pid)
    steps, spent, used, began = first.metrics[-1]["step"], _seconds(others), _seconds([own]), time.monotonic()
    time.sleep(seconds)
    took = time.monotonic() - began
    made, spent = first.metrics[-1]["step"] - steps, _seconds(others) - spent
    used = _seconds([own]) - used
    memory = sum(one.memory_full_info().uss for one in others)
    began = time.monotonic()
    queue.order(workspace)
    return {
        "steps a second": made / took,
        "CPU ms": 1000 * used / made,
        "processes": len(others),
        "cores": spent / took,
        "MB": memory / 1e6,
        "list (ms)": 1000 * (time.monotonic() - began),
    }


def _processes(workspace: Workspace) -> list[psutil.Process]:
    """Return every process of ours at work in the workspace."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        if any(word.startswith(f"{workspace.root}/") for word in process.info["cmdline"] or ()):
            found.append(process)
    return found


def _seconds(processes: Sequence[psutil.Process]) -> float:
    return sum(sum(one.cpu_times()[:2]) for one in processes)


def _until(run: Run, condition: Any) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > end or not run.status.state.alive:
            sys.exit(jobs.log_tail(run.folder))
        time.sleep(0.2)


if __name__ == "__main__":
    main()
