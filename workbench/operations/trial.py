"""The trial run of `workbench doctor`, in a process of its own: import a clip, train two steps on the built-in model.

`python -m workbench.operations.trial` prints a line of JSON for each step, {"title", "found", "remedy"}; the remedy is
empty when it worked. Everything happens in a folder of its own, which is removed..
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from workbench import demo, jobs
from workbench.clips import media
from workbench.dataset_builder import Dataset
from workbench.operations.machine import CLIP, CLIP_SECONDS, REINSTALL, STEP, STEP_SECONDS
from workbench.runs.metrics import read_metrics
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.workspace import Workspace


def main() -> int:
    with tempfile.TemporaryDirectory(prefix="workbench-doctor-", ignore_cleanup_errors=True) as folder:
        return _run_trial(Workspace.open(Path(folder)))


def _run_trial(workspace: Workspace) -> int:
    """Import, then train. What fails ends it: the second needs the first."""
    given = sorted((demo.DEMO_CLIPS / demo.concept()).glob("*.mp4"))[0]
    media.probe(given)  # a package that cannot be loaded says so itself; an import would blame the clip
    dataset = Dataset.create(workspace, "doctor")
    dataset.start_import([given])
    if problem := _ended(dataset.task("import").folder, CLIP_SECONDS):
        _say(CLIP, problem, REINSTALL)
        return 1
    (clip,) = dataset.clips
    _say(CLIP, f"read, rewritten and checked: {clip.frames} frames of {clip.width}x{clip.height}")
    run = Run.create(workspace, TrainSettings(dataset=dataset.name, steps=2, held_out=0, preview_every=0, rank=2))
    run.start()
    if problem := _ended(run.folder, STEP_SECONDS):
        _say(STEP, problem, REINSTALL)
        return 1
    loss = [line["loss"] for line in read_metrics(run.folder) if "loss" in line][-1]
    _say(STEP, f"a prompt and the clip encoded, two steps taken (loss {loss:.2f}), the LoRA written and loaded")
    return 0


def _ended(folder: Path, seconds: float) -> str:
    """Wait for a job's end; what went wrong in a sentence, "" when nothing did."""
    status = jobs.wait(folder, seconds)
    if status.state is jobs.State.FINISHED:
        return ""
    if status.state.alive:
        jobs.kill(folder)
        return f"not done after {seconds:.0f} s (at: {status.phase or 'starting'})"
    last = next((line.strip() for line in reversed(jobs.log_tail(folder).splitlines()) if line.strip()), "")
    return " | ".join(dict.fromkeys(filter(None, [status.message, last[:300]])))


def _say(title: str, found: str, remedy: str = "") -> None:
    sys.stdout.write(json.dumps({"title": title, "found": found, "remedy": remedy}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
