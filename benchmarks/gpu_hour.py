"""Measure on a GPU for an hour, the most valuable first: `gpu_hour.py BLOCK [--minutes 9] [--results FOLDER]`.

    training-5b   a training step of 5B: the references, then the memory levels        8 minutes
    training      the same for 2B and 1.5-5B                                           6
    tests         the tests that need a GPU (`pytest -m gpu`)                          5
    run           a whole run of a random 2B: killed, resumed, out of memory           8
    fit           the fit check's estimate against measurement                         5
    sampling      samples against the stock pipeline: seconds, peak GB                 6
    profile       the slowest kernels of the fastest level of 5B                       the rest

A block consists of rows. Another script measures each row in a separate process, and its result is written to
FOLDER/gpu_BLOCK.json at once. Rows that FOLDER or benchmarks/results already has are skipped. The block ends in time:
it kills the current row and leaves it for later. It needs no network or installation, only torch, diffusers,
transformers, peft, accelerate, safetensors, pydantic, psutil, click, rich, and from `tests` on PyAV. `--rehearse` runs
the scripts of every block on a CPU with small models.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from common import arguments, machine, report

HERE = Path(__file__).resolve().parent
ROOT, RESULTS = HERE.parent, HERE / "results"
SHORTEST = 20.0  # seconds; with less left, no further row starts
TAIL = 400  # characters of a failed row's output
Row = dict[str, Any]


@dataclass(frozen=True)
class Asked:
    """A row to measure: its name, the script in this folder and its arguments."""

    name: str
    script: str
    arguments: tuple[str, ...]


GPU_TESTS = Asked("pytest -m gpu", "pytest", ("-m", "gpu", "tests/gpu", "tests/memory"))


def training(model: str, *levels: str) -> list[Asked]:
    return [Asked(f"{model}, {level}", "gpu_training.py", ("--one", model, level)) for level in levels]


def blocks(work: str, results: Sequence[Path]) -> dict[str, list[Asked]]:
    """Return the rows of every block on a GPU. work: keeps models and clips between rows."""
    again = ("--work", work)
    fit = [
        *("cogvideox-2b, keep attention", "cogvideox-2b, full", "cogvideox-5b, full", "cogvideox-5b, offloaded"),
        *("cogvideox-5b, full, fp8", "cogvideox-5b, offloaded, nf4", "cogvideox-5b, offloaded, 20"),
        *("cogvideox1.5-5b, full", "cogvideox1.5-5b, offloaded"),
    ]
    return {
        "training-5b": training(
            "5b",
            *("diffusers", "finetune", "keep attention", "full", "offloaded", "none"),
            *("keep attention, compiled", "full, compiled", "fp8, keep attention, compiled", "none, compiled"),
            *("offloaded, compiled", "fp8, full, compiled", "nf4, full, compiled"),
        ),
        "training": [
            one
            for model in ("2b", "1.5-5b")
            for one in training(
                model,
                *("diffusers", "finetune", "keep attention", "full", "offloaded", "all streamed, offloaded"),
                "full, compiled",
            )
        ],
        "tests": [GPU_TESTS],
        "run": [
            Asked(f"2b, {row}", "whole_run.py", ("--model", "2b", "--rows", row, *again))
            for row in ("trained", "killed", "stock", "out of room")
        ],
        "fit": [Asked(case, "fit_check.py", ("--cases", case, *again)) for case in fit],
        "sampling": [
            Asked(f"{model}, {mode}", "sampling.py", ("--models", model, "--modes", mode, *again))
            for model, mode in (
                *(("2b", "exact"), ("2b", "fast"), ("5b", "fast"), ("5b", "exact"), ("2b", "low-memory")),
                ("5b", "low-memory"),
            )
        ],
        "profile": [
            Asked(f"5b, {level}", "gpu_training.py", ("--one", "5b", level, "--profile", work))
            for level in fastest("training-5b", results)
        ],
    }


def rehearsal(work: str) -> dict[str, list[Asked]]:
    """Return the same scripts for a CPU, with models that it can run."""
    again = ("--work", work)
    return {
        "training-5b": training("tiny", "diffusers", "full"),
        "training": training("tiny", "offloaded"),
        "tests": [GPU_TESTS],
        "run": [Asked("tiny, stock", "whole_run.py", ("--rows", "stock", *again))],
        "fit": [Asked("built-in, batch 1", "fit_check.py", ("--cases", "built-in, batch 1", *again))],
        "sampling": [
            Asked("medium, fast", "sampling.py", ("--models", "medium", "--modes", "fast", "--steps", "2", *again))
        ],
        "profile": [Asked("tiny, full", "gpu_training.py", ("--one", "tiny", "full", "--profile", work))],
    }


def fastest(block: str, folders: Sequence[Path]) -> list[str]:
    """Return the level with the fastest measured step in a block, references aside: a list of one, or empty."""
    rows = [row for row in measured(block, folders).values() if "seconds" in row]
    ours = [row for row in rows if row["level"] not in ("diffusers", "finetune")]
    return [min(ours, key=lambda row: row["seconds"])["level"]] if ours else []


# ---- existing results


def file_of(block: str, folder: Path) -> Path:
    return folder / f"gpu_{block}.json"


def measured(block: str, folders: Sequence[Path]) -> dict[str, Row]:
    """Return the measured rows by name. Failed rows are tried again."""
    found: dict[str, Row] = {}
    for folder in folders:
        path = file_of(block, folder)
        if path.is_file():
            rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
            found |= {row["row"]: row for row in rows if not row.get("failed")}
    return found


# ---- measuring


def measure(asked: Asked, seconds: float) -> Row:
    """Measure one row with its script in a separate process, which is killed when its time is over."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        report_file = Path(folder) / "tests.xml"
        if asked.script == "pytest":
            options = ("-q", "-p", "no:cacheprovider", "-o", "filterwarnings=default", f"--junitxml={report_file}")
            command = [sys.executable, "-m", "pytest", *asked.arguments, *options]
        else:
            command = [sys.executable, str(HERE / asked.script), *asked.arguments]
        output, code = run(command, seconds)
        row: Row = {"row": asked.name}
        if asked.script == "pytest" and report_file.exists():
            row |= outcomes(report_file)
        elif code == 0:
            row |= last_row(output)
        elif "OutOfMemoryError" in output:  # also a result
            row["out of memory"] = True
        else:
            row["failed"] = "its time was over" if code is None else output[-TAIL:]
    return {**row, "took": round(time.monotonic() - began, 1)}


def run(command: list[str], seconds: float) -> tuple[str, int | None]:
    """Return (output, exit code) of a command, or None if it ran out of time, with all its processes killed."""
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH", "")]))
    environment = {**os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1", "PYTHONUNBUFFERED": "1"}
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, env=environment, cwd=ROOT)
        try:
            code: int | None = process.wait(seconds)
        except subprocess.TimeoutExpired:
            for one in [*psutil.Process(process.pid).children(recursive=True), process]:  # jobs have their own sessions
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.kill()
            process.wait()
            code = None
        out.seek(0)
        return out.read(), code


def last_row(output: str) -> Row:
    """Return the last line that is a JSON object: the script's measurement of its one row."""
    for line in reversed(output.splitlines()):
        if line.startswith("{"):
            row: Row = json.loads(line)
            return row
    return {"failed": f"no result: {output[-TAIL:]}"}


def outcomes(path: Path) -> Row:
    """Return the number of passed tests, and names and messages of the others."""
    cases = list(ElementTree.parse(path).getroot().iter("testcase"))
    failed = {
        f"{case.get('classname')}.{case.get('name')}": (problem.get("message") or "")[:TAIL]
        for case in cases
        if (problem := case.find("failure") if case.find("failure") is not None else case.find("error")) is not None
    }
    skipped = sum(case.find("skipped") is not None for case in cases)
    return {"passed": len(cases) - len(failed) - skipped, "skipped": skipped, "not passed": failed}


def card() -> dict[str, str]:
    """Return the GPU and its driver, or nothing without one."""
    from workbench.jobs.devices import gpus

    if not (found := gpus()):
        return {"card": "processor"}
    query = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    driver = subprocess.run(query, capture_output=True, text=True).stdout.split("\n")[0]
    return {"card": found[0].name, "driver": driver}


def write(block: str, folder: Path, rows: Sequence[Row]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    file_of(block, folder).write_text(json.dumps({**machine(), **card(), "rows": list(rows)}, indent=2) + "\n")


def main() -> None:
    parser = arguments((__doc__ or "").splitlines()[0], rehearse=True)
    parser.add_argument("block", nargs="?", choices=[*rehearsal(""), "all"])
    parser.add_argument("--minutes", type=float, default=9.0, help="time limit")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FOLDER", help="folder of the results")
    parser.add_argument("--work", type=Path, metavar="FOLDER", help="folder that keeps models for the next row")
    parser.add_argument("--rehearse", action="store_true", help="the same scripts on a CPU with small models")
    options = parser.parse_args()
    # Not set by --smallest: argparse gives a positional argument that is left out its default at the very end.
    one = options.block or ("profile" if options.smallest else "all")
    end = time.monotonic() + 60 * options.minutes
    with tempfile.TemporaryDirectory() as temporary:
        results = Path(temporary) if options.smallest else options.results
        work = str(options.work or Path(temporary) / "work")
        known = [RESULTS, results] if not options.rehearse else [results]
        chosen = rehearsal(work) if options.rehearse else blocks(work, known)
        everything: list[Row] = []
        for block in list(chosen) if one == "all" else [one]:
            done = measured(block, known)
            rows = list(measured(block, [results]).values())
            for asked in chosen[block]:
                if asked.name in done or (left := end - time.monotonic()) < SHORTEST:
                    continue
                rows.append(measure(asked, left))
                print(json.dumps(rows[-1]), flush=True)
                write(block, results, rows)
            everything += [{"block": block, "row": row["row"], "failed": row.get("failed", "")} for row in rows]
        nothing = {"block": one, "row": "nothing is left to measure", "failed": ""}
        report(everything or [nothing], options.json)


if __name__ == "__main__":
    main()
