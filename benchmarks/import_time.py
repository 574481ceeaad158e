"""Measure the cost of starting: CPU seconds until the shell, the page, a run and the sampling worker are ready.

    python benchmarks/import_time.py

Each case is a separate process, without the start of Python itself. A run is ready before its first step, with and
without captions and clips to encode; the sampling worker when its model is loaded. "with the compiler" is the same run
with PyTorch's compiler imported, as for `compile` or an optimizer of another package. "modules" counts imported
modules; the other columns count those of torch, diffusers, transformers and the compiler (also counted for torch).
Medians of the rounds.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import arguments, report

HERE = Path(__file__).resolve().parent
COMPILER = ("torch._dynamo", "torch._inductor", "torch._functorch")
ENCODED = "a run, all to be encoded"
CASES_HELP = "in this order: a run finds what the one before it has encoded"
RUN, RUN_COMPILER = "a run, before its first step", "the same, with the compiler"
CASES = ("workbench --help", "the page", ENCODED, RUN, RUN_COMPILER, "the sampling worker")


def main() -> None:
    parser = arguments((__doc__ or "").splitlines()[0], rounds=1, cases=[CASES[0], ENCODED])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cases", nargs="+", choices=CASES, default=CASES, metavar="CASE", help=CASES_HELP)
    parser.add_argument("--child", nargs=2, metavar=("CASE", "WORKSPACE"))
    options = parser.parse_args()
    if options.child:
        child(options.child[0], Path(options.child[1]))
        return
    with tempfile.TemporaryDirectory() as folder:
        prepare(Path(folder))
        measured: dict[str, list[dict[str, Any]]] = {case: [] for case in options.cases}
        for _ in range(options.rounds):
            for case in options.cases:
                measured[case].append(measure(case, Path(folder)))
    rows = []
    for case, found in measured.items():
        seconds = statistics.median(one["seconds"] for one in found)
        rows.append({"case": case, **found[0], "seconds": seconds})
    report(rows, options.json)


def prepare(folder: Path) -> None:
    """Make a workspace with the demo's datasets and a run on the built-in model that has not started."""
    from workbench import demo
    from workbench.runs.run import Run
    from workbench.workspace import Workspace

    workspace = Workspace.open(folder)
    settings = demo.prepare(workspace).changed(preview_every=0, evaluate_every=0, device="cpu")
    Run.create(workspace, settings, "one")


def measure(case: str, folder: Path) -> dict[str, Any]:
    """Measure a case in a separate process: seconds, and numbers of modules."""
    if case == ENCODED:
        shutil.rmtree(folder / "cache")
        (folder / "cache").mkdir()
    command = [sys.executable, __file__, "--child", case, str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if done.returncode:
        sys.exit(f"{case} ended with {done.returncode}:\n{done.stderr[-3000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def child(case: str, folder: Path) -> None:
    """Make one case ready and report the cost, without modules of the benchmark itself."""
    mine = set(sys.modules)
    began = time.process_time()
    start(case, folder)
    loaded = [name for name in sys.modules if name not in mine]
    found = {"seconds": time.process_time() - began, "modules": len(loaded)}
    compiler = [name for name in loaded if name.startswith(COMPILER)]
    for package in ("torch", "diffusers", "transformers"):
        found[package] = sum(name.split(".")[0] == package for name in loaded)
    print(json.dumps({**found, "compiler": len(compiler)}))


def start(case: str, folder: Path) -> None:
    from workbench.jobs import processes

    if case == "workbench --help":
        from workbench.cli import cli

        with contextlib.suppress(SystemExit), contextlib.redirect_stdout(sys.stderr):
            cli.main(["--help"])
    elif case == "the page":
        from workbench.ui.app import build
        from workbench.workspace import Workspace

        build(Workspace.open(folder))
    elif case == "the sampling worker":
        with processes.loading(), processes.without_compiler():
            from workbench.jobs.devices import pick_device
            from workbench.sampler.generate import Sampler

            Sampler("tiny-cogvideox", pick_device("cpu"))
    else:
        with processes.without_compiler(case == RUN_COMPILER), processes.loading():
            from workbench.jobs import Job
            from workbench.jobs.devices import pick_device
            from workbench.runs.run import Run
            from workbench.trainer.session import Session
            from workbench.workspace import Workspace

            run = Run.open(Workspace.open(folder), "one")
            Session(Job(run.folder), run.settings, pick_device("cpu"))


if __name__ == "__main__":
    main()
