"""Measure the cost of many runs and clips for the page's server: `python benchmarks/large_workspace.py [--json FILE]`.

A workspace has 1,000 finished runs, whose list the page watches and `workbench runs` reads in a separate process, and a
dataset of 10,000 clips, which the page shows in parts. Values are CPU seconds; "ours" is the median, "most" the
slowest.
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

import numpy as np
from common import arguments, report

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.written_run import write_run  # noqa: E402
from workbench.clips import media  # noqa: E402
from workbench.clips.records import Clip, write_clips  # noqa: E402
from workbench.dataset_builder import Dataset  # noqa: E402
from workbench.operations.registry import operations  # noqa: E402
from workbench.workspace import Workspace  # noqa: E402

WORDS = (
    "a",
    "red",
    "cat",
    "jumps",
    "over",
    "the",
    "lazy",
    "dog",
    "while",
    "rain",
    "falls",
    "on",
    "a",
    "quiet",
    "street",
)
TIMES = 9


def seconds(call: Callable[[], Any], times: int = TIMES) -> list[float]:
    """Return the CPU time of each of several calls."""
    found = []
    for _ in range(times):
        began = time.process_time()
        call()
        found.append(time.process_time() - began)
    return found


def row(case: str, times: list[float]) -> dict[str, Any]:
    return {"case": case, "ours": statistics.median(times), "most": max(times), "reference": ""}


def asked(workspace: Workspace, noun: str, verb: str, **values: Any) -> Callable[[], Any]:
    """Do what the server does at each look: read the answer of an operation and encode it as JSON."""
    one = next(one for one in operations(noun) if one.verb == verb)
    read = one.reader(workspace, values) if one.watch else lambda: one(workspace, values)
    return lambda: one.plain(read())


def of_runs(workspace: Workspace, count: int) -> list[dict[str, Any]]:
    """Measure the list of runs, at the first look and later."""
    first = write_run(workspace, "run-0", steps=20)
    for number in range(1, count):
        shutil.copytree(first.folder, workspace.run(f"run-{number}"))
    case, look = f"the list of {count:,} runs", asked(workspace, "runs", "list")
    return [
        row(f"{case}, at first", seconds(look, 1)),
        row(f"{case}, looked at again", seconds(look)),
        row("`workbench runs` of them, with Python's start", [in_shell(workspace) for _ in range(3)]),
    ]


def in_shell(workspace: Workspace) -> float:
    """Return the CPU time of `workbench runs`."""
    before = os.times()
    command = [sys.executable, "-m", "workbench", "--workspace", str(workspace.root), "runs"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, cwd=ROOT)
    after = os.times()
    return after.children_user + after.children_system - before.children_user - before.children_system


def of_clips(workspace: Workspace, count: int) -> list[dict[str, Any]]:
    """Measure a page of a dataset: opening it, another page, a search."""
    name = fill(workspace, count).name
    case = f"a dataset of {count:,} clips"
    return [
        row(f"{case}, opened", seconds(asked(workspace, "clips", "cards", name=name), 1)),
        row(f"{case}, another page", seconds(asked(workspace, "clips", "cards", name=name, first=336))),
        row(f"{case}, searched", seconds(asked(workspace, "clips", "cards", name=name, search="cat jumps"))),
    ]


def fill(workspace: Workspace, clips: int) -> Dataset:
    """Make a dataset of that many clips: one video under many names with different captions."""
    dataset = Dataset.create(workspace, "Many")
    (dataset.folder / "clips").mkdir()
    (dataset.folder / "thumbs").mkdir()
    video, picture = workspace.root / "one.mp4", workspace.root / "one.jpg"
    noise = np.random.default_rng(0).integers(0, 255, (9, 12, 18, 3), dtype=np.uint8)
    media.encode(noise.repeat(40, axis=1).repeat(40, axis=2), video, 8)
    media.thumbnail(video, picture)
    records = []
    for number in range(clips):
        name = f"{number:016x}"
        os.link(video, dataset.folder / "clips" / f"{name}.mp4")
        os.link(picture, dataset.folder / "thumbs" / f"{name}.jpg")
        text = " ".join(WORDS[(number + place) % len(WORDS)] for place in range(15 + number % 30))
        records.append(
            Clip(
                file_name=f"clips/{name}.mp4",
                text=f"{text} {number}",
                caption_by="hand",
                source=f"IMG_{clips - number:05}.MOV",
                fps=8,
                frames=9,
                width=720,
                height=480,
                sha256=f"{number:064x}",
            )
        )
    write_clips(dataset.folder, records)
    return dataset


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
