"""Runs: create, show, control, rename, remove and restore them, and manage their checkpoints. `run_list` lists them."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Annotated, Any

from pydantic import Field

from workbench import jobs
from workbench.display.quantities import byte_size
from workbench.errors import ConfigError, NotNow
from workbench.jobs.snapshot import JobSnapshot
from workbench.operations.registry import Opened, operation
from workbench.operations.run_list import Name, Names, RunNow
from workbench.operations.shared import Group, Label, Note, Text, Written, grouped, noted
from workbench.remote.targets import LOCAL, choose_target, resolve_target
from workbench.runs import checkpoints
from workbench.runs.failures import STACKS
from workbench.runs.previews import LiveSample, Preview, write_film
from workbench.runs.report import write_report
from workbench.runs.run import DECODING, Run, remove_run, removed_runs, rename_run, restore_run
from workbench.runs.settings import TrainSettings
from workbench.runs.snapshot import Note as RunNote
from workbench.runs.snapshot import RunSnapshot, SnapshotReader, perform_named, snapshot
from workbench.runs.sweeps import created, parse_values
from workbench.settings import parse
from workbench.snapshots import HIDDEN, Place, Shown, Snapshot, Values
from workbench.workspace import Workspace, strange_names

NamedRun = Annotated[Run, Opened(Run.open, Name)]
Step = Annotated[int, Field(title="Step", description="Step of the checkpoint.", ge=0)]
TRIED = "Sweep: values to try, as in `rank=8,16`. Creates one run for each combination."
LOG_LINES = 10
MOST_DIGITS = 12  # in a step number


class RunFacts(RunNow):
    """The facts about a run that both its page and programs need."""

    facts: tuple[Values, ...]
    """Key numbers: key, label, value, unit, tone."""

    notes: tuple[Values, ...]
    """Remarks: text, tone."""

    actions: tuple[Values, ...]
    """Suggested next actions: kind, label, command, hint, and for a new run settings and step."""

    parent: dict[str, Any]
    """The run and step that it was forked from; {} if it is not a fork."""

    lora: Place | None
    """Path of the exported safetensors file; null until the run has finished."""


class RunView(RunFacts):
    """A run in detail."""

    folder: Place
    """Path of its folder."""

    seconds_left: float | None
    """Estimated time left in seconds; null while unknown."""

    checkpoints: tuple[Values, ...]
    """For each checkpoint: step, bytes, reasons (why it is kept), held_out (its loss)."""

    diagnosis: Values | None
    """Diagnosis of the training: kind, sentence, advice ...; null before the first measurement."""

    failure: Values | None
    """Why it failed: cause, advice, actions ...; null if it did not fail."""

    outcome: Values | None
    """How it finished or was stopped: text, tone; null otherwise."""

    best_step: int | None
    """The step with the lowest held-out loss among those with good previews; null while unknown."""

    best_point: dict[str, Any] | None
    """Where the run's best point is expected, or was: step, low and high (its 80% band), reached; null while unknown,
    and for runs that do not look for it."""

    visible_effect: dict[str, Any] | None
    """Effect on the newest previews: change and control_change (0 to 255), effect (their ratio), effects (for each
    preview), visible, spoiled; null before the first previews."""

    previews: tuple[Values, ...]
    """For each preview: step, prompt, scale (of the LoRA), video."""

    control_previews: tuple[Values, ...]
    """The same for preservation prompts, which the LoRA should not change."""

    curves: dict[str, Any]
    """Curve -> points [step, value]."""

    settings: dict[str, Any] | None
    """All settings; null if this version cannot read them."""

    full_model: Place | None
    """Folder of the fully fine-tuned model; null for a LoRA or until the run has finished."""

    log: str
    """The last lines of its log."""

    @property
    def over(self) -> bool:
        return not (jobs.State(self.state).alive or self.position)

    def lines(self) -> Iterator[tuple[str, str]]:
        yield f"{self.name}: {self.headline}", self.activity.removeprefix(f"{self.headline}: ")
        if self.position:
            yield "queue", f"number {self.position}: workbench runs queue"
        if self.diagnosis and not self.failure:
            yield "diagnosis", self.diagnosis["sentence"]
            if self.diagnosis["advice"]:
                yield "", self.diagnosis["advice"]
        yield "folder", self.folder
        yield from ((fact["label"], f"{fact['value']} {fact['unit']}".strip()) for fact in self.facts)
        yield from (("note", one["text"]) for one in self.notes)
        if self.group:
            yield "group", self.group
        yield from (("your notes", line) for line in self.own_notes.splitlines())
        for one in self.checkpoints:
            yield "checkpoint", f"{one['step']}  ({', '.join(one['reasons'])})" if one["reasons"] else str(one["step"])
        yield "previews", str(len(self.previews))
        over = self.state in ("finished", "failed", "died")
        missing = "none: the run ended before it was written" if over else "not yet: written when the run finishes"
        if self.settings is not None and self.settings["method"] == "full":
            yield "model", self.full_model or missing
        else:
            yield "LoRA", self.lora or missing
        yield from self._settings_lines()
        yield from self._failure_lines() if self.failure else (("log", line) for line in self.log.splitlines())

    def _settings_lines(self) -> Iterator[tuple[str, str]]:
        if self.settings is None:
            yield "settings", "cannot be read by this version"
            return
        defaults = TrainSettings().model_dump(mode="json")
        for name, value in self.settings.items():
            if value != defaults[name]:
                yield f"  {name}", str(value)

    def _failure_lines(self) -> Iterator[tuple[str, str]]:
        assert self.failure is not None
        yield "failure", self.failure["cause"]
        hints = [action["hint"] for action in self.failure["actions"]]
        saved = f"{self.failure['saved']} {self.failure['advice']}".strip()
        yield from (("", text) for text in (self.failure["message"], self.failure["facts"], saved, *hints) if text)
        yield from (("", f"| {line}") for line in self.failure["tail"].splitlines())
        yield from ((f"next: {action['command']}", "") for action in self.failure["actions"])


def view(seen: RunSnapshot, curves: bool = True) -> RunView:
    """Return the view of a run, optionally without its curves, which are long."""
    notes, effect = [*seen.notes], seen.curves.effect
    if strange := strange_names.strange_in(seen.run.folder / checkpoints.FOLDER, "runs/*/checkpoints"):
        notes.append(RunNote(strange_names.sentence(strange, seen.run.folder)))
    return RunView.from_objects(
        seen,
        notes=tuple(notes),
        folder=seen.run.folder,
        seconds_left=seen.status.seconds_left,
        best_point=seen.forecast.to_json() if seen.forecast else None,
        visible_effect=effect.to_json() if effect else None,
        previews=_videos([*seen.previews.previews, *seen.previews.scaled]),
        control_previews=_videos(seen.previews.controls),
        curves=seen.curves.to_json() if curves else {},
        settings=seen.settings.model_dump(mode="json") if seen.settings else None,
        full_model=seen.run.model,
        log="\n".join(seen.log.split("\n")[-LOG_LINES:]),
    )


def _videos(previews: Sequence[Preview]) -> tuple[dict[str, Any], ...]:
    return tuple(
        {"step": one.step, "prompt": one.prompt, "scale": one.scale, "video": str(one.video)} for one in previews
    )


class Created(RunView):
    """A newly created run, or the first of several."""

    created: tuple[str, ...]
    """Names of all runs that were created."""


class Checkpoint(Snapshot):
    """A checkpoint of a run."""

    step: int
    """The step at which it was saved."""

    bytes: Annotated[int, Shown("size", byte_size, right=True)]
    """Size of its files in bytes."""


class Starred(Snapshot):
    """The starred checkpoints of a run."""

    name: str
    """Name of the run."""

    starred: Annotated[tuple[int, ...], Shown(text=lambda steps: ", ".join(map(str, steps)))]
    """Steps of the starred checkpoints."""


class RemovedRun(Snapshot):
    """A run in the bin."""

    name: str
    """Name of the run, as `runs restore` takes it."""


class Moved(Snapshot):
    """A run that was renamed, removed or restored."""

    name: str
    """Name of the run, as commands take it."""

    message: str
    """What was done, in one sentence."""


class Stacks(Snapshot):
    """The stack traces of a run's threads."""

    name: str
    """Name of the run."""

    alive: Annotated[bool, HIDDEN]
    """Whether the run is alive."""

    stacks: str
    """The stack traces as text, in the format of Python's faulthandler."""


class Film(Snapshot):
    """The previews of one prompt and seed, step after step, as one video."""

    file: str
    """Path of the mp4."""

    steps: tuple[int, ...]
    """The steps that it shows; 0 is the base model."""


class Decoding(JobSnapshot):
    """A job that decodes previews saved as latents."""

    previews: str
    """Path of the folder with the previews."""

    def outcome(self) -> Iterable[str]:
        return (f"{self.message}, in {self.previews}",)


# ---- looking


def _watched(workspace: Workspace, name: str) -> Callable[[], RunView]:
    """Watch a run without its curves, which are long. `show` returns them."""
    reader = SnapshotReader(Run.open(workspace, name))
    return lambda: view(reader.read(), curves=False)


@operation(path="/runs/{name}", watch=_watched)
def show(run: NamedRun) -> RunView:
    """Show how a run is going, or how it ended and why.

    Includes its checkpoints, its results, and the settings that differ from the defaults.
    """
    return view(snapshot(run))


@operation()
def stacks(run: NamedRun) -> Stacks:
    """Show the stack trace of each thread of a run, now or from when it hung."""
    state, left = run.status.state, run.folder / STACKS
    if state.alive:
        return Stacks(name=run.name, alive=True, stacks=jobs.stacks(run.folder))
    text = left.read_text(encoding="utf-8", errors="replace") if left.exists() else ""
    if not text:
        raise ConfigError(f"{run.name} is {state.value} and left no stack traces: only a run that hung leaves them")
    return Stacks(name=run.name, alive=False, stacks=text)


@operation(changes=True, says=lambda report: report.file)
def report(run: NamedRun) -> Written:
    """Write a run's report as one self-contained HTML file, with its videos inside."""
    return Written(file=str(write_report(run)))


@operation(changes=True)
def film(
    run: NamedRun,
    *,
    video: Annotated[int, Field(ge=1, description="Number of the preview, from 1: prompts times seeds.")] = 1,
) -> Film:
    """Write the previews of one prompt and seed, from the base model to the last step, as one video to share."""
    file, steps = write_film(run.folder, video - 1)
    return Film(file=str(file), steps=tuple(steps))


# ---- new runs and commands


@operation(path="/runs", changes=True, status=201, shell=False)
def create(
    workspace: Workspace,
    *,
    settings: Annotated[
        dict[str, Any], Field(description="Settings that differ from their defaults; docs/settings.md lists them all.")
    ],
    name: Annotated[
        str | None, Field(max_length=200, description="Its name. Default: the dataset's, numbered.")
    ] = None,
    start: Annotated[bool, Field(description="Add it to the queue right away.")] = True,
    tried: Annotated[tuple[str, ...], Field(description=TRIED)] = (),
    fork: Annotated[str, Field(description="Continue from this checkpoint: RUN@STEP.")] = "",
    target: Annotated[str, Field(description="Train on this target. Empty: on this machine.")] = "",
) -> Created:
    """Create a run and add it to the queue. A sweep creates several runs, and so does training several experts."""
    remote = resolve_target(workspace, target or LOCAL)
    given, values = parse(TrainSettings, settings), parse_values(tried)
    if fork and values:
        raise ConfigError("a fork is a single run: give one value for each setting, or create new runs instead")
    if fork:
        parent, step = checkpoint_of(workspace, fork)
        runs = [parent.fork(workspace, step, given, name)]
    else:
        runs = created(workspace, given, values, name)
    for run in runs:
        if remote:
            choose_target(workspace, run, target)
        if start:
            run.start()
    return Created.from_objects(view(snapshot(runs[0])), created=tuple(run.name for run in runs))


def checkpoint_of(workspace: Workspace, text: str) -> tuple[Run, int]:
    """Return the run and step that RUN@STEP stands for. Raises ConfigError."""
    name, _, step = text.rpartition("@")
    if not name or not step.isdecimal() or len(step) > MOST_DIGITS:
        raise ConfigError(f"fork is {text[:80]!r}, must be RUN@STEP, such as cats@200")
    run = Run.open(workspace, name)
    if int(step) not in run.checkpoints:
        known = ", ".join(map(str, run.checkpoints)) or "none yet"
        raise ConfigError(f"{name} has no checkpoint of step {step}: choose one of {known}")
    return run, int(step)


class Done(Snapshot):
    """The result of an action on a run."""

    name: str
    """Name of the run to follow from now on; after a fork, the new one."""

    message: str
    """What was done, in one sentence; "" if the run itself shows it."""

    settings: dict[str, Any]
    """Settings for a new run that differ from their defaults; {} unless the action prepared a new run."""


@operation(changes=True, shell=False)
def act(
    workspace: Workspace,
    run: NamedRun,
    kind: Annotated[str, Field(description="Kind of the action, as `show` lists it.")],
    *,
    label: Annotated[str, Field(description="Label of the action, if there are several of that kind.")] = "",
) -> Done:
    """Perform one of a run's suggested actions: continue, fork, pause, stop, decode previews, prepare a new run ..."""
    done = perform_named(workspace, snapshot(run), kind, label)
    if isinstance(done, TrainSettings):
        return Done(name=run.name, message="", settings=done.model_dump(mode="json", exclude_defaults=True))
    if isinstance(done, Run):
        message = "" if done.name == run.name else f"{done.name} is in the queue"
        return Done(name=done.name, message=message, settings={})
    return Done(name=run.name, message=done, settings={})


@operation(changes=True, shell=False)
def start(
    workspace: Workspace,
    name: Name,
    *,
    target: Annotated[str, Field(description="Train on this target, or `local`. Empty: where it is now.")] = "",
    from_start: Annotated[bool, Field(description="Start over at step 0 if it has no good checkpoint.")] = False,
) -> RunView:
    """Start a run, or resume a run that has ended from its newest good checkpoint."""
    run = startable(workspace, name, target)
    run.start(from_start)
    return view(snapshot(run))


def startable(workspace: Workspace, name: str, target: str = "") -> Run:
    """Open a run to start it, after sending it to the target if one is given. Raises ConfigError."""
    run = Run.open(workspace, name)
    if run.status.state is jobs.State.STOPPING:
        raise NotNow(f"{name} is still stopping: start it when it has ended (workbench runs follow {name})")
    if target:
        choose_target(workspace, run, target)
    return run


def living(workspace: Workspace, name: str) -> Run:
    """Open a run that can take commands. Raises NotNow if it cannot."""
    run = Run.open(workspace, name)
    if reason := run.takes_no_commands:
        raise NotNow(reason)
    return run


LivingRun = Annotated[Run, Opened(living, Name)]
Grace = Annotated[float | None, Field(ge=0, description="Kill the run if it has not ended after this many seconds.")]


@operation(changes=True, says=lambda run: f"{run.name}: {run.activity or run.state}")
def stop(
    run: LivingRun,
    *,
    grace: Grace = None,
    best_point: Annotated[
        bool,
        Field(description="Also export the LoRA of the best point, if the run looks for it and has reached it."),
    ] = False,
) -> RunView:
    """Stop a run after its current step. It saves a checkpoint first."""
    run.stop(grace, best_point)
    return view(snapshot(run))


@operation(changes=True, says=lambda run: f"{run.name} pauses after this step: workbench runs resume {run.name}")
def pause(run: LivingRun) -> RunView:
    """Pause a run after its current step. `resume` continues it.

    It saves a checkpoint and frees its device, so you can generate samples in the meantime.
    """
    run.pause()
    return view(snapshot(run))


@operation(changes=True, says=lambda run: f"{run.name} resumes")
def resume(run: LivingRun) -> RunView:
    """Resume a paused run. For a run that has ended, use `start`."""
    run.resume()
    return view(snapshot(run))


@operation(changes=True, says=lambda run: f"{run.name} saves a checkpoint after this step")
def save(run: LivingRun) -> RunView:
    """Save a checkpoint after the current step."""
    run.save()
    return view(snapshot(run))


def _generates(run: RunView) -> str:
    return f"{run.name} generates after this step, into {run.folder}/previews"


@operation(changes=True, says=_generates)
def preview(
    run: LivingRun,
    *,
    prompt: Annotated[str | None, Field(description="Generate this prompt instead of the run's own.")] = None,
    scale: Annotated[
        tuple[float, ...],
        Field(description="LoRA scales to compare: 0 is the base model, 1 is usual, as in --scale 0 --scale 1."),
    ] = (),
) -> RunView:
    """Generate preview videos after the current step."""
    run.preview(prompt, scale)
    return view(snapshot(run))


@operation(changes=True, says=_generates)
def live_sample(run: LivingRun, settings: LiveSample) -> RunView:
    """Generate one video with the current weights of a running run, after its current step.

    The video is added to the run's previews and to the samples.
    """
    run.live_sample(settings)
    return view(snapshot(run))


@operation(path="/runs/{id}/decoding", shell=False)
def decoding(workspace: Workspace, id: Annotated[str, Field(title="Run", description="Name of the run.")]) -> Decoding:
    """Show the progress of decoding a run's previews, or its outcome."""
    run = Run.open(workspace, id)
    folder = run.folder / DECODING
    status = jobs.status(folder)
    decoded = jobs.result(folder).get("decoded")
    message = status.message if decoded is None else f"{decoded} previews decoded"
    return Decoding.from_objects(status, id=id, message=message, previews=str(run.folder / "previews"))


@operation(changes=True, job=decoding)
def decode(workspace: Workspace, run: NamedRun) -> Decoding:
    """Decode previews that were saved as latents. The latents are kept."""
    run.decode_previews()
    return decoding(workspace, run.name)


# ---- checkpoints


@operation(changes=True)
def star(run: NamedRun, step: Step) -> Starred:
    """Star a checkpoint, which protects it from removal."""
    checkpoints.star(run.folder, step)
    return Starred(name=run.name, starred=tuple(checkpoints.starred(run.folder)))


@operation(changes=True)
def unstar(run: NamedRun, step: Step) -> Starred:
    """Unstar a checkpoint, so that it can be removed like any other."""
    checkpoints.star(run.folder, step, on=False)
    return Starred(name=run.name, starred=tuple(checkpoints.starred(run.folder)))


Keep = Annotated[
    int, Field(ge=1, description="Number of newest checkpoints to keep. The best and starred ones are always kept.")
]


@operation(none="nothing to remove: the newest, the best and the starred checkpoints are kept")
def to_prune(run: NamedRun, *, keep: Keep) -> list[Checkpoint]:
    """List the checkpoints that `prune` would remove."""
    return [Checkpoint(step=one.step, bytes=one.bytes) for one in checkpoints.doomed(run.folder, keep, _every(run))]


@operation(changes=True, confirm=to_prune, none="nothing to remove", says=lambda one: f"step {one.step}")
def prune(run: NamedRun, *, keep: Keep) -> list[Checkpoint]:
    """Remove a run's old checkpoints. The newest, the best and the starred ones are kept."""
    return [Checkpoint(step=one.step, bytes=one.bytes) for one in checkpoints.retire(run.folder, keep, _every(run))]


def _every(run: Run) -> int:
    """Return the setting `keep_every`, or 0 if the settings cannot be read."""
    with contextlib.suppress(ConfigError):
        return run.settings.keep_every
    return 0


# ---- notes, names, the bin


@operation(changes=True)
def note(run: NamedRun, text: Text = None) -> Note:
    """Replace the notes on a run; without a text, show them."""
    return noted(run, text)


@operation(changes=True)
def group(run: NamedRun, label: Label = None) -> Group:
    """Put a run into a group, which lists keep together; without a label, show its group."""
    return grouped(run, label)


@operation(changes=True, says=lambda run: f"{run.name}: {run.message}")
def rename(
    workspace: Workspace, run: NamedRun, new_name: Annotated[str, Field(description="Its new name.", max_length=200)]
) -> Moved:
    """Rename a run that has ended. Samples and grids made from it keep the old name."""
    return Moved(name=rename_run(workspace, run, new_name).name, message=f"was {run.name}")


@operation(path="/runs/remove", changes=True, says=lambda run: run.message)
def remove(workspace: Workspace, names: Names) -> list[Moved]:
    """Move runs that have ended to the bin. `restore` brings them back."""
    runs = [Run.open(workspace, name) for name in dict.fromkeys(names)]
    return [Moved(name=run.name, message=remove_run(workspace, run)) for run in runs]


@operation(path="/removed-runs", none="the bin is empty")
def bin(workspace: Workspace) -> list[RemovedRun]:
    """List the removed runs, last removed first."""
    return [RemovedRun(name=name) for name in removed_runs(workspace)]


@operation(path="/removed-runs/{name}/restore", changes=True, says=lambda run: run.message)
def restore(
    workspace: Workspace, name: Annotated[str, Field(description="Name of the run, as `runs bin` lists it.")]
) -> Moved:
    """Restore a removed run."""
    run = restore_run(workspace, name)
    return Moved(name=run.name, message=f"{run.name} is restored")
