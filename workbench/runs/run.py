"""A training run seen from outside: create it, start it, command it, read what it left. No torch.

runs/<slug>/
  config.json dataset.lock.json        settings; the clips trained on, by content
  process.json heartbeat.json control/ job.log result.json      (workbench.jobs)
  parent.json                          of a fork: where it began, and what differs (workbench.runs.forks)
  notes.txt group.txt                  what a person wrote about it, and the group that it was given
  metrics.jsonl                        (workbench.runs.metrics)
  checkpoints/step-00000250/           (workbench.runs.checkpoints); stars.json (workbench.runs.retention)
  stacks.txt                           of a run that hung (workbench.trainer.monitoring.stall_timeout)
  ranks/0.json                         of several processes: how each ended (workbench.trainer.distributed.launcher)
  previews/step-00000250/0.mp4 0.json  a preview a prompt; step 0 is the base model (workbench.runs.previews)
  lora.safetensors README.md           the export and its model card; of a full fine-tune, a model instead
  base_model/                          of a run that trained its tokenizer first (workbench.trainer.tokenizer)
  remote.json                          of a run on another machine: where it is (workbench.remote)
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, Field

from workbench import inline_html, jobs
from workbench.errors import ConfigError
from workbench.families import find_model, settle
from workbench.families.model_files import INDEX
from workbench.jobs.devices import pick_device
from workbench.jobs.reading import folders_in
from workbench.notes import NotedFolder
from workbench.records import read_record
from workbench.runs import checkpoints, device_rules, forks, queue
from workbench.runs.checkpoints import FROM_START, PARENT
from workbench.runs.checks import check, resolved
from workbench.runs.metrics import read_metrics
from workbench.runs.previews import LiveSample, Preview, all_previews
from workbench.runs.settings import TrainSettings
from workbench.workspace import Workspace, fresh_folder, read_json, read_object, step_folders, write_json

MODULE = "workbench.trainer"
REMOTE = "remote.json"  # on which target a run is
REMOTE_MODULE = "workbench.remote"  # the process that stands for it here
EXPORT = "lora.safetensors"
CARD = "README.md"


class Parent(BaseModel):
    """What parent.json holds."""

    run: str
    step: int
    changed: dict[str, Annotated[list[Any], Field(min_length=2, max_length=2)]]
    dropped: list[str] = []


class Run(NotedFolder):
    """One run's folder. Every property is read afresh from disk."""

    @classmethod
    def create(cls, workspace: Workspace, settings: TrainSettings, name: str | None = None) -> Self:
        """Check the settings against model and dataset and write the run's folder.

        Raises ConfigError, DataError, CannotWrite.
        """
        settings = cls.checked(workspace, settings)
        folder = fresh_folder(workspace.runs, name or settings.dataset)
        settings.save(folder / jobs.CONFIG)
        return cls(folder)

    @staticmethod
    def checked(workspace: Workspace, settings: TrainSettings) -> TrainSettings:
        """The settings that a new run is created with, if it could start. Raises ConfigError, DataError."""
        settings = settings.changed(model=settle(workspace.model(settings.model)))
        check(workspace, settings)
        if find_model(settings.model)[1].boundary and settings.expert == "both":
            sentence = "expert is both, which is two runs, and this is one: choose high noise or low noise"
            raise ConfigError(sentence, {"expert": sentence})
        return resolved(workspace, settings)

    def clone(self, workspace: Workspace, name: str | None = None) -> Self:
        """A fresh run with this one's settings. Raises ConfigError, CannotWrite."""
        return self.create(workspace, self.settings, name or self.name)

    def fork(self, workspace: Workspace, step: int, settings: TrainSettings, name: str | None = None) -> Self:
        """A new run that goes on from the checkpoint of a step with other settings; its parent.json says what differs.

        Raises ConfigError where the settings do not fit those weights (`forks.carried`), CannotWrite.
        """
        if settings.model != self.settings.model:
            settings = settings.changed(model=settle(workspace.model(settings.model)))
        check(workspace, settings)
        return type(self)(forks.fork(workspace, self, step, resolved(workspace, settings), name))

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
        return [cls(folder) for folder in folders_in(workspace.runs)]

    @property
    def settings(self) -> TrainSettings:
        return TrainSettings.load(self.folder / jobs.CONFIG)

    @property
    def status(self) -> jobs.Status:
        return queue.with_position(Workspace.of(self.folder), jobs.status(self.folder))

    @property
    def result(self) -> dict[str, Any]:
        """result.json, {} while the run is not over."""
        return jobs.result(self.folder)

    @property
    def metrics(self) -> list[dict[str, Any]]:
        return read_metrics(self.folder)

    @property
    def lora(self) -> Path | None:
        """The exported LoRA, None before the run has finished."""
        path = self.folder / EXPORT
        return path if path.exists() else None

    @property
    def model(self) -> Path | None:
        """The folder of a full fine-tune, which is a model; None before the run has finished."""
        return self.folder if (self.folder / INDEX).exists() else None

    @property
    def parent(self) -> dict[str, Any]:
        """Of a fork: {"run", "step", "changed": {setting: [old, new]}, "dropped": [sentences]}; {} of others."""
        return dict(read_record(self.folder / PARENT, Parent) or {})

    @property
    def previews(self) -> list[Preview]:
        """Previews with the LoRA at scale 1, by step, then prompt."""
        return all_previews(self.folder)

    @property
    def checkpoints(self) -> list[int]:
        """Steps of the checkpoints that are wholly on disk, oldest first."""
        found = step_folders(self.folder / checkpoints.FOLDER)
        return [step for step, folder in found.items() if (folder / checkpoints.MANIFEST).exists()]

    @property
    def target(self) -> str:
        """The name of the target on which it trains, "" for this machine."""
        return str(read_object(self.folder / REMOTE).get("target", ""))

    def doomed(self) -> list[checkpoints.Doomed]:
        """The checkpoints that go when the next one is written."""
        settings, saved = self.settings, self.checkpoints
        coming = (saved[-1] // settings.save_every + 1) * settings.save_every if saved else None
        return checkpoints.doomed(self.folder, settings.keep_checkpoints, settings.keep_every, coming)

    def start(self, from_start: bool = False) -> jobs.Status:
        """Start the run, or go on from its newest good checkpoint, once it is its turn (queue); on its target.

        from_start: it may begin at step 0 again where no checkpoint is whole; otherwise it is refused (recovery).
        A living run is left alone.
        """
        env, settings = {FROM_START: "1"} if from_start else None, self.settings
        if self.target and settings.push_to_hub:
            raise ConfigError(
                "push_to_hub is on, and a run elsewhere has no login: push it from here when it has ended"
            )
        if self.target:
            return jobs.start(self.folder, REMOTE_MODULE, env=env)
        device_rules.check(settings, pick_device(settings.device))
        return queue.enqueue(Workspace.of(self.folder), self.name, MODULE, env)

    @property
    def takes_no_commands(self) -> str:
        """Why it takes no commands now; "" when it does."""
        state = self.status.state
        if state.alive:
            return ""
        stands = "was never started" if state is jobs.State.NEW else f"has {state.value}"
        remedy = "" if state is jobs.State.FINISHED else f": workbench runs start {self.name}"
        return f"{self.name} {stands}, only a running one takes commands{remedy}"

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

    def preview(self, prompt: str | None = None, scales: Sequence[float] = ()) -> None:
        """Generate the previews after the present step; with a prompt only that, with scales at each."""
        request = {"prompt": prompt, "scales": list(scales)}
        self._request_videos({"previews": True, **{name: value for name, value in request.items() if value}})

    def live_sample(self, request: LiveSample) -> None:
        """Generate a video with the weights as they are after the present step; it is listed with the samples, too.

        Several requests before that step are all served.
        """
        self._request_videos({}, request)

    def _request_videos(self, request: dict[str, Any], *live_samples: LiveSample) -> None:
        """Leave the command beside requests that are not taken yet."""
        path, waiting = self.folder / jobs.CONTROL / "preview", dict[str, Any]()
        if path.exists():
            with contextlib.suppress(ConfigError):  # taken this very moment
                waiting = read_json(path)
        every = [*(waiting.get("live_samples") or ()), *(one.model_dump(mode="json") for one in live_samples)]
        jobs.send(self.folder, "preview", {**waiting, **request, **({"live_samples": every} if every else {})})

    def decode_previews(self) -> jobs.Status:
        """Turn previews that were kept as latents into videos, as a job in the folder .decode."""
        folder = self.folder / ".decode"
        write_json(folder / jobs.CONFIG, {})
        return jobs.start(folder, "workbench.trainer.monitoring.latent_decoding")

    def wait(self, seconds: float | None = None) -> jobs.Status:
        jobs.wait(self.folder, seconds)
        return self.status

    def _repr_html_(self) -> str:
        return inline_html.rendered("workbench.runs.display:run_html", self)


__all__ = ["CARD", "EXPORT", "PARENT", "REMOTE", "Run", "check"]
