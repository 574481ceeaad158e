"""A run's folder as a run leaves it, written with the classes that runs use, without training."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path
from typing import Any

from workbench import jobs
from workbench.runs.metrics import SESSIONS, MetricsWriter
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.workspace import Workspace, append_line, write_json

NOW = time.time()
ROLES = ("train", "held_out")


def write_run(workspace: Workspace, name: str, steps: int = 200, **values: Any) -> Run:
    """A run that finished a minute ago: curves that fall, measurements every 20 steps, two checkpoints."""
    folder = workspace.run(name)
    settings = TrainSettings(dataset="cats", steps=steps, **values)
    settings.save(folder / jobs.CONFIG)
    write_json(folder / jobs.PROCESS, {"pid": 1, "start_time": "0", "boot_id": "none", "started_at": NOW - 100})
    writer = MetricsWriter(folder, 0)
    for step in range(steps + 1):
        fallen, moment = math.exp(-step / 60), NOW - 90 + 60 * step / steps
        if step:
            samples = [[level, 0.3 + 0.2 * fallen + level / 2] for level in ((step * 37) % 1000 / 1000, 0.5)]
            loss = sum(value for _, value in samples) / 2
            writer.write(step=step, time=moment, loss=loss, lr=1e-4, grad_norm=1.0, seconds=0.3, samples=samples)
        if step % 20 == 0:
            bands = [0.2 * band + 0.2 * fallen for band in (1, 2, 3, 4, 5)]
            change = {"change_own": 0.4 * (1 - fallen), "change_others": 0.04 * (1 - fallen)}
            writer.write(step=step, time=moment, held_out_loss=sum(bands) / 5, held_out_bands=bands, **change)
    writer.close()
    machine = {"device": "processor", "precision": "fp32", "versions": {"torch": "2.13"}, "trained": 1000}
    append_line(folder / SESSIONS, json.dumps({"time": NOW - 90, "step": 0, **machine}))
    for step in (steps // 2, steps):
        write_json(folder / "checkpoints" / f"step-{step:08d}" / "MANIFEST.json", {"step": step, "files": {}})
    taken = {"sha256": "0", "indices": list(range(9)), "crop": [0, 0, 40, 48], "resize": [40, 48]}
    clips = [
        {**taken, "file_name": f"clips/{role}.mp4", "name": f"{role}.mp4", "caption": "a cat", "role": role}
        for role in ROLES
    ]
    write_json(folder / "dataset.lock.json", clips)
    ended(folder, "finished", 0)
    return Run(folder)


def ended(folder: Path, status: str, code: int, message: str = "") -> None:
    write_json(folder / jobs.RESULT, {"status": status, "exit_code": code, "message": message, "ended_at": NOW - 20})


def two_sessions(run: Run) -> None:
    """A day in the queue, 40 s of training, almost three hours stopped, 30 s of training: 1 min 10 s in all."""
    write_json(run.folder / jobs.PROCESS, {"pid": 1, "start_time": "0", "boot_id": "none", "started_at": NOW - 90_000})
    machine = {"device": "processor", "precision": "fp32", "versions": {"torch": "2.13"}, "trained": 1000}
    sessions = ({"time": NOW - 10_000, "step": 0}, {"time": NOW - 50, "step": 100, "before": NOW - 9_960})
    lines = [json.dumps({**session, **machine}) for session in sessions]
    (run.folder / SESSIONS).write_text("\n".join(lines) + "\n", encoding="utf-8")


def add_preview(run: Run, step: int, clip: Path, prompt: str = "a cat", stem: str = "0", **more: Any) -> None:
    """A preview with the given video."""
    folder = run.folder / "previews" / f"step-{step:08d}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{stem}.mp4").write_bytes(clip.read_bytes())
    write_json(folder / f"{stem}.json", {"prompt": prompt, "step": step, "width": 64, **more})
