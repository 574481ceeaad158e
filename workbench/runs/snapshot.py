"""A run at one moment as plain data: what the page, the notebook, the shell, the report and `--json` render. No torch.

None of them decides what is shown: facts, notes, the failure, the actions to offer are chosen here. Not covered: how
the numbers come about (analysis), a run in one line of a list (summary), rendering (ui, notebook, cli).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from workbench import jobs
from workbench.errors import ConfigError
from workbench.families import find_model
from workbench.jobs import State, Status
from workbench.jobs.devices import Load, load, pick_device
from workbench.runs import facts, queue, retention
from workbench.runs.actions import Action
from workbench.runs.analysis.curves import Curves, curves_of
from workbench.runs.analysis.diagnosis import Diagnosis, best_step, diagnose
from workbench.runs.checkpoints import bytes_of, folder_of
from workbench.runs.facts import Fact, Note, Tone
from workbench.runs.failures import LOG_LINES, Failure, failure_of, last_checkpoint
from workbench.runs.previews import FOLDER, RunPreviews, read_previews
from workbench.runs.run import Run
from workbench.runs.sessions import RunSession, read_sessions
from workbench.runs.settings import TrainSettings
from workbench.workspace import Workspace, step_folders

DECODING = ".decode"  # the folder of a run in which Run.decode_previews works


@dataclass(frozen=True)
class SavedCheckpoint:
    """A checkpoint on disk. reasons: why it is kept, or that it goes;  held_out: the loss measured at its step"""

    step: int
    bytes: int
    reasons: tuple[str, ...]
    held_out: float | None

    @property
    def size(self) -> str:
        return f"{self.bytes / 1e6:.1f} MB"


@dataclass(frozen=True)
class RunSnapshot:
    """A run at one moment.

    headline: its state in one word;  activity: what it does now;  share: of its steps, None while unknown
    diagnosis: None before the first measurement;  failure: of a run that failed;  outcome: of one that ended well
    actions: what may be done now;  queue: names of the waiting runs, next first
    decoding: the job that makes videos of previews kept as latents;  settings: None where they cannot be read
    """

    run: Run
    status: Status
    settings: TrainSettings | None
    width: int
    headline: str
    tone: Tone
    activity: str
    share: float | None
    time_left: str
    facts: tuple[Fact, ...]
    notes: tuple[Note, ...]
    diagnosis: Diagnosis | None
    failure: Failure | None
    outcome: Note | None
    actions: tuple[Action, ...]
    curves: Curves
    best_step: int | None
    previews: RunPreviews
    preview_note: str
    checkpoints: tuple[SavedCheckpoint, ...]
    queue: tuple[str, ...]
    parent: dict[str, Any]
    decoding: Status | None
    log: str

    @property
    def name(self) -> str:
        return self.run.name

    @property
    def position(self) -> int | None:
        """Its place among the waiting runs, 1 is next; None when it does not wait."""
        return self.queue.index(self.name) + 1 if self.name in self.queue else None

    @property
    def saved(self) -> list[int]:
        """Steps of the checkpoints, oldest first."""
        return [one.step for one in self.checkpoints]

    def action(self, kind: str) -> Action | None:
        """The action of that kind, None when it makes no sense now."""
        return next((one for one in self.actions if one.kind == kind), None)


def snapshot(run: Run) -> RunSnapshot:
    """The run at this moment. To follow one, keep a SnapshotReader."""
    return SnapshotReader(run).read()


def machine_load() -> tuple[str, Load]:
    """The device that jobs take by default, and how busy it is."""
    device = pick_device("auto")
    return device.name, load(device)


class SnapshotReader:
    """Reads one run again and again, each line of its metrics once, previews and checkpoints after a change."""

    def __init__(
        self,
        run: Run,
        waiting: Callable[[], Sequence[str]] | None = None,
        load: Callable[[], tuple[str, Load]] | None = None,
    ) -> None:
        """waiting, load: who knows the queue and the machine's load already, when many runs are read"""
        self._run, self._load = run, load or machine_load
        self._waiting = waiting or (lambda: queue.order(Workspace(run.folder.parent.parent)))
        self._curves = curves_of(run)
        self._preview_mark: list[tuple[str, int]] = []
        self._previews = RunPreviews()
        self._checkpoint_mark: tuple[object, ...] = ()
        self._checkpoints: tuple[SavedCheckpoint, ...] = ()

    def read(self) -> RunSnapshot:
        """What the run's files hold now."""
        run, curves = self._run, self._curves
        curves.refresh()
        settings, width = _settings(run)
        status, saved, order = run.status, run.checkpoints, tuple(self._waiting())
        waiting = run.name in order
        diagnosis = _diagnosis(curves, saved, status)
        best = best_step(curves.held_out, saved)
        sessions, parent = read_sessions(run.folder), run.parent
        previews, log = self._read_previews(), jobs.log_tail(run.folder, LOG_LINES)
        decoding = _decoding(run, previews)
        return RunSnapshot(
            run=run,
            status=status,
            settings=settings,
            width=width,
            headline="waiting" if waiting and status.state is not State.STOPPING else status.state.value,
            tone="idle" if waiting else facts.TONES.get(status.state, "idle"),
            activity=facts.activity(status),
            share=0.0 if waiting else _share(status),
            time_left=facts.time_left(status),
            facts=tuple(self._facts(status, settings, sessions, diagnosis, waiting)),
            notes=tuple(facts.notes(run.folder, status, settings, parent, sessions)),
            diagnosis=diagnosis,
            failure=failure_of(status, log, saved, settings),
            outcome=_outcome(run, status, saved),
            actions=tuple(_actions(run, status, settings, saved, waiting, curves, previews, decoding)),
            curves=curves,
            best_step=best,
            previews=previews,
            preview_note=_preview_note(previews, decoding, settings, status),
            checkpoints=self._read_checkpoints(saved, best, status, settings),
            queue=order,
            parent=parent,
            decoding=decoding,
            log=log,
        )

    def _facts(
        self,
        status: Status,
        settings: TrainSettings | None,
        sessions: list[RunSession],
        diagnosis: Diagnosis | None,
        waiting: bool,
    ) -> list[Fact]:
        run = self._run
        found = [*facts.metric_facts(self._curves, diagnosis)]
        found += facts.time_facts(run.folder, status, settings, sessions, waiting)
        if status.state.alive:
            found.append(facts.load_fact(*self._load()))
        if run.lora:
            found.append(Fact("lora", "LoRA file", f"{run.lora.stat().st_size / 1e6:.1f}", "MB"))
        return found

    def _read_previews(self) -> RunPreviews:
        """Again only after a folder of theirs has changed: a long run has thousands."""
        folders = step_folders(self._run.folder / FOLDER).values()
        mark = [(folder.name, folder.stat().st_mtime_ns) for folder in folders]
        if mark != self._preview_mark:
            self._preview_mark, self._previews = mark, read_previews(self._run.folder)
        return self._previews

    def _read_checkpoints(
        self, saved: list[int], best: int | None, status: Status, settings: TrainSettings | None
    ) -> tuple[SavedCheckpoint, ...]:
        """Again only after something was saved, starred or measured: the rules of keeping read all measurements."""
        folder = self._run.folder
        starred, chosen = retention.starred(folder), retention.chosen_best(folder)
        going_on = settings is not None and status.state is not State.FINISHED
        mark = (tuple(saved), best, tuple(starred), str(chosen), going_on)
        if mark != self._checkpoint_mark:
            going = {one.step for one in self._run.doomed()} if going_on else set[int]()
            reasons = (
                ("newest", saved[-1:]),
                ("lowest held-out loss", [best]),
                (f"best: {chosen.get('why') or 'chosen by hand'}", [chosen.get("step")]),
                ("starred", starred),
                ("goes with the next save", going),
            )
            self._checkpoints = tuple(
                SavedCheckpoint(
                    step,
                    bytes_of(folder_of(folder, step)),
                    tuple(reason for reason, steps in reasons if step in steps),
                    self._curves.held_out.get(step),
                )
                for step in saved
            )
            self._checkpoint_mark = mark
        return self._checkpoints


def _settings(run: Run) -> tuple[TrainSettings | None, int]:
    """The settings and the width of its videos; None and 0 of a run of another version, or without its model."""
    settings = None
    with contextlib.suppress(ConfigError):
        settings = run.settings
        return settings, settings.width or find_model(settings.model)[1].width
    return settings, 0


def _diagnosis(curves: Curves, saved: list[int], status: Status) -> Diagnosis | None:
    if not curves.last and not curves.held_out:
        return None
    found = diagnose(curves, saved)
    over = found.kind == "too early" and not status.state.alive  # then there is nothing to wait for
    return replace(found, advice="") if over else found


def _share(status: Status) -> float | None:
    if status.state is State.FINISHED:
        return 1.0
    share = status.step / status.total if status.total else None
    return share if status.state.alive else share or 0.0


def _outcome(run: Run, status: Status, saved: list[int]) -> Note | None:
    if status.state is State.FINISHED and run.lora:
        return Note("The LoRA is ready: it loads in diffusers as it is.", "good")
    if status.state is State.STOPPED:
        return Note(f"{status.message or 'Stopped as requested.'} {last_checkpoint(saved)}")
    return None


def _decoding(run: Run, previews: RunPreviews) -> Status | None:
    folder = run.folder / DECODING
    return jobs.status(folder) if previews.latents and folder.exists() else None


def _preview_note(
    previews: RunPreviews, decoding: Status | None, settings: TrainSettings | None, status: Status
) -> str:
    """What there is to know of previews that are missing or not decoded, "" if nothing."""
    if previews.latents:
        count = "1 preview is" if previews.latents == 1 else f"{previews.latents} previews are"
        if decoding is None or decoding.state is State.FINISHED:
            next_step = "Decode them to see them."
        elif decoding.state.alive:
            progress = f", {decoding.step} of {decoding.total}" if decoding.total else ""
            next_step = f"{decoding.phase}{progress}"
        else:
            next_step = f"Decoding them {decoding.state}: {decoding.message}"
        return f"{count} kept as latents, as the run's settings say. {next_step}"
    if previews.previews:
        return ""
    if settings and settings.preview_every and status.state.alive:
        return "The first previews show what the model generates before training. They come soon."
    return "This run has no previews."


def _actions(
    run: Run,
    status: Status,
    settings: TrainSettings | None,
    saved: list[int],
    waiting: bool,
    curves: Curves,
    previews: RunPreviews,
    decoding: Status | None,
) -> list[Action]:
    """What makes sense now, the most likely first. What a failed run needs, its failure offers."""
    state, found = status.state, list[Action]()
    running = state is State.RUNNING and not waiting

    def offer(kind: Any, label: str, command: str, condition: bool) -> None:
        if condition:
            found.append(Action(kind, label, f"workbench {command}"))

    start = "Start" if state is State.NEW else f"Go on from step {saved[-1]}" if saved else "Start again"
    usable = (state is State.FINISHED and run.lora is not None) or (state is State.PAUSED and bool(saved))
    lora = run.name if run.lora or not saved else f"runs/{run.name}@{saved[-1]}"
    undecoded = bool(previews.latents) and not state.alive and not (decoding and decoding.state.alive)
    offer("go on", start, f"runs start {run.name}", state in (State.NEW, State.STOPPED))
    offer("sample", "Try it in Sample", f"sample --lora {lora}", usable)
    offer("stacks", "Show what it is doing", f"runs stacks {run.name}", status.hanging)
    offer("pause", "Pause", f"runs pause {run.name}", running)
    offer("resume", "Resume", f"runs resume {run.name}", state is State.PAUSED)
    offer("stop", "Stop", f"runs stop {run.name}", state.alive and state is not State.STOPPING)
    offer("kill", "End by force", f"runs stop {run.name} --grace 0", state is State.STOPPING)
    offer("save", "Save now", f"runs save {run.name}", running)
    offer("preview", "Preview now", f"runs preview {run.name}", running)
    offer("live sample", "Generate after this step", f"runs live-sample {run.name}", running)
    offer("decode", "Decode previews", f"runs decode {run.name}", undecoded)
    offer("new run", "Copy settings to the form", f"train --clone {run.name}", settings is not None)
    offer("report", "Write a report", f"runs report {run.name}", settings is not None and bool(curves.last))
    return found


def to_json(seen: RunSnapshot) -> dict[str, Any]:
    """A snapshot for programs: `workbench runs show NAME --json`."""
    status = seen.status
    return {
        "name": seen.name,
        "folder": str(seen.run.folder),
        "state": status.state.value,
        "headline": seen.headline,
        "activity": seen.activity,
        "step": seen.curves.last.get("step", 0),
        "steps": seen.settings.steps if seen.settings else None,
        "seconds_left": status.seconds_left,
        "position": seen.position,
        "facts": [asdict(fact) for fact in seen.facts],
        "notes": [asdict(note) for note in seen.notes],
        "diagnosis": asdict(seen.diagnosis) if seen.diagnosis else None,
        "failure": asdict(seen.failure) if seen.failure else None,
        "outcome": asdict(seen.outcome) if seen.outcome else None,
        "actions": [asdict(action) for action in seen.actions],
        "checkpoints": [asdict(checkpoint) for checkpoint in seen.checkpoints],
        "best_step": seen.best_step,
        "previews": [
            {"step": one.step, "prompt": one.prompt, "scale": one.scale, "video": str(one.video)}
            for one in (*seen.previews.previews, *seen.previews.scaled)
        ],
        "curves": seen.curves.to_json(),
        "parent": seen.parent,
        "settings": seen.settings.model_dump(mode="json") if seen.settings else None,
        "lora": str(seen.run.lora) if seen.run.lora else None,
    }
