"""A run: create, fork, start, control, read, rename, remove and restore it. No torch.

docs/file_formats.md describes the files in its folder.
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

from workbench import jobs
from workbench.errors import ConfigError, Unknown
from workbench.families import settle
from workbench.families.model_files import INDEX
from workbench.jobs import queue
from workbench.jobs.devices import pick_device
from workbench.jobs.reading import folders_in
from workbench.runs import checkpoints
from workbench.runs.checkpoints import FROM_START, PARENT, Doomed
from workbench.runs.checks import check, check_device, resolved
from workbench.runs.from_scratch import BASE_MODEL
from workbench.runs.metrics import read_metrics
from workbench.runs.previews import LiveSample, Preview, all_previews
from workbench.runs.settings import TrainSettings
from workbench.workspace import (
    Workspace,
    checked_slug,
    disk,
    fresh_folder,
    link_or_copy,
    read_json,
    read_object,
    step_folders,
    write_json,
    writing,
)
from workbench.workspace.folders import Bin, NotedFolder
from workbench.workspace.records import read_record

MODULE = "workbench.trainer"
REMOTE = "remote.json"  # names the target of a run on another machine
REMOTE_MODULE = "workbench.remote"  # the local process that stands in for such a run
EXPORT = "lora.safetensors"
CARD = "README.md"
DECODING = ".decode"  # the folder of the job that decodes previews


class Parent(BaseModel):
    """The content of parent.json."""

    run: str
    step: int
    changed: dict[str, Annotated[list[Any], Field(min_length=2, max_length=2)]]
    dropped: list[str] = []


SLIDER = "slider"  # default name of a run without a dataset


class Run(NotedFolder):
    """A run's folder. Properties read the disk every time."""

    @classmethod
    def create(cls, workspace: Workspace, settings: TrainSettings, name: str | None = None) -> Self:
        """Check the settings against the model and the dataset, and write the run's folder.

        Raises ConfigError, DataError, CannotWrite.
        """
        settings = cls.checked(workspace, settings)
        folder = fresh_folder(workspace.runs, name or settings.dataset or SLIDER)
        settings.save(folder / jobs.CONFIG)
        return cls(folder)

    @staticmethod
    def checked(workspace: Workspace, settings: TrainSettings) -> TrainSettings:
        """Check and complete the settings of a new run. Raises ConfigError, DataError."""
        settings = settings.changed(model=settle(workspace.model(settings.model)))
        check(workspace, settings)
        if settings.resolved.model.boundary and settings.expert == "both":
            raise ConfigError.about(
                "expert is both, which takes two runs, but this is one run: choose high noise or low noise"
            )
        return resolved(workspace, settings)

    def clone(self, workspace: Workspace, name: str | None = None) -> Self:
        """Create a new run with this one's settings. Raises ConfigError, CannotWrite."""
        return self.create(workspace, self.settings, name or self.name)

    def fork(self, workspace: Workspace, step: int, settings: TrainSettings, name: str | None = None) -> Self:
        """Create a run that continues from a step's checkpoint with other settings; parent.json records the changes.

        Raises CannotWrite, or ConfigError if the settings do not fit the checkpoint's weights (see `carried`).
        """
        if settings.model != self.settings.model:
            settings = settings.changed(model=settle(workspace.model(settings.model)))
        check(workspace, settings)
        return type(self)(fork(workspace, self, step, resolved(workspace, settings), name))

    @classmethod
    def open(cls, workspace: Workspace, slug: str) -> Self:
        """Open an existing run. Raises Unknown if there is none with that name."""
        folder = workspace.run(slug)
        if not (folder / jobs.CONFIG).exists():
            known = ", ".join(run.name for run in cls.all(workspace)) or "none yet"
            raise Unknown(f"there is no run {slug!r}: choose one of {known}")
        return cls(folder)

    @classmethod
    def all(cls, workspace: Workspace) -> list[Self]:
        """List all runs of the workspace, newest first."""
        return [cls(folder) for folder in folders_in(workspace.runs)]

    @property
    def settings(self) -> TrainSettings:
        return TrainSettings.load(self.folder / jobs.CONFIG)

    @property
    def status(self) -> jobs.Status:
        return queue.with_position(Workspace.of(self.folder), jobs.status(self.folder))

    @property
    def result(self) -> dict[str, Any]:
        """result.json; {} until the run is over."""
        return jobs.result(self.folder)

    @property
    def metrics(self) -> list[dict[str, Any]]:
        return read_metrics(self.folder)

    @property
    def lora(self) -> Path | None:
        """The exported LoRA; None before the run has finished."""
        path = self.folder / EXPORT
        return path if path.exists() else None

    @property
    def model(self) -> Path | None:
        """The folder of a finished full fine-tune, which is a model; None otherwise."""
        return self.folder if (self.folder / INDEX).exists() else None

    @property
    def parent(self) -> dict[str, Any]:
        """A fork's parent.json; {} for other runs."""
        return dict(read_record(self.folder / PARENT, Parent) or {})

    @property
    def previews(self) -> list[Preview]:
        """Previews with the LoRA at scale 1, by step, then prompt."""
        return all_previews(self.folder)

    @property
    def checkpoints(self) -> list[int]:
        """Steps of the complete checkpoints, oldest first."""
        found = step_folders(self.folder / checkpoints.FOLDER)
        return [step for step, folder in found.items() if (folder / checkpoints.MANIFEST).exists()]

    @property
    def target(self) -> str:
        """The remote target it trains on; "" for this machine."""
        return str(read_object(self.folder / REMOTE).get("target", ""))

    def doomed(self) -> list[Doomed]:
        """List the checkpoints that the next save will remove."""
        settings, saved = self.settings, self.checkpoints
        coming = (saved[-1] // settings.save_every + 1) * settings.save_every if saved else None
        return checkpoints.doomed(self.folder, settings.keep_checkpoints, settings.keep_every, coming)

    def start(self, from_start: bool = False) -> jobs.Status:
        """Queue the run, or start it on its remote target; it resumes from its newest intact checkpoint.

        Does nothing if the run is already alive. Without an intact checkpoint it is refused, unless `from_start` allows
        starting over at step 0.
        """
        env, settings = {FROM_START: "1"} if from_start else None, self.settings
        if self.target:
            if settings.push_to_hub:
                raise ConfigError(
                    "push_to_hub is on, but a run on another machine has no login: push it from here when it has ended"
                )
            return jobs.start(self.folder, REMOTE_MODULE, env=env)
        check_device(settings, pick_device(settings.device))
        return queue.submit(Workspace.of(self.folder), self.folder, MODULE, env=env)

    @property
    def takes_no_commands(self) -> str:
        """Why the run accepts no commands now; "" if it does."""
        state = self.status.state
        if state.alive:
            return ""
        why = "was never started" if state is jobs.State.NEW else f"has {state.value}"
        remedy = "" if state is jobs.State.FINISHED else f": workbench runs start {self.name}"
        return f"{self.name} {why}, and only a running run takes commands{remedy}"

    def stop(self, grace: float | None = None, best_point: bool = False) -> None:
        """Save and end after the current step; with `grace`, kill it after that many seconds.

        best_point: also export the LoRA of the best point, if it was reached
        """
        if best_point and self.settings.best_point == "off":
            raise ConfigError(f"{self.name} does not look for its best point (best_point is off): stop it without that")
        if best_point and self.status.state is jobs.State.PAUSED:
            raise ConfigError(
                f"{self.name} is paused and cannot export: resume it first (workbench runs resume {self.name})"
            )
        jobs.stop(self.folder, grace, {"best_point": True} if best_point else None)

    def pause(self) -> None:
        jobs.send(self.folder, "pause")

    def resume(self) -> None:
        """Continue after `pause`. A run that has ended continues with `start`."""
        jobs.send(self.folder, "resume")

    def save(self) -> None:
        """Write a checkpoint after the current step."""
        jobs.send(self.folder, "save")

    def preview(self, prompt: str | None = None, scales: Sequence[float] = ()) -> None:
        """Generate previews after the current step: all of them, or only `prompt`, at each of the LoRA `scales`."""
        chosen = {**({"prompt": prompt} if prompt else {}), **({"scales": list(scales)} if scales else {})}
        self._request_videos({"previews": True, **chosen})

    def live_sample(self, request: LiveSample) -> None:
        """Generate a video with the weights as they are after the current step, also listed among the samples.

        All requests that arrive before that step are served.
        """
        self._request_videos({}, request)

    def _request_videos(self, request: dict[str, Any], *live_samples: LiveSample) -> None:
        """Send the command together with requests that the run has not picked up yet."""
        path, waiting = self.folder / jobs.CONTROL / "preview", dict[str, Any]()
        if path.exists():
            with contextlib.suppress(ConfigError):  # just picked up
                waiting = read_json(path)
        every = [*(waiting.get("live_samples") or ()), *(one.model_dump(mode="json") for one in live_samples)]
        jobs.send(self.folder, "preview", {**waiting, **request, **({"live_samples": every} if every else {})})

    def decode_previews(self) -> jobs.Status:
        """Decode previews that were kept as latents, in a separate job."""
        folder = self.folder / DECODING
        write_json(folder / jobs.CONFIG, {})
        return queue.submit(Workspace.of(self.folder), folder, "workbench.trainer.previewer")

    def wait(self, seconds: float | None = None) -> jobs.Status:
        jobs.wait(self.folder, seconds)
        return self.status

    def _repr_html_(self) -> str:
        from workbench.runs.report import run_html

        return run_html(self)


# ---- forks: runs that start from a checkpoint of another run, with other settings or other clips
#
# A fork's first checkpoint is a copy of its parent's with the new settings. From then on, the fork is a run like any
# other and resumes exactly. `carried` decides what can be copied.

# Settings that determine the weights and their meaning; the second tuple applies to LoRAs only.
WEIGHTS = ("model", "method", "expert", "sound")
LORA_WEIGHTS = ("rank", "alpha", "lokr_factor", "targets", "blocks", "dora", "rslora", "train_also")


@dataclass(frozen=True)
class Carried:
    """What a fork takes over from a checkpoint; `dropped` says what it cannot, and why."""

    files: tuple[str, ...]
    state: dict[str, Any]
    dropped: tuple[str, ...]


def carried(folder: Path, state: Mapping[str, Any], settings: TrainSettings) -> Carried:
    """Decide which parts of a checkpoint can be used with new settings.

    Raises ConfigError if the weights do not fit the settings, or there are no steps left to train.
    """
    changed = checkpoints.setting_changes(state["settings"], settings)
    deciding = WEIGHTS + (LORA_WEIGHTS if settings.method != "full" else ())
    problems = {
        name: f"{name} was {changed[name][0]!r}, is {changed[name][1]!r}" for name in deciding if name in changed
    }
    if problems:
        raise ConfigError(
            f"a fork continues with the weights of its checkpoint, which do not fit these settings: "
            f"{'; '.join(problems.values())}. Change them back, or start a new run with start_from set to the parent",
            problems,
        )
    if settings.steps <= state["step"]:
        raise ConfigError.about(
            f"steps is {settings.steps}, but the fork begins at step {state['step']}: set more steps"
        )

    files, dropped = {path.name for path in folder.iterdir()} - {checkpoints.MANIFEST, checkpoints.STATE}, []
    kept = {key: value for key, value in state.items() if key not in ("precision", "threads")}  # it may use others
    if "optimizer" in changed:
        files -= {checkpoints.OPTIMIZER}
        kept.pop("optimizer", None)
        old, new = changed["optimizer"]
        dropped.append(f"the optimizer's state ({new} cannot use that of {old})")
    if checkpoints.EMA in files and not settings.ema_decay:
        files -= {checkpoints.EMA}
        dropped.append("the averaged weights (ema_decay is now 0)")
    kept["text_form"] = None  # and another text encoding
    if "precision" in changed:
        kept["scaler"] = None
    return Carried(tuple(sorted(files)), kept, tuple(dropped))


def fork(workspace: Workspace, parent: Run, step: int, settings: TrainSettings, name: str | None) -> Path:
    """Write the folder of a run that continues from a parent's checkpoint. Raises ConfigError, CannotWrite."""
    source = checkpoints.folder_of(parent.folder, step)
    if not checkpoints.verified(source):
        whole = [str(s) for s in parent.checkpoints if checkpoints.verified(checkpoints.folder_of(parent.folder, s))]
        raise ConfigError(
            f"{parent.name} has no intact checkpoint from step {step}: choose one of {', '.join(whole) or 'none'}"
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
        if (own := parent.folder / BASE_MODEL).is_dir():  # do not train its tokenizer again
            shutil.copytree(own, folder / BASE_MODEL, copy_function=link_or_copy)
        checkpoints.publish(folder, step, fill)
        if not checkpoints.verified(checkpoints.folder_of(folder, step)) or not checkpoints.verified(source):
            raise ConfigError(f"the checkpoint from step {step} of {parent.name} could not be copied intact: try again")
        write_json(
            folder / PARENT, {"run": parent.name, "step": step, "changed": changed, "dropped": list(taken.dropped)}
        )
        settings.save(folder / jobs.CONFIG)  # last, because it makes the folder a run
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    return folder


def forks_of(workspace: Workspace, name: str) -> list[str]:
    """List the names of the forks of a run."""
    return sorted(run.name for run in Run.all(workspace) if run.parent.get("run") == name)


# ---- renaming, removing and restoring runs that are over


@contextlib.contextmanager
def _over(workspace: Workspace, run: Run, changed: str) -> Iterator[None]:
    """Keep a run from being queued while it is changed. Raises ConfigError if it is alive."""
    with jobs.locked(workspace.runs / queue.LOCK):
        if (state := jobs.status(run.folder).state).alive:
            raise ConfigError(
                f"{run.name} is {state.value} and cannot be {changed}: stop it first (workbench runs stop {run.name})"
            )
        yield


def rename_run(workspace: Workspace, run: Run, name: str) -> Run:
    """Rename a run, including in its forks, and return it. Raises ConfigError if the name cannot be used, CannotWrite.

    Samples, grids and stars that refer to its LoRA keep the old name.
    """
    target = workspace.runs / checked_slug(name)
    if target == run.folder:
        return run
    with _over(workspace, run, "renamed"):
        if (run.folder / REMOTE).exists():
            raise ConfigError(f"{run.name} trains on {run.target}, where it keeps its name: clone it under a new name")
        if target.exists():
            raise ConfigError(f"a run named {name!r} already exists: choose another name")
        with writing(target):
            disk.replace(run.folder, target)
    for other in forks_of(workspace, run.name):
        record = workspace.runs / other / PARENT
        write_json(record, {**read_object(record), "run": name})
    return Run(target)


def remove_run(workspace: Workspace, run: Run) -> str:
    """Move a run to the bin and return sentences that say so. Raises ConfigError, CannotWrite.

    Its forks are not affected: each has a copy of its checkpoint.
    """
    forks = forks_of(workspace, run.name)
    with _over(workspace, run, "removed"):
        name = Bin(workspace.runs, "run").put(run.folder)
    kept = f" Its forks are not affected: {', '.join(forks)}." if forks else ""
    return f"{run.name} was removed. To restore it: workbench runs restore {name}.{kept}"


def removed_runs(workspace: Workspace) -> list[str]:
    """List the names under which removed runs can be restored, last removed first."""
    return Bin(workspace.runs, "run").names


def restore_run(workspace: Workspace, name: str) -> Run:
    """Restore a removed run. Raises ConfigError if there is none or another run has its name, CannotWrite."""
    return Run(Bin(workspace.runs, "run").restore(name))


# ---- actions: a button on the page and in a notebook, a command in the shell

ActionKind = Literal[
    "go on",  # start the run, or start it again
    "from start",  # start over at step 0 if no checkpoint is intact
    "fork",  # continue from `Action.step` in a new run, with `Action.settings` changed
    "new run",  # put the run's settings into the form, with `Action.settings` changed
    "pause",
    "resume",
    "stop",
    "stop at best",  # stop and export the LoRA of the best point
    "kill",  # end a run that does not react to `stop`
    "save",
    "preview",  # generate the previews after this step
    "live sample",  # generate one video with the weights as they are
    "decode",  # decode previews that were kept as latents
    "sample",  # open the LoRA in the Sample tab
    "stacks",  # show what every thread of an unresponsive run is doing
    "report",
    "log in",  # to the Hub: in a terminal, never on a page
    "free space",  # see which checkpoints and caches can be removed
    "dataset",  # open the dataset
]


@dataclass(frozen=True)
class Action:
    """Something the user can do next.

    command: the same action in the shell.
    settings, step: what a new run changes, and the checkpoint it continues from.
    hint: instructions for what happens elsewhere (`log in`, `free space`, `dataset`).
    """

    kind: ActionKind
    label: str
    command: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    step: int | None = None
    hint: str = ""


def as_flags(settings: Mapping[str, Any]) -> str:
    """Format settings as command-line flags: " --rank 8 --no-flip"."""
    found = ""
    for name, value in settings.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            found += f" --{flag}" if value else f" --no-{flag}"
        else:
            found += f" --{flag} {shlex.quote(str(value))}"
    return found
