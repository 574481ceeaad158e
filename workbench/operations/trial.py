"""The trial run of `workbench doctor`, in its own process: import a clip and train two steps on the built-in model.

`python -m workbench.operations.trial` prints one line of JSON for each stage, {"title", "found", "remedy"}. The remedy
is empty if the stage worked. Everything happens in a temporary folder.
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
    """Import, then train. Stop at the first failure."""
    given = sorted((demo.DEMO_CLIPS / demo.concept()).glob("*.mp4"))[0]
    media.probe(given)  # raises if a package cannot be loaded; the import would blame the clip
    dataset = Dataset.create(workspace, "doctor")
    dataset.start_import([given])
    if problem := _problem_of(dataset.task("import").folder, CLIP_SECONDS):
        _say(CLIP, problem, REINSTALL)
        return 1
    (clip,) = dataset.clips
    _say(CLIP, f"read, converted and checked: {clip.frames} frames of {clip.width}x{clip.height}")
    run = Run.create(workspace, TrainSettings(dataset=dataset.name, steps=2, held_out=0, preview_every=0, rank=2))
    run.start()
    if problem := _problem_of(run.folder, STEP_SECONDS):
        _say(STEP, problem, REINSTALL)
        return 1
    loss = [line["loss"] for line in read_metrics(run.folder) if "loss" in line][-1]
    _say(STEP, f"encoded a prompt and the clip, took two steps (loss {loss:.2f}), wrote and loaded the LoRA")
    return 0


def _problem_of(folder: Path, seconds: float) -> str:
    """Wait for a job to end and return what went wrong; "" if nothing did."""
    status = jobs.wait(folder, seconds)
    if status.state is jobs.State.FINISHED:
        return ""
    if status.state.alive:
        jobs.kill(folder)
        return f"not done after {seconds:.0f} s (phase: {status.phase or 'starting'})"
    last = next((line.strip() for line in reversed(jobs.log_tail(folder).splitlines()) if line.strip()), "")
    return " | ".join(dict.fromkeys(filter(None, [status.message, last[:300]])))


def _say(title: str, found: str, remedy: str = "") -> None:
    sys.stdout.write(json.dumps({"title": title, "found": found, "remedy": remedy}) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
