"""Measure how many threads a step should use, and how long they may spin: alone, two at once, beside other work.

Each row is a number of threads and a GOMP_SPINCOUNT (iterations that a thread spins before it sleeps; "-" is libgomp's
default). Columns are milliseconds per step, medians of the rounds: the fastest step of a single training, which is
closest to an idle machine; its mean; each of two trainings with so many threads; a new training with half of the
threads beside one with all, and the latter; and one beside a busy process per core. The trainings live through all
rounds, so that changes in the machine's speed affect all.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from common import arguments, report

from workbench import demo
from workbench.workspace import Workspace

SETTINGS = "settings.json"
SPINS = ("-", "20000", "1000", "0")
COLUMNS = ("fastest", "alone", "two at once", "a new one beside an old one", "the old one", "beside busy processes")


class Training:
    """A run in a separate process that takes steps on request."""

    def __init__(self, workspace: Path, name: str, spin: str) -> None:
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("OMP_", "GOMP_"))}
        environment |= {} if spin == "-" else {"GOMP_SPINCOUNT": spin}
        self.process = subprocess.Popen(
            [sys.executable, __file__, "--child", str(workspace), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        assert self.answer() == (0.0, 0.0)  # ready

    def begin(self, threads: int, seconds: float) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(f"{threads} {seconds}\n")
        self.process.stdin.flush()

    def answer(self) -> tuple[float, float]:
        """Return milliseconds per step: the mean, the fastest."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        while not line.startswith("ms "):
            assert line, "the training ended early"
            line = self.process.stdout.readline()
        _, mean, fastest = line.split()
        return float(mean), float(fastest)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()


def child(workspace: str, name: str) -> None:
    """Train for every line "THREADS SECONDS" on stdin."""
    import torch

    from workbench import jobs
    from workbench.jobs.devices import pick_device
    from workbench.runs.run import Run
    from workbench.runs.settings import TrainSettings
    from workbench.trainer.loop import train_step
    from workbench.trainer.session import Session
    from workbench.workspace import Workspace

    opened = Workspace.open(workspace)
    settings = TrainSettings.load(opened.root / SETTINGS)
    run = Run.create(opened, settings, name)
    with jobs.Job(run.folder) as job:
        session = Session(job, settings, pick_device("cpu"))
        for _ in range(3):
            train_step(session)
        print("ms 0 0", flush=True)
        for line in sys.stdin:
            threads, seconds = line.split()
            torch.set_num_threads(int(threads))
            took, end = [], time.perf_counter() + float(seconds)
            while not took or time.perf_counter() < end:
                began = time.perf_counter()
                train_step(session)
                took.append(time.perf_counter() - began)
            print(f"ms {1000 * statistics.mean(took)} {1000 * min(took)}", flush=True)


def busy(count: int) -> list[subprocess.Popen[bytes]]:
    return [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]


def one_round(first: Training, second: Training, threads: int, seconds: float) -> tuple[float, ...]:
    """Measure the columns once."""
    half = max(1, threads // 2)
    first.begin(threads, seconds)
    alone, fastest = first.answer()
    first.begin(threads, seconds)
    second.begin(threads, seconds)
    together = (first.answer()[0] + second.answer()[0]) / 2
    first.begin(threads, seconds)
    second.begin(half, seconds)
    (old, _), (new, _) = first.answer(), second.answer()
    others = busy(os.cpu_count() or 1)
    first.begin(threads, seconds)
    beside, _ = first.answer()
    for process in others:
        process.kill()
        process.wait()
    return fastest, alone, together, new, old, beside


def main() -> None:
    parser = arguments(__doc__.splitlines()[0], rounds=1, seconds=0.01, spins=["0"], threads=[1])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=1.5, help="seconds of each measurement in a round")
    parser.add_argument("--spins", nargs="+", default=list(SPINS))
    parser.add_argument("--batch-size", type=int, default=1, help="clips per step")
    parser.add_argument("--threads", nargs="+", type=int, default=[1, os.cpu_count() or 1])
    options = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace.open(Path(folder) / "workspace")
        settings = demo.prepare(workspace).changed(steps=1_000_000, preview_every=0, evaluate_every=0)
        settings.changed(batch_size=options.batch_size, gradient_accumulation=1, device="cpu").save(
            workspace.root / SETTINGS
        )
        for spin in options.spins:
            pair = [Training(workspace.root, f"run-{spin}-{number}", spin) for number in (1, 2)]
            for threads in options.threads:
                found = [one_round(*pair, threads, options.seconds) for _ in range(options.rounds)]
                medians = (statistics.median(column) for column in zip(*found, strict=True))
                row: dict[str, Any] = {"threads": threads, "GOMP_SPINCOUNT": spin}
                rows.append(row | dict(zip(COLUMNS, medians, strict=True)))
                print(*rows[-1].values(), file=sys.stderr, flush=True)
            for training in pair:
                training.close()
    report(rows, options.json, unit="milliseconds a step")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--child"]:
        child(*sys.argv[2:4])
    else:
        main()
