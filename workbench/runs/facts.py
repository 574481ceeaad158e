"""What is known of a run at a moment, as short texts: what it does, its numbers, and notes a person should read.

Every face shows these facts in this order. Not covered: collecting what they are made of (snapshot), charts (charts).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from workbench.jobs import State, Status, duration
from workbench.jobs.devices import Load
from workbench.runs import oom_fallback
from workbench.runs.analysis.curves import Curves
from workbench.runs.analysis.diagnosis import Diagnosis
from workbench.runs.sessions import RunSession, seconds_used
from workbench.runs.settings import TrainSettings

Tone = Literal["plain", "going", "idle", "good", "bad"]
TONES: dict[State, Tone] = {
    State.STARTING: "going",
    State.RUNNING: "going",
    State.FINISHED: "good",
    State.FAILED: "bad",
    State.DIED: "bad",
}  # of all other states: idle


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
        words.append("waits until it is resumed; meanwhile its GPU is free for sampling")
    if status.state.alive and status.message:
        words.append(status.message)
    return " · ".join(words)


def time_left(status: Status) -> str:
    """The estimate of a running run; "" of any other, and while there is none."""
    if status.state is not State.RUNNING or status.seconds_left is None:
        return ""
    return f"about {duration(status.seconds_left)} left"


def metric_facts(curves: Curves, diagnosis: Diagnosis | None = None) -> Iterator[Fact]:
    """The newest numbers of the metrics."""
    held_out, last = curves.held_out, curves.last
    if curves.smoothed is not None:
        yield Fact("loss", "loss, smoothed", f"{curves.smoothed:.4f}")
    if held_out:
        first, newest = held_out[min(held_out)], held_out[max(held_out)]
        value = f"{first:.4f} → {newest:.4f}" if len(held_out) > 1 else f"{newest:.4f}"
        yield Fact("held_out_loss", "held-out loss", value)
    if len(held_out) > 1:
        best = min(held_out, key=lambda step: held_out[step])
        yield Fact("lowest_held_out_loss", "lowest held-out loss", f"{held_out[best]:.4f} at step {best}")
    if curves.changes:
        own, others = list(curves.changes.values())[-1]
        drifts = diagnosis is not None and diagnosis.kind == "prior drift"
        yield Fact("change", "change on its own captions", f"{own:.1%}")
        share = f" ({others / own:.2f} of it)" if own else ""
        yield Fact("prior_drift", "prior drift", f"{others:.1%}{share}", tone="bad" if drifts else "plain")
    if "lr" in last:
        yield Fact("learning_rate", "learning rate", f"{last['lr']:.2e}")
    if last.get("seconds"):
        yield Fact("step_seconds", "time per step", f"{last['seconds']:.2f}", "s")
    if last.get("memory_gb"):
        yield Fact("memory", "memory", f"{last['memory_gb']:.1f}", "GB")


def time_facts(
    run: Path, status: Status, settings: TrainSettings | None, sessions: list[RunSession], waiting: bool
) -> Iterator[Fact]:
    """How long it worked, when it stops or has ended."""
    if sessions and not waiting:
        yield Fact("time_used", "time used", duration(seconds_used(run, sessions)))
    limit = settings.time_limit if settings else None
    ready = bool(sessions) and sessions[-1].time >= (status.started_at or 0.0)
    if status.state.alive and limit is not None and ready:
        yield Fact("stops_at", "stops at", moment(sessions[-1].time + 60 * limit))
    if not status.state.alive and status.ended_at:
        yield Fact("ended", "ended", moment(status.ended_at))


def load_fact(device: str, load: Load) -> Fact:
    """How busy the machine's device is."""
    what = "processor" if device.startswith("processor") else "GPU"
    value = f"{load.utilisation:.0f} %, {load.memory_used_gb:.1f} of {load.memory_total_gb:.0f}"
    return Fact("load", f"{what} load", value, "GB")


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
    if text := oom_fallback.sentence(oom_fallback.record(run)):
        yield Note(text)
    if sessions and sessions[-1].note:
        yield Note(sessions[-1].note)


def moment(seconds: float) -> str:
    """A time of day with its date."""
    return time.strftime("%d %b, %H:%M", time.localtime(seconds))
