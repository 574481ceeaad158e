"""Runs: list, show and compare them, command one that trains, keep its checkpoints, and order those that wait."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict
from typing import Annotated, Any, ClassVar

from pydantic import Field

from workbench import jobs
from workbench.display.quantities import byte_size, moment
from workbench.errors import ConfigError, NotNow
from workbench.jobs import queue as run_queue
from workbench.operations.registry import HIDDEN, JobSnapshot, Shown, Snapshot, operation
from workbench.operations.shared import Group, Label, Note, Text, grouped, noted
from workbench.remote.targets import LOCAL, choose_target, resolve_target
from workbench.runs import checkpoints
from workbench.runs.analysis.comparison import compare as side_by_side
from workbench.runs.failures import LOG_LINES as LOG_SEARCHED
from workbench.runs.failures import STACKS, failure_of
from workbench.runs.listing import (
    Order,
    RunEntry,
    RunSummary,
    differences,
    entries_of,
    matching,
    ordered,
    summary_of,
)
from workbench.runs.metrics import METRICS
from workbench.runs.previews import LiveSample, Preview
from workbench.runs.report import write_report
from workbench.runs.run import DECODING, Run, remove_run, removed_runs, rename_run, restore_run
from workbench.runs.settings import TrainSettings
from workbench.runs.snapshot import RunSnapshot, SnapshotReader, perform_named, snapshot
from workbench.runs.sweeps import created, parse_values
from workbench.settings import parse, specs
from workbench.workspace import Workspace, strange_names
from workbench.workspace.folders import MOST_GROUP

Name = Annotated[str, Field(title="Run", description="A run's name.", json_schema_extra={"source": "runs"})]
Names = Annotated[tuple[str, ...], Field(title="Runs", description="Names of runs.", min_length=1)]
Step = Annotated[int, Field(title="Step", description="The step of a checkpoint.", ge=0)]
TRIED = "Values to try: one run for each combination, as in `rank=8,16`."
LOG_LINES = 10


class RunLine(Snapshot):
    """A run in the list."""

    COLUMNS: ClassVar[tuple[str, ...]] = (
        *("group", "name", "activity", "step", "loss", "held_out", "diagnosis", "dataset", "model"),
        *("started_at", "ended_at"),
    )

    name: Annotated[str, Shown("run")]
    """What commands take."""

    state: str
    """`new`, `running`, `paused`, `finished`, `failed`, `stopped`, `died` ..."""

    position: int | None
    """Position in the queue, 1 is next; null if it is not waiting."""

    activity: Annotated[str, Shown("state")]
    """What it is doing now, in words."""

    step: Annotated[int, Shown(right=True)]
    """The last completed step."""

    loss: Annotated[float | None, Shown(text="{:.4f}".format, right=True)]
    """Smoothed; null before the first step."""

    held_out: Annotated[
        tuple[float, ...], Shown("held-out loss", lambda losses: f"{losses[0]:.4f} > {losses[-1]:.4f}", right=True)
    ]
    """The first and the last held-out loss; [] without held-out clips."""

    diagnosis: str
    """Kind of the diagnosis; "" before the first step."""

    steps: int | None
    """Total number of steps; null if its settings cannot be read."""

    dataset: str
    """Name of its dataset."""

    model: str
    """Name of its model."""

    started_at: Annotated[float | None, Shown("started", jobs.ago)]
    """Unix time; null before."""

    ended_at: Annotated[float | None, Shown("ended", moment)]
    """Unix time; null before."""

    created_at: float
    """Unix time."""

    group: str
    """The group it was put into; "" for none."""

    own_notes: str
    """Notes someone wrote about it; "" for none."""

    headline: Annotated[str, HIDDEN]
    """Its state in one word; `waiting` while it is in the queue."""

    share: Annotated[float | None, HIDDEN]
    """The share of its steps that is done; null while unknown."""

    seconds_left: Annotated[float | None, HIDDEN]
    """Estimated; null while unknown."""

    differs: Annotated[str, HIDDEN]
    """What tells it from the others of its group, or from the defaults, in a few words."""

    spark: Annotated[tuple[float, ...], HIDDEN]
    """The smoothed loss, in 40 points at most."""

    claim: Annotated[str, HIDDEN]
    """The diagnosis, or why it failed, in a few words; "" before the first step."""

    tone: Annotated[str, HIDDEN]
    """Whether that is good news: `good`, `warn`, `bad` or `plain`."""

    best: Annotated[bool, HIDDEN]
    """Whether its held-out loss is the lowest of its group."""

    def text_of(self, name: str) -> str:
        if name == "step":
            return f"{self.step}/{self.steps or '?'}"
        if name == "activity" and self.position:
            return "waiting, next" if self.position == 1 else f"waiting, number {self.position}"
        return super().text_of(name)


class RunView(Snapshot):
    """One run at this moment."""

    name: str
    """What commands take."""

    folder: str
    """Its folder."""

    state: str
    """`new`, `running`, `paused`, `finished`, `failed`, `stopped`, `died` ..."""

    headline: str
    """The state in one word; `waiting` while it is in the queue."""

    activity: str
    """What it is doing now, in words."""

    step: int
    """The last completed step."""

    steps: int | None
    """Total number of steps; null if its settings cannot be read."""

    seconds_left: float | None
    """Estimated; null while unknown."""

    position: int | None
    """Position in the queue, 1 is next; null if it is not waiting."""

    facts: tuple[dict[str, Any], ...]
    """Key, label, value, unit and tone of each number."""

    notes: tuple[dict[str, Any], ...]
    """Remarks: text, tone."""

    actions: tuple[dict[str, Any], ...]
    """Sensible next actions: kind, label, command."""

    checkpoints: tuple[dict[str, Any], ...]
    """Step, size in bytes, the reasons it is kept, and held-out loss of each."""

    diagnosis: dict[str, Any] | None
    """Kind, sentence, advice ...; null before the first measurement."""

    failure: dict[str, Any] | None
    """If it failed: cause, advice, actions ...; otherwise null."""

    outcome: dict[str, Any] | None
    """If it finished or was stopped: text, tone; otherwise null."""

    best_step: int | None
    """Step with the lowest held-out loss whose previews are good; null while unknown."""

    visible_effect: dict[str, Any] | None
    """Of the newest previews: change, control_change (levels of 255), effect (the first by the second), effects (of
    each), visible, spoiled; null before the first."""

    previews: tuple[dict[str, Any], ...]
    """Step, prompt, LoRA scale and video of each."""

    control_previews: tuple[dict[str, Any], ...]
    """The same for preservation prompts, which the LoRA should not change."""

    curves: dict[str, Any]
    """Name -> points [step, value]."""

    parent: dict[str, Any]
    """The run and step it was forked from; {} if it is not a fork."""

    group: str
    """The group it was put into; "" for none."""

    own_notes: str
    """Notes someone wrote about it; "" for none."""

    settings: dict[str, Any] | None
    """All settings; null if this version cannot read them."""

    lora: str | None
    """Path of the exported safetensors file; null before the run has finished."""

    full_model: str | None
    """Folder of the model a full fine-tune produced; null for a LoRA and before it has finished."""

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
            yield from [("", self.diagnosis["advice"])] if self.diagnosis["advice"] else []
        yield "folder", self.folder
        yield from ((fact["label"], f"{fact['value']} {fact['unit']}".strip()) for fact in self.facts)
        yield from (("note", one["text"]) for one in self.notes)
        yield from [("group", self.group)] if self.group else []
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
        """The settings that differ from their defaults."""
        if self.settings is None:
            yield "settings", "cannot be read by this version"
            return
        usual = TrainSettings().model_dump(mode="json")
        for name, value in self.settings.items():
            if value != usual[name]:
                yield f"  {name}", str(value)

    def _failure_lines(self) -> Iterator[tuple[str, str]]:
        """What happened, what helps, the log's end, and a command for each action that helps."""
        assert self.failure is not None
        yield "failure", self.failure["cause"]
        hints = [action["hint"] for action in self.failure["actions"]]
        saved = f"{self.failure['saved']} {self.failure['advice']}".strip()
        yield from (("", text) for text in (self.failure["message"], self.failure["facts"], saved, *hints) if text)
        yield from (("", f"| {line}") for line in self.failure["tail"].splitlines())
        yield from ((f"next: {action['command']}", "") for action in self.failure["actions"])


def view(seen: RunSnapshot, curves: bool = True) -> RunView:
    """Return what is known of a run. curves: with them, which are long"""
    status, effect, notes = seen.status, seen.curves.effect, [*map(asdict, seen.notes)]
    strange = strange_names.strange_in(seen.run.folder / checkpoints.FOLDER, "runs/*/checkpoints")
    if strange:
        notes.append({"text": strange_names.sentence(strange, seen.run.folder), "tone": "plain"})
    return RunView(
        name=seen.name,
        folder=str(seen.run.folder),
        state=status.state.value,
        headline=seen.headline,
        activity=seen.activity,
        step=seen.curves.last.get("step", 0),
        steps=seen.settings.steps if seen.settings else None,
        seconds_left=status.seconds_left,
        position=seen.position,
        facts=tuple(map(asdict, seen.facts)),
        notes=tuple(notes),
        actions=tuple(map(asdict, seen.actions)),
        checkpoints=tuple(map(asdict, seen.checkpoints)),
        diagnosis=asdict(seen.diagnosis) if seen.diagnosis else None,
        failure=asdict(seen.failure) if seen.failure else None,
        outcome=asdict(seen.outcome) if seen.outcome else None,
        best_step=seen.best_step,
        visible_effect=effect.to_json() if effect else None,
        previews=_videos([*seen.previews.previews, *seen.previews.scaled]),
        control_previews=_videos(seen.previews.controls),
        curves=seen.curves.to_json() if curves else {},
        parent=seen.parent,
        group=seen.group,
        own_notes=seen.own_notes,
        settings=seen.settings.model_dump(mode="json") if seen.settings else None,
        lora=str(seen.lora) if seen.lora else None,
        full_model=str(seen.run.model) if seen.run.model else None,
        log="\n".join(seen.log.split("\n")[-LOG_LINES:]),
    )


def _videos(previews: Sequence[Preview]) -> tuple[dict[str, Any], ...]:
    return tuple(
        {"step": one.step, "prompt": one.prompt, "scale": one.scale, "video": str(one.video)} for one in previews
    )


class Created(RunView):
    """A run that was created, or the first of several."""

    created: tuple[str, ...]
    """Names of all created runs."""


class Checkpoint(Snapshot):
    """A checkpoint of a run."""

    step: int
    """The step it was saved at."""

    bytes: Annotated[int, Shown("size", byte_size, right=True)]
    """Size of its files."""


class Starred(Snapshot):
    """The checkpoints of a run that are kept for good."""

    name: str
    """Name of the run."""

    starred: Annotated[tuple[int, ...], Shown(text=lambda steps: ", ".join(map(str, steps)))]
    """Steps of the starred checkpoints."""


class RemovedRun(Snapshot):
    """A run in the bin."""

    name: str
    """What `runs restore` takes."""


class Moved(Snapshot):
    """A run that was moved to the bin, or back."""

    name: str
    """What commands take."""

    message: str
    """One sentence saying what was done."""


class Comparison(Snapshot):
    """Runs side by side."""

    names: tuple[str, ...]
    """Names of the runs."""

    results: dict[str, tuple[str, ...]]
    """Result -> its text for each run."""

    settings: dict[str, tuple[str, ...]]
    """Setting that differs -> its value for each run."""

    previews: Annotated[tuple[dict[str, Any], ...], HIDDEN] = ()
    """Prompt, and videos: the base model's, then each run's newest of that prompt; null where there is none."""

    def lines(self) -> Iterator[tuple[str, str]]:
        yield from ()

    def table(self) -> tuple[Sequence[str], list[Sequence[str]]]:
        return ("", *self.names), [(row, *texts) for row, texts in {**self.results, **self.settings}.items()]


class Queue(Snapshot):
    """Which runs train, and which wait."""

    now: Annotated[tuple[str, ...], Shown(text=", ".join)]
    """Names of the active runs."""

    waiting: tuple[str, ...]
    """Names of the waiting runs, the next one first."""

    def lines(self) -> Iterator[tuple[str, str]]:
        yield from (("now", name) for name in self.now)
        yield from ((str(position), name) for position, name in enumerate(self.waiting, 1))
        if not self.waiting:
            yield "waiting", "none"


class Stacks(Snapshot):
    """What every thread of a run does, or did when it hung."""

    name: str
    """Name of the run."""

    alive: Annotated[bool, HIDDEN]
    """Whether the run is alive."""

    stacks: str
    """A text, as Python's faulthandler writes it."""


class Report(Snapshot):
    """A report that was written."""

    file: str
    """One HTML file that holds all it shows, videos included."""


class Decoding(JobSnapshot):
    """Making videos of previews that were kept as latents."""

    previews: str
    """The folder with the previews."""

    def outcome(self) -> Iterable[str]:
        return (f"{self.message}, in {self.previews}",)


# ---- what is known


def _strange(workspace: Workspace) -> str:
    return strange_names.sentence(strange_names.strange_in(workspace.runs, "runs"), workspace.root)


class _RunLines:
    """Reads the list again and again; of runs that are over, each file once."""

    def __init__(
        self, workspace: Workspace, search: str = "", group: str | None = None, sort: Order = "newest"
    ) -> None:
        self._workspace, self._search, self._group, self._sort = workspace, search, group, sort
        self._kept: dict[str, tuple[list[Any], RunSummary, str]] = {}

    def read(self) -> list[RunLine]:
        """Return the lines now, groups together."""
        waiting = run_queue.order(self._workspace)
        statuses = {one.name: one for one in jobs.jobs_in(self._workspace.runs)}
        self._kept = {name: kept for name, kept in self._kept.items() if name in statuses}
        every = entries_of(statuses.values(), waiting)
        said = {one.name: words for one, words in zip(every, differences(every), strict=True)}
        found = ordered(matching(every, self._search, self._group), self._sort)
        lines = [self._line(one, statuses[one.name], waiting, said[one.name]) for one in found]
        measured: dict[str, list[float]] = {}
        for one in lines:
            if one.group and one.held_out:
                measured.setdefault(one.group, []).append(one.held_out[-1])
        lowest = {group: min(losses) for group, losses in measured.items() if len(losses) > 1}
        return [
            one.model_copy(update={"best": bool(one.held_out) and one.held_out[-1] == lowest.get(one.group)})
            for one in lines
        ]

    def _line(self, entry: RunEntry, status: jobs.Status, waiting: list[str], differs: str) -> RunLine:
        summary, cause = self._summary(status)
        steps = entry.config.get("steps")  # not checked: a run of another version has a line, too
        busy = status.state in (jobs.State.RUNNING, jobs.State.STARTING)
        waits = entry.name in waiting
        return RunLine(
            name=entry.name,
            state=status.state.value,
            position=waiting.index(entry.name) + 1 if waits else None,
            activity=(busy and status.phase) or status.state.value,
            **{**asdict(summary), **({"claim": cause, "tone": "bad"} if cause else {})},
            steps=steps if isinstance(steps, int) else None,
            dataset=entry.dataset,
            model=entry.model,
            started_at=status.started_at,
            ended_at=entry.ended,
            created_at=entry.created,
            group=entry.group,
            own_notes=entry.notes,
            headline=entry.state,
            share=status.step / status.total if status.total and status.state.alive and not waits else None,
            seconds_left=None if waits else status.seconds_left,
            differs=differs,
            best=False,
        )

    def _summary(self, status: jobs.Status) -> tuple[RunSummary, str]:
        """Its numbers, and why it failed, if it did; read again once its metrics or checkpoints have changed."""
        folder, mark = status.folder, list[Any]([status.state, status.ended_at])
        for path in (folder / METRICS, folder / checkpoints.FOLDER):
            with contextlib.suppress(OSError):
                mark.append(path.stat().st_mtime_ns)
        if status.name not in self._kept or self._kept[status.name][0] != mark:
            run = Run(folder)
            failed = status.state in (jobs.State.FAILED, jobs.State.DIED)
            failure = failure_of(status, jobs.log_tail(folder, LOG_SEARCHED), run.checkpoints) if failed else None
            self._kept[status.name] = mark, summary_of(run, not status.state.alive), failure.cause if failure else ""
        return self._kept[status.name][1:]


def _watched_list(workspace: Workspace, **inputs: Any) -> Callable[[], Any]:
    return _RunLines(workspace, **inputs).read


@operation(
    path="/runs",
    watch=_watched_list,
    none="no run matches: workbench train --dataset NAME starts one",
    afterwards=_strange,
    visitors="own session",
)
def list_(
    workspace: Workspace,
    *,
    search: Annotated[
        str, Field(description="Only runs that have every word in their name, state, group, dataset, model or notes.")
    ] = "",
    group: Annotated[str | None, Field(description='Only runs of this group; "" for runs without one.')] = None,
    sort: Annotated[Order, Field(description="The order.")] = "newest",
) -> list[RunLine]:
    """List the runs."""
    return _RunLines(workspace, search, group, sort).read()


def _watched(workspace: Workspace, name: str) -> Callable[[], RunView]:
    """Without curves, which are long: whoever plots them reads the run itself."""
    reader = SnapshotReader(Run.open(workspace, name))
    return lambda: view(reader.read(), curves=False)


@operation(path="/runs/{name}", watch=_watched, visitors="own session")
def show(workspace: Workspace, name: Name) -> RunView:
    """Show how a run is going or how it ended, and why.

    Includes its checkpoints, its results, and the settings that differ from the defaults.
    """
    return view(snapshot(Run.open(workspace, name)))


@operation(path="/run-comparison", visitors="own session")
def compare(workspace: Workspace, names: Names) -> Comparison:
    """Compare runs: their results, and the settings that differ."""
    return Comparison(**side_by_side([Run.open(workspace, name) for name in names]).to_json())


@operation(visitors="own session")
def stacks(workspace: Workspace, name: Name) -> Stacks:
    """Show what every thread of a run is doing, or was doing when it hung."""
    run = Run.open(workspace, name)
    state, left = run.status.state, run.folder / STACKS
    if state.alive:
        return Stacks(name=name, alive=True, stacks=jobs.stacks(run.folder))
    text = left.read_text(encoding="utf-8", errors="replace") if left.exists() else ""
    if not text:
        raise ConfigError(f"{name} is {state.value} and left no stacks: only a run that hung leaves them")
    return Stacks(name=name, alive=False, stacks=text)


@operation(changes=True, says=lambda report: report.file, visitors="own session")
def report(workspace: Workspace, name: Name) -> Report:
    """Write a run's report as one self-contained HTML file."""
    return Report(file=str(write_report(Run.open(workspace, name))))


# ---- new runs, and commands to one


@operation(path="/runs", changes=True, status=201, shell=False, visitors="own session")
def create(
    workspace: Workspace,
    *,
    settings: Annotated[dict[str, Any], Field(description="Settings of docs/settings.md that are not the defaults.")],
    name: Annotated[str | None, Field(max_length=200, description="Its name. Else its dataset's, numbered.")] = None,
    start: Annotated[bool, Field(description="Put it into the queue at once.")] = True,
    tried: Annotated[tuple[str, ...], Field(description=TRIED)] = (),
    fork: Annotated[str, Field(description="Continue from this checkpoint: RUN@STEP.")] = "",
    target: Annotated[str, Field(description="Train on this target. Empty: on this machine.")] = "",
) -> Created:
    """Create a run, or one for each expert or combination of values to try, and put them into the queue."""
    where = resolve_target(workspace, target or LOCAL)
    given, values = parse(TrainSettings, settings), parse_values(tried)
    if fork and values:
        raise ConfigError("a fork is one run: give one value for each setting, or begin new runs")
    if fork:
        parent, step = checkpoint_of(workspace, fork)
        runs = [parent.fork(workspace, step, given, name)]
    else:
        runs = created(workspace, given, values, name)
    if len(runs) > 1 and values:
        titles = {spec.name: spec.title.lower() for spec in specs(TrainSettings)}
        for run in runs:
            run.set_group(f"{name or given.dataset}: {', '.join(titles[one] for one in values)}"[:MOST_GROUP])
    for run in runs:
        if where:
            choose_target(workspace, run, target)
        if start:
            run.start()
    return Created(**dict(view(snapshot(runs[0]))), created=tuple(run.name for run in runs))


def checkpoint_of(workspace: Workspace, text: str) -> tuple[Run, int]:
    """Return the run and the step that RUN@STEP names. Raises ConfigError for anything else."""
    name, _, step = text.rpartition("@")
    if not name or not step.isdecimal():
        raise ConfigError(f"fork is {text[:80]!r}, must be a run's name and a step, as in hiker@300")
    run = Run.open(workspace, name)
    if int(step) not in run.checkpoints:
        known = ", ".join(map(str, run.checkpoints)) or "none yet"
        raise ConfigError(f"{name} has no checkpoint of step {step}: choose one of {known}")
    return run, int(step)


class Done(Snapshot):
    """What was done with a run."""

    name: str
    """Name of the run to look at from then on: of a fork, the new one."""

    message: str
    """One sentence saying what was done; "" where the run shows it."""

    settings: dict[str, Any]
    """Settings for a new run, those that differ from the defaults; {} where none was to be prepared."""


@operation(changes=True, shell=False, visitors="own session")
def act(
    workspace: Workspace,
    name: Name,
    kind: Annotated[str, Field(description="Of one of the run's actions, as `show` lists them.")],
    *,
    label: Annotated[str, Field(description="Its label, where there are several of that kind.")] = "",
) -> Done:
    """Do what a run offers now: continue, fork, pause, stop, decode previews ..., or prepare a new run."""
    done = perform_named(workspace, snapshot(Run.open(workspace, name)), kind, label)
    if isinstance(done, TrainSettings):
        return Done(name=name, message="", settings=done.model_dump(mode="json", exclude_defaults=True))
    if isinstance(done, Run):
        return Done(name=done.name, message="" if done.name == name else f"{done.name} is in the queue", settings={})
    return Done(name=name, message=done, settings={})


@operation(changes=True, shell=False, visitors="own session")
def start(
    workspace: Workspace,
    name: Name,
    *,
    target: Annotated[str, Field(description="Train on this target, or `local`. Empty: where it is now.")] = "",
    from_start: Annotated[bool, Field(description="Start over at step 0 if it has no good checkpoint.")] = False,
) -> RunView:
    """Start a run, or resume one that ended from its newest good checkpoint."""
    run = startable(workspace, name, target)
    run.start(from_start)
    return view(snapshot(run))


def startable(workspace: Workspace, name: str, target: str = "") -> Run:
    """Return a run that may be started, sent to a target if one is named. Raises ConfigError."""
    run = Run.open(workspace, name)
    if run.status.state is jobs.State.STOPPING:
        raise NotNow(f"{name} still stops: start it when it has ended (workbench runs follow {name})")
    if target:
        choose_target(workspace, run, target)
    return run


def living(workspace: Workspace, name: str) -> Run:
    """Return a run that can take commands. Raises NotNow for any other."""
    run = Run.open(workspace, name)
    if reason := run.takes_no_commands:
        raise NotNow(reason)
    return run


Grace = Annotated[float | None, Field(ge=0, description="Kill it if it has not ended after this many seconds.")]


@operation(changes=True, says=lambda run: f"{run.name}: {run.activity or run.state}", visitors="own session")
def stop(workspace: Workspace, name: Name, *, grace: Grace = None) -> RunView:
    """Stop a run after its current step; it saves first."""
    run = living(workspace, name)
    run.stop(grace)
    return view(snapshot(run))


@operation(
    changes=True,
    says=lambda run: f"{run.name} pauses after this step: workbench runs resume {run.name}",
    visitors="own session",
)
def pause(workspace: Workspace, name: Name) -> RunView:
    """Pause a run after its current step; `resume` continues it.

    It saves a checkpoint and frees its device, so that you can sample in the meantime.
    """
    run = living(workspace, name)
    run.pause()
    return view(snapshot(run))


@operation(changes=True, says=lambda run: f"{run.name} goes on", visitors="own session")
def resume(workspace: Workspace, name: Name) -> RunView:
    """Resume a paused run (`start` is for runs that have ended)."""
    run = living(workspace, name)
    run.resume()
    return view(snapshot(run))


@operation(changes=True, says=lambda run: f"{run.name} writes a checkpoint after this step", visitors="own session")
def save(workspace: Workspace, name: Name) -> RunView:
    """Save a checkpoint after the current step."""
    run = living(workspace, name)
    run.save()
    return view(snapshot(run))


def _generates(run: RunView) -> str:
    return f"{run.name} generates after this step, into {run.folder}/previews"


@operation(changes=True, says=_generates, visitors="own session")
def preview(
    workspace: Workspace,
    name: Name,
    *,
    prompt: Annotated[str | None, Field(description="Generate this prompt instead of the run's own.")] = None,
    scale: Annotated[
        tuple[float, ...],
        Field(description="LoRA scales: 0 is the base model, 1 is usual. Several compare: --scale 0 --scale 1."),
    ] = (),
) -> RunView:
    """Generate preview videos after the current step."""
    run = living(workspace, name)
    run.preview(prompt, scale)
    return view(snapshot(run))


@operation(changes=True, says=_generates, visitors="own session")
def live_sample(workspace: Workspace, name: Name, settings: LiveSample) -> RunView:
    """Generate one video with a running run's present weights, after the current step.

    It is added to the run's previews and to the samples.
    """
    run = living(workspace, name)
    run.live_sample(settings)
    return view(snapshot(run))


@operation(path="/runs/{id}/decoding", shell=False, visitors="own session")
def decoding(workspace: Workspace, id: Annotated[str, Field(title="Run", description="A run's name.")]) -> Decoding:
    """Show the progress of decoding a run's previews."""
    run = Run.open(workspace, id)
    folder = run.folder / DECODING
    status = jobs.status(folder)
    decoded = jobs.result(folder).get("decoded")
    message = status.message if decoded is None else f"{decoded} previews decoded"
    return Decoding(
        id=id, folder=str(folder), state=status.state.value, message=message, previews=str(run.folder / "previews")
    )


@operation(changes=True, job=decoding, visitors="own session")
def decode(workspace: Workspace, name: Name) -> Decoding:
    """Decode previews that were saved as latents. The latents are kept."""
    Run.open(workspace, name).decode_previews()
    return decoding(workspace, name)


# ---- the queue


@operation(path="/queue", visitors="own session")
def queue(workspace: Workspace) -> Queue:
    """Show which runs are training and which are waiting, in order."""
    waiting = run_queue.order(workspace)
    now = [run.name for run in Run.all(workspace) if run.name not in waiting and run.status.state.alive]
    return Queue(now=tuple(now), waiting=tuple(waiting))


@operation(path="/queue/move", changes=True, visitors="own session")
def move(
    workspace: Workspace, name: Name, position: Annotated[int, Field(ge=1, description="New position; 1 is next.")]
) -> Queue:
    """Move a waiting run in the queue."""
    run_queue.move(workspace, name, position)
    return queue(workspace)


# ---- checkpoints


@operation(changes=True, visitors="own session")
def star(workspace: Workspace, name: Name, step: Step) -> Starred:
    """Star a step's checkpoint: it is never removed."""
    run = Run.open(workspace, name)
    checkpoints.star(run.folder, step)
    return Starred(name=name, starred=tuple(checkpoints.starred(run.folder)))


@operation(changes=True, visitors="own session")
def unstar(workspace: Workspace, name: Name, step: Step) -> Starred:
    """Unstar a step's checkpoint: it may be removed like the others."""
    run = Run.open(workspace, name)
    checkpoints.unstar(run.folder, step)
    return Starred(name=name, starred=tuple(checkpoints.starred(run.folder)))


Keep = Annotated[
    int, Field(ge=1, description="How many of the newest to keep; the best and the starred ones are kept, too.")
]


@operation(none="nothing to remove: the newest, the best and the starred checkpoints are kept", visitors="own session")
def to_prune(workspace: Workspace, name: Name, *, keep: Keep) -> list[Checkpoint]:
    """List the checkpoints that `prune` would remove."""
    run = Run.open(workspace, name)
    return [Checkpoint(step=one.step, bytes=one.bytes) for one in checkpoints.doomed(run.folder, keep, _every(run))]


@operation(
    changes=True,
    confirm=to_prune,
    none="nothing to remove",
    says=lambda one: f"step {one.step}",
    visitors="own session",
)
def prune(workspace: Workspace, name: Name, *, keep: Keep) -> list[Checkpoint]:
    """Remove old checkpoints.

    The newest, the best and the starred ones are kept.
    """
    run = Run.open(workspace, name)
    return [Checkpoint(step=one.step, bytes=one.bytes) for one in checkpoints.retire(run.folder, keep, _every(run))]


def _every(run: Run) -> int:
    """Multiples of how many steps stay; none where the settings cannot be read."""
    with contextlib.suppress(ConfigError):
        return run.settings.keep_every
    return 0


# ---- notes, names, the bin


@operation(changes=True, visitors="own session")
def note(workspace: Workspace, name: Name, text: Text = None) -> Note:
    """Replace the notes on a run; without a text, show them."""
    return noted(Run.open(workspace, name), text)


@operation(changes=True, visitors="own session")
def group(workspace: Workspace, name: Name, label: Label = None) -> Group:
    """Put a run into a group, under which lists show it; without a label, show its group."""
    return grouped(Run.open(workspace, name), label)


@operation(changes=True, says=lambda run: f"{run.name}: {run.message}", visitors="own session")
def rename(
    workspace: Workspace, name: Name, new_name: Annotated[str, Field(description="Its new name.", max_length=200)]
) -> Moved:
    """Rename a run that has ended. Samples and grids made with it keep the old name."""
    return Moved(name=rename_run(workspace, Run.open(workspace, name), new_name).name, message=f"was {name}")


@operation(path="/runs/remove", changes=True, says=lambda run: run.message, visitors="own session")
def remove(workspace: Workspace, names: Names) -> list[Moved]:
    """Move ended runs to the bin; `restore` brings them back."""
    runs = [Run.open(workspace, name) for name in dict.fromkeys(names)]
    return [Moved(name=run.name, message=remove_run(workspace, run)) for run in runs]


@operation(path="/removed-runs", none="no run is removed", visitors="own session")
def bin(workspace: Workspace) -> list[RemovedRun]:
    """List the removed runs, last removed first."""
    return [RemovedRun(name=name) for name in removed_runs(workspace)]


@operation(path="/removed-runs/{name}/restore", changes=True, says=lambda run: run.message, visitors="own session")
def restore(
    workspace: Workspace, name: Annotated[str, Field(description="A removed run, as `runs bin` lists it.")]
) -> Moved:
    """Restore a removed run."""
    run = restore_run(workspace, name)
    return Moved(name=run.name, message=f"{run.name} is restored")
