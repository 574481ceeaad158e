"""A run at one moment as plain data, which the page, the notebook, the shell, the report and `--json` render. No torch.

The facts, notes, failure, verdict and actions are chosen here; renderers only lay them out.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from workbench import jobs
from workbench.clips.media import in_words
from workbench.display.quantities import Tone, byte_size, duration, listed, loss_text, moment, tone_of
from workbench.errors import ConfigError, NotNow
from workbench.jobs import State, Status, queue
from workbench.jobs.devices import Load, load, pick_device
from workbench.runs import checkpoints
from workbench.runs.analysis.best_point import Forecast, forecast, record
from workbench.runs.analysis.curves import Curves, curves_of
from workbench.runs.analysis.diagnosis import Diagnosis, beside_failure, diagnose
from workbench.runs.analysis.visible_effect import best_step
from workbench.runs.failures import LOG_LINES, Failure, failure_of, fallback_record, fallback_sentence, last_checkpoint
from workbench.runs.listing import headline
from workbench.runs.metrics import RunSession, read_sessions, training_seconds
from workbench.runs.previews import FOLDER, RunPreviews, read_previews
from workbench.runs.run import DECODING, Action, Run, as_flags
from workbench.runs.settings import TrainSettings
from workbench.workspace import Workspace, step_folders

CHECKPOINT_HEADS = ("step", "held-out loss", "size", "")


@dataclass(frozen=True)
class Fact:
    """A labeled number or short text; programs know it by `key`."""

    key: str
    label: str
    value: str
    unit: str = ""
    tone: Tone = "plain"

    @property
    def text(self) -> str:
        return f"{self.value} {self.unit}".strip()


@dataclass(frozen=True)
class Note:
    """A sentence the user should read."""

    text: str
    tone: Tone = "plain"


@dataclass(frozen=True)
class SavedCheckpoint:
    """A checkpoint on disk.

    reasons: why it is kept, or that it will be removed.
    held_out: the held-out loss at its step, if it was measured.
    """

    step: int
    bytes: int
    reasons: tuple[str, ...]
    held_out: float | None

    @property
    def row(self) -> tuple[str, str, str, str]:
        """Its row in a table with CHECKPOINT_HEADS."""
        held_out = "" if self.held_out is None else f"{self.held_out:.4f}"
        return str(self.step), held_out, byte_size(self.bytes), ", ".join(self.reasons)


@dataclass(frozen=True)
class RunSnapshot:
    """A run at one moment.

    settings: None if they cannot be read.
    width: of its videos, in pixels.
    lora: the exported LoRA.
    forecast: where the run's best point is, if it looks for it and can tell.
    diagnosis: None before the first measurement. For a failed run it is shown below the failure.
    queue: names of the waiting runs, next first.
    stops_at: when the time limit ends the run, Unix time.
    decoding: the job that decodes previews kept as latents.
    group, own_notes: the user's group and notes for the run.
    log: the last lines of its log.
    """

    run: Run
    status: Status
    settings: TrainSettings | None
    width: int
    lora: Path | None
    facts: tuple[Fact, ...]
    notes: tuple[Note, ...]
    diagnosis: Diagnosis | None
    curves: Curves
    best_step: int | None
    forecast: Forecast | None
    previews: RunPreviews
    checkpoints: tuple[SavedCheckpoint, ...]
    queue: tuple[str, ...]
    parent: dict[str, Any]
    stops_at: float | None
    decoding: Status | None
    group: str
    own_notes: str
    log: str

    @property
    def name(self) -> str:
        return self.run.name

    @property
    def state(self) -> State:
        return self.status.state

    @property
    def step(self) -> int:
        """The last completed step."""
        return int(self.curves.last.get("step", 0))

    @property
    def steps(self) -> int | None:
        """The number of steps; None if the settings cannot be read."""
        return self.settings.steps if self.settings else None

    @property
    def waits(self) -> bool:
        return self.name in self.queue

    @property
    def position(self) -> int | None:
        """Its position in the queue, 1 is next; None if it does not wait."""
        return self.queue.index(self.name) + 1 if self.waits else None

    @property
    def saved(self) -> list[int]:
        """Steps of the checkpoints, oldest first."""
        return [one.step for one in self.checkpoints]

    @property
    def headline(self) -> str:
        """The state in one word."""
        return headline(self.status, self.waits)

    @property
    def tone(self) -> Tone:
        return tone_of(self.headline)

    @property
    def activity(self) -> str:
        """What the run is doing now."""
        return activity(self.status)

    @property
    def time_left(self) -> str:
        return time_left(self.status, self.stops_at)

    @property
    def share(self) -> float | None:
        """The share of steps done, 0 to 1; None if unknown."""
        status = self.status
        if self.waits or status.state is State.FINISHED:
            return 0.0 if self.waits else 1.0
        return status.share if status.state.alive else status.share or 0.0

    @cached_property
    def failure(self) -> Failure | None:
        """Why the run failed; None if it did not."""
        return failure_of(self.status, self.log, self.saved, self.settings)

    @property
    def outcome(self) -> Note | None:
        """The result of a run that ended well; None for others."""
        if self.status.state is State.FINISHED and self.lora:
            return Note("The LoRA is ready. It loads in diffusers as is.", "good")
        if self.status.state is State.FINISHED and self.run.model:
            return Note(f"The model is ready. Use runs/{self.name} as the model, here or in diffusers.", "good")
        if self.status.state is State.STOPPED:
            return Note(f"{self.status.message or 'Stopped as requested.'} {last_checkpoint(self.saved)}")
        return None

    @property
    def preview_note(self) -> str:
        """Says why previews are missing or not decoded; "" if neither."""
        decoding = self.decoding
        if self.previews.latents:
            count = "1 preview is" if self.previews.latents == 1 else f"{self.previews.latents} previews are"
            if decoding is None or decoding.state is State.FINISHED:
                next_step = "Decode them to see them."
            elif decoding.state.alive:
                progress = f", {decoding.step} of {decoding.total}" if decoding.total else ""
                next_step = f"{decoding.phase}{progress}"
            else:
                next_step = f"Decoding them {decoding.state}: {decoding.message}"
            return f"{count} kept as latents, as set for this run. {next_step}"
        if self.previews.previews:
            return ""
        if self.settings and self.settings.preview_every and self.status.state.alive:
            when = "once the run starts" if self.waits else "soon"
            return f"The first previews show what the model generates before training. They will appear {when}."
        return "This run has no previews."

    @cached_property
    def actions(self) -> tuple[Action, ...]:
        """The actions that make sense now, most likely first, except those the failure already offers."""
        state, name, saved, found = self.status.state, self.name, self.saved, list[Action]()
        running = state is State.RUNNING and not self.waits

        def offer(kind: Any, label: str, command: str, condition: bool) -> None:
            if condition:
                found.append(Action(kind, label, f"workbench {command}"))

        start = "Start" if state is State.NEW else f"Resume from step {saved[-1]}" if saved else "Start again"
        usable = (state in (State.FINISHED, State.STOPPED) and self.lora is not None) or (
            state is State.PAUSED and bool(saved)
        )
        lora = name if self.lora or not saved else f"runs/{name}@{saved[-1]}"
        decoding = self.decoding is not None and self.decoding.state.alive
        undecoded = bool(self.previews.latents) and not state.alive and not decoding
        offer("go on", start, f"runs start {name}", state in (State.NEW, State.STOPPED))
        offer("sample", "Try it in Sample", f"sample --lora {lora}", usable)
        offer("stacks", "Show what it is doing", f"runs stacks {name}", self.status.hanging)
        offer("pause", "Pause", f"runs pause {name}", running)
        offer("resume", "Resume", f"runs resume {name}", state is State.PAUSED)
        offer("stop", "Stop", f"runs stop {name}", state.alive and state is not State.STOPPING)
        offer("kill", "Force stop", f"runs stop {name} --grace 0", state is State.STOPPING)
        offer("save", "Save now", f"runs save {name}", running)
        offer("preview", "Preview now", f"runs preview {name}", running)
        offer("live sample", "Generate after this step", f"runs live-sample {name}", running)
        offer("decode", "Decode previews", f"runs decode {name}", undecoded)
        offer("new run", "Copy settings to the form", f"train --clone {name}", self.settings is not None)
        offer("report", "Write a report", f"runs report {name}", self.settings is not None and bool(self.curves.last))
        offered = {one.label for one in self.failure.actions} if self.failure else set[str]()
        return tuple(one for one in found if one.label not in offered)

    def action(self, kind: str) -> Action | None:
        """Return the action of a kind; None if it makes no sense now."""
        return next((one for one in self.actions if one.kind == kind), None)


def snapshot(run: Run) -> RunSnapshot:
    """Read a run once. Use a SnapshotReader to follow it."""
    return SnapshotReader(run).read()


def machine_load() -> tuple[str, Load]:
    """Return the name and load of the device that jobs use by default."""
    device = pick_device("auto")
    return device.name, load(device)


class SnapshotReader:
    """Reads a run repeatedly: each line of its metrics once, and previews and checkpoints only when they change."""

    def __init__(self, run: Run) -> None:
        self._run, self._curves = run, curves_of(run)
        self._preview_mark, self._previews = list[tuple[str, int]](), RunPreviews()
        self._checkpoint_mark: tuple[object, ...] = ()
        self._checkpoints: tuple[SavedCheckpoint, ...] = ()

    def read(self) -> RunSnapshot:
        """Read the run's files as they are now."""
        self._curves.refresh()
        run, curves = self._run, self._curves.as_read()
        settings, width = None, 0
        with contextlib.suppress(ConfigError):  # written by another version, or with an unknown model
            settings = run.settings
            width = settings.width or settings.resolved.model.width
        status, saved, order = run.status, run.checkpoints, tuple(queue.order(Workspace.of(run.folder)))
        sessions, parent, lora = read_sessions(run.folder), run.parent, run.lora
        # A long run has thousands of previews, so read them only when one of their folders has changed.
        mark = [(folder.name, folder.stat().st_mtime_ns) for folder in step_folders(run.folder / FOLDER).values()]
        if mark != self._preview_mark:
            self._preview_mark, self._previews = mark, read_previews(run.folder)
        diagnosis, best = None, best_step(curves.held_out, saved, curves.effects)
        if curves.last or curves.held_out:
            diagnosis = diagnose(curves, saved, not status.state.alive, settings)
            if status.state in (State.FAILED, State.DIED):
                diagnosis = beside_failure(diagnosis)
        ahead = forecast(curves.points, settings) if settings else None
        known, stops_at = [*metric_facts(curves, diagnosis)], time_limit_of(status, sessions)
        if ahead is not None:
            known.append(Fact("best_point", "best point", ahead.words))
        if sessions:
            known.append(Fact("training_time", "training time", duration(training_seconds(run.folder, sessions))))
        if stops_at is not None:
            known.append(time_limit_fact(status, stops_at))
        spilling = skipping = None
        fast = any(one.record.get("speed") == "fast" for one in self._previews.previews)
        if fast and settings and settings.preview_speed == "auto":
            skipping = Note(
                "Previews skip half of the denoising steps, because all of them would take longer than the training "
                "between two previews. preview_speed exact computes every step."
            )
        if status.state.alive:
            device, busy = machine_load()
            known.append(load_fact(device, busy))
            spilling = spilled(curves, device, busy) if status.state is State.RUNNING else None
        elif status.ended_at:
            known.append(Fact("ended", "ended", moment(status.ended_at)))
        if lora:
            known.append(Fact("lora", "LoRA file", byte_size(lora.stat().st_size)))
        decoding = run.folder / DECODING
        return RunSnapshot(
            run=run,
            status=status,
            settings=settings,
            width=width,
            lora=lora,
            facts=tuple(known),
            notes=(*filter(None, [spilling, skipping]), *notes(run.folder, status, settings, parent, sessions)),
            diagnosis=diagnosis,
            curves=curves,
            best_step=best,
            forecast=ahead,
            previews=self._previews,
            checkpoints=self._read_checkpoints(saved, best, status, settings),
            queue=order,
            parent=parent,
            stops_at=stops_at,
            decoding=jobs.status(decoding) if self._previews.latents and decoding.exists() else None,
            group=run.group,
            own_notes=run.notes,
            log=jobs.log_tail(run.folder, LOG_LINES),
        )

    def _read_checkpoints(
        self, saved: list[int], best: int | None, status: Status, settings: TrainSettings | None
    ) -> tuple[SavedCheckpoint, ...]:
        """Read the checkpoints if one was saved, starred or measured: what will be kept depends on all measurements."""
        folder = self._run.folder
        starred, chosen = checkpoints.starred(folder), checkpoints.chosen_best(folder)
        going_on = settings is not None and status.state is not State.FINISHED
        mark = (tuple(saved), best, tuple(starred), str(chosen), going_on)
        if mark != self._checkpoint_mark:
            going = {one.step for one in self._run.doomed()} if going_on else set[int]()
            held_out, lowest = self._curves.held_out, "lowest held-out loss"
            if best not in held_out or held_out[best] > min(held_out.values()):
                lowest += " of the checkpoints"
            if best != best_step(self._curves.held_out, saved, {}):
                lowest += " whose previews are good"
            reasons = (
                ("newest", saved[-1:]),
                (lowest, [best]),
                ("best point", [checkpoints.best_point_step(folder)]),
                (f"best: {chosen.get('why') or 'chosen by hand'}", [chosen.get("step")]),
                ("starred", starred),
                ("removed at the next save", going),
            )
            self._checkpoints = tuple(
                SavedCheckpoint(
                    step,
                    checkpoints.bytes_of(checkpoints.folder_of(folder, step)),
                    tuple(reason for reason, steps in reasons if step in steps),
                    self._curves.held_out.get(step),
                )
                for step in saved
            )
            self._checkpoint_mark = mark
        return self._checkpoints


# ---- facts and notes


def activity(status: Status) -> str:
    """Describe what a run is doing: phase and step."""
    words = {
        State.NEW: ["not started yet"],
        State.STARTING: ["loading"],
        State.FINISHED: [f"{status.total} steps done" if status.total else "done"],
    }.get(status.state)
    if words is None:
        words = [status.phase or "starting"] if status.state.alive else []
        words += [f"{status.step} of {status.total}"] if status.total else []
    if status.state is State.STOPPING:
        words.append("finishing its step, saving and ending")
    if status.state is State.PAUSED:
        words.append("waiting to be resumed; you can sample in the meantime")
    if status.state.alive and status.message:
        words.append(status.message)
    return " · ".join(words)


def time_limit_of(status: Status, sessions: list[RunSession]) -> float | None:
    """Return when the time limit will end a run (Unix time); None without a limit, or before training starts."""
    ready = status.state.alive and bool(sessions) and sessions[-1].time >= (status.started_at or 0.0)
    return sessions[-1].stops_at if ready else None


def time_left(status: Status, stops_at: float | None = None) -> str:
    """Put the estimated time left into words; "" if the run is not running or there is no estimate yet."""
    if status.state is not State.RUNNING or status.seconds_left is None:
        return ""
    limit = math.inf if stops_at is None else max(0.0, stops_at - time.time())
    if limit < status.seconds_left:
        return f"about {duration(limit)} until its time limit"
    return status.left


def time_limit_fact(status: Status, stops_at: float) -> Fact:
    """Say when and near which step the time limit ends the run, or that the run finishes first."""
    seconds, steps = status.seconds_left, status.total - status.step
    if not seconds or steps <= 0 or status.state is not State.RUNNING:
        return Fact("stops_at", "stops no later than", moment(stops_at))
    limit = max(0.0, stops_at - time.time())
    if seconds <= limit:
        return Fact("stops_at", "time limit", f"{moment(stops_at)}, after its last step")
    reached = status.step + int(steps * limit / seconds)
    return Fact("stops_at", "stops at its time limit", f"{moment(stops_at)}, near step {reached:,} of {status.total:,}")


def _loss_facts(curves: Curves) -> Iterator[Fact]:
    held_out = curves.held_out
    if curves.smoothed is not None:
        yield Fact("loss", "loss, smoothed", loss_text(curves.smoothed))
    if held_out:
        first, newest = held_out[min(held_out)], held_out[max(held_out)]
        value = f"{loss_text(first)} → {loss_text(newest)}" if len(held_out) > 1 else loss_text(newest)
        yield Fact("held_out_loss", "held-out loss", value)
    if len(held_out) > 1:
        best = min(held_out, key=lambda step: held_out[step])
        yield Fact("lowest_held_out_loss", "lowest held-out loss", f"{loss_text(held_out[best])} at step {best}")
    for kind, of_what in (("outside", "outside the masks"), ("sound", "of the sound")):
        if values := [loss_text(value) for _, value in getattr(curves, f"held_out_{kind}").points()]:
            yield Fact(f"held_out_{kind}", f"held-out loss {of_what}", " → ".join([*values[:1], *values[1:][-1:]]))


def metric_facts(curves: Curves, diagnosis: Diagnosis | None = None) -> Iterator[Fact]:
    """Yield the newest numbers of the metrics."""
    last = curves.last
    yield from _loss_facts(curves)
    for side in ("inside", "outside"):
        if points := getattr(curves, f"visible_{side}").points():
            levels = points[-1][1]
            text = f"{levels:.1f} levels of 255, {in_words(levels)}"
            yield Fact(f"visible_{side}", f"visible effect {side} the masks", text)
    if curves.changes:
        own, others = list(curves.changes.values())[-1]
        drifts = diagnosis is not None and diagnosis.kind == "prior drift"
        yield Fact("change", "change on its own captions", f"{own:.1%}")
        share = f" ({others / own:.2f} of the change)" if own else ""
        yield Fact("prior_drift", "prior drift", f"{others:.1%}{share}", tone="bad" if drifts else "plain")
    if (effect := curves.effect) is not None:
        yield Fact("visible_effect", "visible effect", effect.words, tone="bad" if effect.spoiled else "plain")
    if "lr" in last:
        yield Fact("learning_rate", "learning rate", f"{last['lr']:.2e}")
    if last.get("seconds"):
        yield Fact("step_seconds", "time per step", f"{last['seconds']:.2f}", "s")
    if last.get("memory_gb"):
        yield Fact("memory", "memory", f"{last['memory_gb']:.1f}", "GB")


def load_fact(device: str, load: Load) -> Fact:
    """Describe the load of the machine's device."""
    what = "CPU" if device.startswith("CPU") else "GPU"
    busy = "" if load.utilization is None else f"{load.utilization:.0f}%"
    memory = "" if load.memory_used_gb is None else f"{load.memory_used_gb:.1f} of "
    return Fact("load", f"{what} load", ", ".join(filter(None, [busy, f"{memory}{load.memory_total_gb:.0f}"])), "GB")


SLOWED, FULL = 10.0, 0.95  # times the fastest step; share of a GPU's memory


def spilled(curves: Curves, device: str, load: Load) -> Note | None:
    """Say so if a full GPU's driver seems to have moved memory into the machine's, instead of letting the run fail.

    Windows does that. Nothing reports it, but steps take ten and more times as long (ai-toolkit, issue 794).
    """
    used = load.memory_used_gb
    if device.startswith("CPU") or used is None or used < FULL * load.memory_total_gb or curves.slowed < SLOWED:
        return None
    return Note(
        f"The GPU's memory is full ({used:.1f} of {load.memory_total_gb:.0f} GB) and a step takes {curves.slowed:.0f} "
        "times as long as before: the driver has probably moved part of it into the machine's memory. Close what else "
        "uses the GPU, or stop the run and start one with blocks_to_swap, gradient_checkpointing or smaller batches.",
        "bad",
    )


def notes(
    run: Path, status: Status, settings: TrainSettings | None, parent: dict[str, Any], sessions: list[RunSession]
) -> Iterator[Note]:
    """Yield what the user may not expect: silence, a fork's changes, the OOM fallback, damaged checkpoints."""
    if status.hanging:
        limit = settings.stall_timeout if settings else 0
        end = f" After {limit:g} minutes of silence, the run ends and writes its stacks to disk." if limit else ""
        yield Note(f"No sign of life for {duration(status.silent_seconds)}: see its stacks.{end}", "bad")
    if parent:
        changed = "; ".join(f"{name} {old} → {new}" for name, (old, new) in parent.get("changed", {}).items())
        text = f"Continues from step {parent.get('step')} of {parent.get('run')}"
        text += f", with {changed}." if changed else "."
        if dropped := parent.get("dropped"):
            text += f" Not carried over: {'; '.join(dropped)}."
        yield Note(text)
    if settings and settings.base_lora and settings.method != "full":
        yield Note(f"Trained on top of the LoRA {settings.base_lora}: to use this one, load both.")
    if text := fallback_sentence(fallback_record(run)):
        yield Note(text)
    if sessions and sessions[-1].note:
        yield Note(sessions[-1].note)


# ---- the verdict: a claim, the evidence, and what to do next


@dataclass(frozen=True)
class Verdict:
    """What a run's page says first: a claim, the evidence for it, and what to do next, if anything."""

    tone: Tone
    claim: str
    evidence: str
    action: Action | None = None


def verdict_of(seen: RunSnapshot) -> Verdict | None:
    """Judge a run; None if there is nothing to say yet."""
    state, name = seen.status.state, seen.name
    if failure := seen.failure:
        return _failed(seen, failure)
    if seen.waits:
        before = seen.queue[: seen.queue.index(name)]
        claim = f"Waiting for {listed(before, 1)}." if before else "Next, as soon as the device is free."
        return Verdict("plain", claim, "")
    if seen.status.hanging:
        silent = f"No sign of life for {duration(seen.status.silent_seconds)}."
        limit = seen.settings.stall_timeout if seen.settings else 0
        end = f" After {limit:g} minutes, the run ends and writes them to disk." if limit else ""
        return Verdict("bad", silent, f"Its stacks show where it is stuck.{end}", seen.action("stacks"))
    if state is State.NEW:
        return Verdict("plain", "Not started yet.", "Start it to put it into the queue.", seen.action("go on"))
    if state is State.PAUSED:
        freed = "Its device is free until it resumes where it stopped."
        return Verdict("plain", f"Paused at step {seen.step:,}.", freed, seen.action("sample"))
    if state is State.STOPPED and seen.outcome and (stop := record(seen.run.folder)) and seen.lora:
        claim = f"Stopped at its best point, step {stop['step']:,}."
        rest = "Its LoRA is ready. Started again, it trains the remaining steps as if it had never stopped."
        return Verdict("good", claim, rest, seen.action("sample"))
    if state is State.STOPPED and seen.outcome:
        return Verdict("plain", f"Stopped at step {seen.step:,}.", seen.outcome.text, seen.action("go on"))
    if seen.diagnosis:
        claim, evidence = _split(seen.diagnosis)
        return Verdict(seen.diagnosis.tone, claim, evidence, _remedy(seen, seen.diagnosis))
    if seen.outcome:
        return Verdict("good", "Finished.", seen.outcome.text, seen.action("sample"))
    if state in (State.STARTING, State.RUNNING):
        return Verdict("plain", "Too early to tell.", f"{name} has not completed a step yet.")
    return None


def _failed(seen: RunSnapshot, found: Failure) -> Verdict:
    at = f" at step {seen.step:,}" if seen.step else ""
    hints = [action.hint for action in found.actions if action.hint]
    until = [seen.diagnosis.sentence] if seen.diagnosis else []
    message = found.message and f"{found.message[0].upper()}{found.message[1:].rstrip('.')}."
    evidence = " ".join(filter(None, (message, found.facts, found.saved, found.advice, *hints, *until)))
    action = next((one for one in found.actions if not one.hint), None)
    return Verdict("bad", f"{found.cause}{at}.", evidence, action)


def _split(found: Diagnosis) -> tuple[str, str]:
    """Split a diagnosis into a short claim, and the evidence with the advice."""
    head, colon, rest = found.sentence.partition(": ")
    if colon and len(head) <= 60:
        claim, evidence = f"{head}.", rest[:1].upper() + rest[1:]
    elif len(found.sentence) <= 60:
        claim, evidence = found.sentence, ""
    else:
        claim, evidence = f"{found.claim}.", found.sentence
    return claim, f"{evidence} {found.advice}".strip()


def _remedy(seen: RunSnapshot, found: Diagnosis) -> Action | None:
    """Turn the diagnosis's remedy into an action, with the time it takes if known."""
    remedy, name = found.remedy, seen.name
    if remedy is None:
        return seen.action("sample")
    if remedy.kind == "stop at best":
        return Action("stop at best", remedy.label, f"workbench runs stop {name} --best-point")
    if remedy.kind == "sample":
        newest = remedy.step in (None, max(seen.saved, default=None))
        lora = name if seen.lora and newest else f"runs/{name}@{remedy.step}"
        return Action("sample", remedy.label, f"workbench sample --lora {lora}", step=remedy.step)
    flags = as_flags(remedy.settings)
    if remedy.kind == "new run":
        return Action("new run", remedy.label, f"workbench train --clone {name}{flags}", remedy.settings)
    assert remedy.step is not None
    seconds = (remedy.settings.get("steps", 0) - remedy.step) * float(seen.curves.last.get("seconds") or 0.0)
    label = remedy.label + (f" · {duration(seconds)}" if seconds > 0 else "")
    return Action("fork", label, f"workbench train --fork {name}@{remedy.step}{flags}", remedy.settings, remedy.step)


def perform_named(workspace: Workspace, seen: RunSnapshot, kind: str, label: str = "") -> Run | TrainSettings | str:
    """Perform an offered action of a kind, with that label if several have that kind.

    Returns:
        The run to show from then on, settings for the form of a new run, or a sentence.

    Raises NotNow if it is no longer offered, ConfigError if it needs more than the run (`sample` ...), CannotWrite.
    """
    verdict = verdict_of(seen)
    offered = [verdict.action] if verdict and verdict.action else []
    offered += [*(seen.failure.actions if seen.failure else ()), *seen.actions]
    found = next((one for one in offered if one.kind == kind and label in ("", one.label)), None)
    if found is None:
        raise NotNow(f"{seen.name} is now {seen.headline}, so this is no longer offered: look at the run again")
    run = seen.run
    if found.kind in ("go on", "from start"):
        run.start(from_start=found.kind == "from start")
        return run
    if found.kind == "new run":
        return run.settings.changed(**found.settings)
    if found.kind == "fork" and found.step is not None:
        fork = run.fork(workspace, found.step, run.settings.changed(**found.settings))
        fork.start()
        return fork
    commands: dict[str, tuple[Callable[[], object], str]] = {
        "pause": (run.pause, "The run pauses after this step, so that you can sample in the meantime."),
        "resume": (run.resume, "The run resumes."),
        "stop": (run.stop, "The run finishes its step, saves and ends."),
        "stop at best": (
            lambda: run.stop(best_point=True),
            "The run saves, exports the LoRA of its best point, and ends.",
        ),
        "kill": (lambda: run.stop(grace=0.0), "The run was ended."),
        "save": (run.save, "A checkpoint will be saved after this step."),
        "decode": (run.decode_previews, "The previews are being decoded in the background and will appear one by one."),
    }
    if found.kind in commands:
        perform, sentence = commands[found.kind]
        perform()
        return sentence
    raise ConfigError(f"{found.label}: {found.hint or 'this needs more than the run'}")
