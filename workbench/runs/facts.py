"""What is known of a run at a moment, as short texts: what it does, its numbers, and notes a person should read.

Every face shows these facts in this order. Not covered: collecting what they are made of (snapshot), charts (charts).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench.jobs import State, Status
from workbench.jobs.devices import Load
from workbench.quantities import duration, loss_text, moment
from workbench.runs.analysis.curves import Curves
from workbench.runs.analysis.diagnosis import Diagnosis
from workbench.runs.failures import fallback_record, fallback_sentence
from workbench.runs.metrics import RunSession, training_seconds
from workbench.runs.settings import TrainSettings
from workbench.states import Tone


@dataclass(frozen=True)
class Fact:
    """A number or a short text with its name. `key` identifies it for programs."""

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
    """A sentence that a person should read."""

    text: str
    tone: Tone = "plain"


def activity(status: Status) -> str:
    """What the run does now: phase and step in words."""
    words = {
        State.NEW: ["not started yet"],
        State.STARTING: ["loading"],
        State.FINISHED: [f"{status.total} steps done" if status.total else "done"],
    }.get(status.state)
    if words is None:
        words = [status.phase or "starting"] if status.state.alive else []
        words += [f"{status.step} of {status.total}"] if status.total else []
    if status.state is State.STOPPING:
        words.append("finishes its step, saves, and ends")
    if status.state is State.PAUSED:
        words.append("waits until it is resumed; you can sample meanwhile")
    if status.state.alive and status.message:
        words.append(status.message)
    return " · ".join(words)


def time_limit_of(status: Status, sessions: list[RunSession]) -> float | None:
    """When the time limit of a living run ends it (Unix time); None without one, and before it is ready to train."""
    ready = status.state.alive and bool(sessions) and sessions[-1].time >= (status.started_at or 0.0)
    return sessions[-1].stops_at if ready else None


def time_left(status: Status, stops_at: float | None = None) -> str:
    """The estimate of a running run; "" of any other, and while there is none. stops_at: its time limit"""
    if status.state is not State.RUNNING or status.seconds_left is None:
        return ""
    limit = math.inf if stops_at is None else max(0.0, stops_at - time.time())
    if limit < status.seconds_left:
        return f"about {duration(limit)} until its time limit"
    return f"about {duration(status.seconds_left)} left"


def time_limit_fact(status: Status, stops_at: float) -> Fact:
    """When the limit ends the run, and near which step; that its last step comes before, where it does."""
    seconds, steps = status.seconds_left, status.total - status.step
    if not seconds or steps <= 0 or status.state is not State.RUNNING:
        return Fact("stops_at", "stops at the latest", moment(stops_at))
    limit = max(0.0, stops_at - time.time())
    if seconds <= limit:
        return Fact("stops_at", "time limit", f"{moment(stops_at)}, after its last step")
    reached = status.step + int(steps * limit / seconds)
    return Fact("stops_at", "stops at its time limit", f"{moment(stops_at)}, near step {reached:,} of {status.total:,}")


def metric_facts(curves: Curves, diagnosis: Diagnosis | None = None) -> Iterator[Fact]:
    """The newest numbers of the metrics."""
    held_out, last = curves.held_out, curves.last
    if curves.smoothed is not None:
        yield Fact("loss", "loss, smoothed", loss_text(curves.smoothed))
    if held_out:
        first, newest = held_out[min(held_out)], held_out[max(held_out)]
        value = f"{loss_text(first)} → {loss_text(newest)}" if len(held_out) > 1 else loss_text(newest)
        yield Fact("held_out_loss", "held-out loss", value)
    if len(held_out) > 1:
        best = min(held_out, key=lambda step: held_out[step])
        yield Fact("lowest_held_out_loss", "lowest held-out loss", f"{loss_text(held_out[best])} at step {best}")
    if curves.changes:
        own, others = list(curves.changes.values())[-1]
        drifts = diagnosis is not None and diagnosis.kind == "prior drift"
        yield Fact("change", "change on its own captions", f"{own:.1%}")
        share = f" ({others / own:.2f} of it)" if own else ""
        yield Fact("prior_drift", "prior drift", f"{others:.1%}{share}", tone="bad" if drifts else "plain")
    if (effect := curves.effect) is not None:
        yield Fact("visible_effect", "visible effect", effect.words, tone="bad" if effect.spoiled else "plain")
    if "lr" in last:
        yield Fact("learning_rate", "learning rate", f"{last['lr']:.2e}")
    if last.get("seconds"):
        yield Fact("step_seconds", "time per step", f"{last['seconds']:.2f}", "s")
    if last.get("memory_gb"):
        yield Fact("memory", "memory", f"{last['memory_gb']:.1f}", "GB")


def time_facts(run: Path, status: Status, sessions: list[RunSession]) -> Iterator[Fact]:
    """How long it trained, when it stops or has ended."""
    if sessions:
        yield Fact("training_time", "training time", duration(training_seconds(run, sessions)))
    if (stops_at := time_limit_of(status, sessions)) is not None:
        yield time_limit_fact(status, stops_at)
    if not status.state.alive and status.ended_at:
        yield Fact("ended", "ended", moment(status.ended_at))


def load_fact(device: str, load: Load) -> Fact:
    """How busy the machine's device is."""
    what = "processor" if device.startswith("processor") else "GPU"
    busy = "" if load.utilisation is None else f"{load.utilisation:.0f} %"
    memory = "" if load.memory_used_gb is None else f"{load.memory_used_gb:.1f} of "
    return Fact("load", f"{what} load", ", ".join(filter(None, [busy, f"{memory}{load.memory_total_gb:.0f}"])), "GB")


def notes(
    run: Path, status: Status, settings: TrainSettings | None, parent: dict[str, Any], sessions: list[RunSession]
) -> Iterator[Note]:
    """What happened that a person would not expect: silence, a fork's changes, less memory, a damaged checkpoint."""
    if status.hanging:
        limit = settings.stall_timeout if settings else 0
        end = f" After {limit:g} minutes of silence it ends itself and writes down where it stood." if limit else ""
        yield Note(f"No sign of life for {duration(status.silent_seconds)}: look at its stacks.{end}", "bad")
    if parent:
        changed = "; ".join(f"{name} {old} → {new}" for name, (old, new) in parent.get("changed", {}).items())
        text = f"Goes on from step {parent.get('step')} of {parent.get('run')}"
        yield Note(" ".join([text + (f", with {changed}." if changed else "."), *parent.get("dropped", [])]))
    if text := fallback_sentence(fallback_record(run)):
        yield Note(text)
    if sessions and sessions[-1].note:
        yield Note(sessions[-1].note)
