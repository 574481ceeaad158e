"""A training run seen from outside: create it, start it, command it, read what it left. No torch.

runs/<slug>/
  config.json dataset.lock.json        settings; the clips trained on, by content
  process.json heartbeat.json control/ job.log result.json      (workbench.jobs)
  metrics.jsonl                        (workbench.trainer.metrics)
  checkpoints/step-00000250/           lora.safetensors optimizer.safetensors state.json MANIFEST.json (last)
  previews/step-00000250/0.mp4 0.json  a preview a prompt; step 0 is the base model
  lora.safetensors README.md           the export and its model card
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from workbench import jobs
from workbench.clips import METADATA
from workbench.errors import ConfigError
from workbench.families import find_model
from workbench.frame_plan import Shape, shape_for
from workbench.trainer.metrics import read_metrics
from workbench.trainer.settings import TrainSettings
from workbench.workspace import Workspace, fresh_folder, read_json

MODULE = "workbench.trainer"
EXPORT = "lora.safetensors"
CARD = "README.md"


@dataclass(frozen=True)
class Preview:
    """One preview video of a run."""

    step: int
    index: int
    prompt: str
    video: Path


class Run:
    """One run's folder. Every property is read afresh from disk."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def create(cls, workspace: Workspace, settings: TrainSettings, name: str | None = None) -> Self:
        """Check the settings against model and dataset and write the run's folder. Raises ConfigError, CannotWrite."""
        check(workspace, settings)
        folder = fresh_folder(workspace.runs, name or settings.dataset)
        settings.save(folder / jobs.CONFIG)
        return cls(folder)

    @classmethod
    def open(cls, workspace: Workspace, slug: str) -> Self:
        """An existing run. Raises ConfigError when there is none of that name."""
        folder = workspace.run(slug)
        if not (folder / jobs.CONFIG).exists():
            known = ", ".join(run.name for run in cls.all(workspace)) or "none yet"
            raise ConfigError(f"there is no run {slug!r}: choose one of {known}")
        return cls(folder)

    @classmethod
    def all(cls, workspace: Workspace) -> list[Self]:
        """Every run of the workspace, newest first."""
        return [cls(status.folder) for status in jobs.jobs_in(workspace.runs)]

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def settings(self) -> TrainSettings:
        return TrainSettings.load(self.folder / jobs.CONFIG)

    @property
    def status(self) -> jobs.Status:
        return jobs.status(self.folder)

    @property
    def result(self) -> dict[str, Any]:
        """result.json, {} while the run is not over."""
        return jobs.result(self.folder)

    @property
    def metrics(self) -> list[dict[str, Any]]:
        return read_metrics(self.folder)[0]

    @property
    def lora(self) -> Path | None:
        """The exported LoRA, None before the run has finished."""
        path = self.folder / EXPORT
        return path if path.exists() else None

    @property
    def previews(self) -> list[Preview]:
        """All previews, by step, then prompt."""
        found = []
        for video in self.folder.glob("previews/step-*/*.mp4"):
            step, index = re.search(r"\d+", video.parent.name), re.search(r"\d+", video.stem)
            record = video.with_suffix(".json")
            if step and index and record.exists():
                prompt = str(read_json(record).get("prompt", ""))
                found.append(Preview(int(step[0]), int(index[0]), prompt, video))
        return sorted(found, key=lambda preview: (preview.step, preview.index))

    @property
    def checkpoints(self) -> list[int]:
        """Steps of the checkpoints that are wholly on disk, oldest first."""
        manifests = self.folder.glob("checkpoints/step-*/MANIFEST.json")
        return sorted(int(path.parent.name.removeprefix("step-")) for path in manifests)

    def start(self) -> jobs.Status:
        """Start the run, or go on from its newest good checkpoint. A running run is left alone."""
        return jobs.start(self.folder, MODULE)

    def stop(self, grace: float | None = None) -> None:
        """Save and end after the present step; with `grace` (seconds) end it by force after that time."""
        jobs.stop(self.folder, grace)

    def pause(self) -> None:
        jobs.send(self.folder, "pause")

    def resume(self) -> None:
        """Go on after `pause` (a run that has ended goes on with `start`)."""
        jobs.send(self.folder, "resume")

    def save(self) -> None:
        """Write a checkpoint after the present step."""
        jobs.send(self.folder, "save")

    def preview(self, prompt: str | None = None) -> None:
        """Draw the previews after the present step; with a prompt, only that one."""
        jobs.send(self.folder, "preview", {"prompt": prompt} if prompt else {})

    def wait(self, seconds: float | None = None) -> jobs.Status:
        return jobs.wait(self.folder, seconds)


def check(workspace: Workspace, settings: TrainSettings) -> Shape:
    """The checks that need no weights: dataset there, shape legal. Raises ConfigError."""
    if not settings.dataset:
        raise ConfigError("dataset is empty: choose one of yours, or make one from clips")
    for name in filter(None, (settings.dataset, settings.regularization_dataset)):
        if not (workspace.dataset(name) / METADATA).exists():
            raise ConfigError(
                f"dataset is {name!r}, which this workspace does not have: choose another, or make it from clips"
            )
    _, model = find_model(settings.model)
    return shape_for(model, settings.frames, settings.height, settings.width, settings.fps)
