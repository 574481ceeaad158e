"""A run: create or fork it, start it, command it, read what it left, rename, remove and restore it. No torch.

runs/<slug>/
  config.json dataset.lock.json        settings; the clips trained on, by content
  process.json heartbeat.json control/ job.log result.json      (workbench.jobs)
  parent.json                          of a fork: {"run", "step", "changed": {setting: [old, new]}, "dropped": [...]}
  notes.txt group.txt                  what a person wrote about it, and the group that it was given
  metrics.jsonl sessions.jsonl         (workbench.runs.metrics)
  checkpoints/step-00000250/           and stars.json (workbench.runs.checkpoints)
  stacks.txt                           of a run that hung (workbench.trainer.monitoring.stall_timeout)
  oom_fallback.json                    of one whose memory ran out (workbench.runs.failures)
  ranks/0.json                         of several processes: how each ended (workbench.trainer.distributed.launcher)
  previews/step-00000250/0.mp4 0.json  a preview a prompt; step 0 is the base model (workbench.runs.previews)
  lora.safetensors README.md           the export and its model card; of a full fine-tune, a model instead
  base_model/                          of a run that trained its tokenizer first (workbench.trainer.tokenizer)
  remote.json                          of a run on another machine: where it is (workbench.remote)
"""

from __future__ import annotations

import contextlib
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, Field

from workbench import inline_html, jobs
from workbench.bins import Bin
from workbench.errors import ConfigError
from workbench.families import find_model, settle
from workbench.families.model_files import INDEX
from workbench.jobs.devices import pick_device
from workbench.jobs.reading import folders_in
from workbench.notes import NotedFolder
from workbench.operating_system import system
from workbench.records import read_record
from workbench.runs import checkpoints, queue
from workbench.runs.checkpoints import FROM_START, PARENT, Doomed
from workbench.runs.checks import check, check_device, resolved
from workbench.runs.from_scratch import BASE_MODEL
from workbench.runs.metrics import read_metrics
from workbench.runs.previews import LiveSample, Preview, all_previews
from workbench.runs.settings import TrainSettings
from workbench.workspace import (
    Workspace,
    checked_slug,
    fresh_folder,
    link_or_copy,
    read_json,
    read_object,
    step_folders,
    write_json,
    writing,
)

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

        Raises ConfigError where the settings do not fit those weights (`carried`), CannotWrite.
        """
        if settings.model != self.settings.model:
            settings = settings.changed(model=settle(workspace.model(settings.model)))
        check(workspace, settings)
        return type(self)(fork(workspace, self, step, resolved(workspace, settings), name))

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

    def doomed(self) -> list[Doomed]:
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
        check_device(settings, pick_device(settings.device))
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


# ---- forks: runs that start from a checkpoint of another, with other settings or other clips
#
# The first checkpoint of a fork is a copy of its parent's under the new settings, so that from then on it is a run like
# any other and resumes exactly. What cannot be copied is decided in one place, `carried`.

# Settings that decide which weights there are, or what their numbers mean; the second of a LoRA only.
WEIGHTS = ("model", "method", "expert")
LORA_WEIGHTS = ("rank", "alpha", "targets", "dora", "rslora", "train_also")


@dataclass(frozen=True)
class Carried:
    """What of a checkpoint goes into a fork: its files, and a sentence for each thing that does not."""

    files: tuple[str, ...]
    state: dict[str, Any]
    dropped: tuple[str, ...]


def carried(folder: Path, state: Mapping[str, Any], settings: TrainSettings) -> Carried:
    """What of the checkpoint in this folder can be used under new settings.

    Raises ConfigError for settings whose weights are others: there is nothing to go on from, only to begin with.
    """
    changed = checkpoints.setting_changes(state["settings"], settings)
    deciding = WEIGHTS + (LORA_WEIGHTS if settings.method == "lora" else ())
    problems = {
        name: f"{name} was {changed[name][0]!r}, is {changed[name][1]!r}" for name in deciding if name in changed
    }
    if problems:
        raise ConfigError(
            f"a fork goes on with the weights of its checkpoint, which these settings do not fit: "
            f"{'; '.join(problems.values())}. Put them back, or begin a new run with start_from set to the parent",
            problems,
        )
    if settings.steps <= state["step"]:
        sentence = f"steps is {settings.steps}, the fork begins at step {state['step']}: give a larger number"
        raise ConfigError(sentence, {"steps": sentence})

    files = {path.name for path in folder.iterdir()} - {checkpoints.MANIFEST, checkpoints.STATE}
    kept, dropped = dict(state), []
    if "optimizer" in changed:
        files -= {checkpoints.OPTIMIZER}
        kept.pop("optimizer", None)
        old, new = changed["optimizer"]
        dropped.append(f"the optimizer's memory: {new} cannot use that of {old} and begins with none")
    if checkpoints.EMA in files and not settings.ema_decay:
        files -= {checkpoints.EMA}
        dropped.append("the averaged weights: ema_decay is 0 now")
    kept.pop("precision", None)  # a fork may go on in another format
    kept.pop("threads", None)
    kept["text_form"] = None  # and with captions that are encoded in another way
    if "precision" in changed:
        kept["scaler"] = None
    return Carried(tuple(sorted(files)), kept, tuple(dropped))


def fork(workspace: Workspace, parent: Run, step: int, settings: TrainSettings, name: str | None) -> Path:
    """Write the folder of a run that goes on from a parent's checkpoint. Raises ConfigError, CannotWrite."""
    source = checkpoints.folder_of(parent.folder, step)
    if not checkpoints.verified(source):
        whole = [str(s) for s in parent.checkpoints if checkpoints.verified(checkpoints.folder_of(parent.folder, s))]
        raise ConfigError(
            f"{parent.name} has no whole checkpoint of step {step}: choose one of {', '.join(whole) or 'none'}"
        )
    state = read_json(source / checkpoints.STATE)
    taken = carried(source, state, settings)
    now = {**taken.state, "settings": settings.model_dump(mode="json")}
    now["versions"] = checkpoints.versions_now(state["versions"])
    changed = checkpoints.setting_changes(state["settings"], settings)

    def fill(target: Path) -> None:
        for file_name in taken.files:
            shutil.copyfile(source / file_name, target / file_name)
        write_json(target / checkpoints.STATE, now)

    folder = fresh_folder(workspace.runs, name or parent.name)
    try:
        if (own := parent.folder / BASE_MODEL).is_dir():  # its tokenizer is not trained again
            shutil.copytree(own, folder / BASE_MODEL, copy_function=link_or_copy)
        checkpoints.publish(folder, step, fill)
        if not checkpoints.verified(checkpoints.folder_of(folder, step)) or not checkpoints.verified(source):
            raise ConfigError(f"the checkpoint of step {step} of {parent.name} could not be copied whole: try again")
        write_json(
            folder / PARENT, {"run": parent.name, "step": step, "changed": changed, "dropped": list(taken.dropped)}
        )
        settings.save(folder / jobs.CONFIG)  # last: this is what makes the folder a run
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder


def forks_of(workspace: Workspace, name: str) -> list[str]:
    """Names of the runs that began at a checkpoint of that one."""
    return sorted(run.name for run in Run.all(workspace) if run.parent.get("run") == name)


# ---- renaming, removing and restoring: only of runs that are over


@contextlib.contextmanager
def _over(workspace: Workspace, run: Run, changed: str) -> Iterator[None]:
    """Keep a run from being queued while it is changed. Raises ConfigError where it is alive."""
    with jobs.locked(workspace.runs / queue.LOCK):
        if (state := jobs.status(run.folder).state).alive:
            raise ConfigError(
                f"{run.name} is {state.value} and cannot be {changed}: workbench runs stop {run.name} first"
            )
        yield


def rename_run(workspace: Workspace, run: Run, name: str) -> Run:
    """Rename a run, in its forks as well; returns it. Raises ConfigError where the name cannot be used, CannotWrite.

    Samples, grids and stars that name its LoRA keep the old name.
    """
    target = workspace.runs / checked_slug(name)
    if target == run.folder:
        return run
    with _over(workspace, run, "renamed"):
        if (run.folder / REMOTE).exists():
            raise ConfigError(f"{run.name} trains on {run.target}, where it keeps its name: clone it under another one")
        if target.exists():
            raise ConfigError(f"there is a run {name!r} already: choose another name")
        with writing(target):
            system.replace(run.folder, target)
    for other in forks_of(workspace, run.name):
        record = workspace.runs / other / PARENT
        write_json(record, {**read_object(record), "run": name})
    return Run(target)


def remove_run(workspace: Workspace, run: Run) -> str:
    """Move a run to the bin; returns what became of it, in sentences. Raises ConfigError, CannotWrite.

    A fork has copied its checkpoint, so it goes on without its parent.
    """
    forks = forks_of(workspace, run.name)
    with _over(workspace, run, "removed"):
        name = _removed(workspace).put(run.folder)
    kept = f" Began at it, and go on without it: {', '.join(forks)}." if forks else ""
    return f"{run.name} is removed. To restore it: workbench runs restore {name}.{kept}"


def removed_runs(workspace: Workspace) -> list[str]:
    """Names of the removed runs, by which they are restored, removed last first."""
    return _removed(workspace).names


def restore_run(workspace: Workspace, name: str) -> Run:
    """Move a removed run back. Raises ConfigError where there is none, or another run has its name; CannotWrite."""
    return Run(_removed(workspace).restore(name))


def _removed(workspace: Workspace) -> Bin:
    return Bin(workspace.runs, "run")


# ---- actions: a button on the page and in a notebook, a command in the shell

ActionKind = Literal[
    "go on",  # start the run, or start it again
    "from start",  # begin at step 0 again, where no checkpoint is whole
    "fork",  # go on from `Action.step` in a new run, with `Action.settings` changed
    "new run",  # put the run's settings into the form, with `Action.settings` changed
    "pause",
    "resume",
    "stop",
    "kill",  # end a run that does not react to `stop`
    "save",
    "preview",  # generate the previews after this step
    "live sample",  # generate one video with the weights as they are
    "decode",  # make videos of previews that were kept as latents
    "sample",  # open the LoRA in the Sample tab
    "stacks",  # what every thread of a silent run is doing
    "report",
    "log in",  # to the Hub: in a terminal, never on a page
    "free space",  # look at the checkpoints and caches that can go
    "dataset",  # open the dataset
]


@dataclass(frozen=True)
class Action:
    """One thing to do next.

    command: the same in the shell;  settings, step: what a new run changes, and the checkpoint it goes on from
    hint: of what happens elsewhere (`log in`, `free space`, `dataset`): what to do, in words
    """

    kind: ActionKind
    label: str
    command: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    step: int | None = None
    hint: str = ""


def as_flags(settings: Mapping[str, Any]) -> str:
    """Settings as they are typed after a command: " --rank 8 --no-flip"."""
    found = ""
    for name, value in settings.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            found += f" --{flag}" if value else f" --no-{flag}"
        else:
            found += f" --{flag} {shlex.quote(str(value))}"
    return found


def perform(workspace: Workspace, run: Run, action: Action) -> Run | TrainSettings | str:
    """Do it. Returns the run to show from then on, settings for the form of a new run, or a sentence.

    Raises ConfigError for actions that need more than the run (`preview`, `sample`, ...), CannotWrite.
    """
    match action.kind:
        case "go on" | "from start":
            run.start(from_start=action.kind == "from start")
            return run
        case "new run":
            return run.settings.changed(**action.settings)
        case "fork":
            if action.step is None:
                raise ConfigError(f"{run.name} has no checkpoint to fork from")
            fork = run.fork(workspace, action.step, run.settings.changed(**action.settings))
            fork.start()
            return fork
        case "pause":
            run.pause()
            return "The run pauses after this step, so that you can sample meanwhile."
        case "resume":
            run.resume()
            return "The run goes on."
        case "stop" | "kill":
            run.stop(grace=0.0 if action.kind == "kill" else None)
            return "The run finishes its step, saves, and ends." if action.kind == "stop" else "The run is ended."
        case "save":
            run.save()
            return "A checkpoint is written after this step."
        case "decode":
            run.decode_previews()
            return "The previews are decoded in the background and appear one by one."
    raise ConfigError(f"{action.label}: {action.hint or 'this needs more than the run'}")
