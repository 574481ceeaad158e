"""What many runs and many clips cost the page's server: `python benchmarks/large_workspace.py [--json FILE]`.

A workspace of 1,000 finished runs, whose list the Train tab reads anew and looks at with each tick, and which
`workbench runs` reads in a process of its own; and a dataset of 10,000 clips, which the Dataset tab opens and looks at
again. Seconds of the processor's time; "ours" is the median, "most" the slowest.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from common import arguments, report

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from workbench.ui.core.live import Live  # noqa: E402
from workbench.ui.datasets.clip_grid import ClipGrid, PageQuery  # noqa: E402
from workbench.ui.train.run_list import ListRequest, RunList  # noqa: E402

from benchmarks.clip_grid import fill  # noqa: E402
from tests.written_run import write_run  # noqa: E402
from workbench.workspace import Workspace  # noqa: E402

TIMES = 9


def seconds(call: Callable[[], Any], times: int = TIMES) -> list[float]:
    """Processor time of each of several calls."""
    found = []
    for _ in range(times):
        began = time.process_time()
        call()
        found.append(time.process_time() - began)
    return found


def row(case: str, times: list[float]) -> dict[str, Any]:
    return {"case": case, "ours": statistics.median(times), "most": max(times), "reference": ""}


def of_runs(workspace: Workspace, count: int) -> list[dict[str, Any]]:
    """The list of runs: at the first tick, read anew, and at a tick between."""
    first = write_run(workspace, "run-0", steps=20)
    for number in range(1, count):
        shutil.copytree(first.folder, workspace.run(f"run-{number}"))
    live = Live(workspace)
    shown = RunList(live)
    case = f"the list of {count:,} runs"

    def anew() -> None:
        live.refresh(None)
        shown.found(ListRequest())

    return [
        row(f"{case}, at first", seconds(anew, 1)),
        row(f"{case}, read anew", seconds(anew)),
        row(f"{case}, a tick", seconds(lambda: shown.value("run-0"))),
        row("`workbench runs` of them, with Python's start", [in_shell(workspace) for _ in range(3)]),
    ]


def in_shell(workspace: Workspace) -> float:
    """Processor time of `workbench runs`."""
    before = os.times()
    command = [sys.executable, "-m", "workbench", "--workspace", str(workspace.root), "runs"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=ROOT)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def of_clips(workspace: Workspace, count: int) -> list[dict[str, Any]]:
    """A page of a dataset: when it is opened, another one, and at a tick."""
    dataset = fill(workspace, count)
    grid = ClipGrid(workspace)
    case = f"a dataset of {count:,} clips"
    return [
        row(f"{case}, opened", seconds(lambda: grid.page(PageQuery(dataset=dataset.name)), 1)),
        row(f"{case}, another page", seconds(lambda: grid.page(PageQuery(dataset=dataset.name, page=7)))),
        row(f"{case}, searched", seconds(lambda: grid.page(PageQuery(dataset=dataset.name, search="cat jumps")))),
        row(f"{case}, a tick", seconds(lambda: grid.value(dataset))),
    ]


def main() -> None:
    parser = arguments((__doc__ or "").splitlines()[0], runs=20, clips=100)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--clips", type=int, default=10_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace.open(folder)
        report([*of_runs(workspace, options.runs), *of_clips(workspace, options.clips)], options.json)


if __name__ == "__main__":
    main()
