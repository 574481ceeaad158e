"""The head of a training run: state, progress, the numbers that matter, and how it goes in words. HTML of a snapshot.

Not covered: everything below the head (workbench.ui.train).
"""

from __future__ import annotations

import time

from workbench.jobs import State, Status, duration
from workbench.runs import oom_fallback
from workbench.runs.sessions import last_note, read_starts
from workbench.ui.core import render
from workbench.ui.core.live import Live, Snapshot

KINDS = {
    State.NEW: "idle", State.STARTING: "going", State.RUNNING: "going", State.PAUSED: "idle", State.STOPPING: "idle",
    State.FINISHED: "good", State.STOPPED: "idle", State.FAILED: "bad", State.DIED: "bad",
}  # fmt: skip
GOOD, BAD = ("learning", "levelled off"), ("over-fitting", "getting worse", "leaks")


def empty() -> str:
    return render.note(
        "No run is chosen. Fill in the form on the left and press Start training, or train the demo first.", "empty"
    )


def head(snapshot: Snapshot, live: Live) -> str:
    """Name, state, progress, the numbers that matter."""
    status = snapshot.status
    kind = KINDS[status.state]
    share = status.step / status.total if status.total else None
    if status.state is State.FINISHED:
        share = 1.0
    elif not status.state.alive:
        share = share or 0.0
    waiting = status.name in snapshot.queue
    if waiting:
        kind, share = "idle", 0.0
    badge = render.badge("waiting" if waiting and status.state is not State.STOPPING else status.state, kind)
    title = f"<h2>{render.escaped(status.name)}</h2>{badge}"
    return (
        f'<div class="run-head"><div class="title">{title}'
        f'<span class="left">{render.escaped(_time(status))}</span></div>'
        f"{render.bar(share, kind)}<p>{render.escaped(_doing(status))}</p>{verdict(snapshot)}"
        f"{render.facts(_facts(snapshot, live))}{_parent(snapshot)}{_notes(snapshot)}</div>"
    )


def verdict(snapshot: Snapshot) -> str:
    """How the run goes, in words; nothing before the first measurement."""
    found, curves = snapshot.verdict, snapshot.curves
    if not curves.last and not curves.held_out:
        return ""
    kind = "good" if found.kind in GOOD else "bad" if found.kind in BAD else "plain"
    advice = "" if found.kind == "too early" and not snapshot.status.state.alive else found.advice
    return f'<div class="note verdict {kind}"><b>{render.escaped(found.sentence)}</b> {render.escaped(advice)}</div>'


def _parent(snapshot: Snapshot) -> str:
    """Where a fork began and what it does differently."""
    parent = snapshot.parent
    if not parent:
        return ""
    changed = "; ".join(f"{name} {old} → {new}" for name, (old, new) in parent.get("changed", {}).items())
    said = f"Goes on from step {parent.get('step')} of {parent.get('run')}" + (f", with {changed}." if changed else ".")
    return f'<p class="parent">{render.escaped(" ".join([said, *parent.get("dropped", [])]))}</p>'


def _notes(snapshot: Snapshot) -> str:
    """What was changed when memory ran out, and what the last start found damaged."""
    folder = snapshot.run.folder
    notes = [oom_fallback.sentence(oom_fallback.record(folder)), last_note(folder)]
    return "".join(f'<p class="parent">{render.escaped(said)}</p>' for said in notes if said)


def _time(status: Status) -> str:
    if status.state is State.RUNNING and status.seconds_left is not None:
        return f"about {duration(status.seconds_left)} left"
    if status.state.alive or not (status.started_at and status.ended_at):
        return ""
    return f"took {duration(status.ended_at - status.started_at)}"


def _doing(status: Status) -> str:
    """Phase and step in words."""
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
        words.append("waits until you press Continue; meanwhile its GPU is free for the Sample tab")
    if status.state.alive and status.message:
        words.append(status.message)
    return " · ".join(words)


def _facts(snapshot: Snapshot, live: Live) -> list[tuple[str, str]]:
    curves, status = snapshot.curves, snapshot.status
    pairs = []
    if curves.smoothed is not None:
        pairs.append(("loss, smoothed", f"{curves.smoothed:.4f}"))
    if curves.held_out:
        first, last = curves.held_out[min(curves.held_out)], curves.held_out[max(curves.held_out)]
        pairs.append(("held-out loss", f"{first:.4f} → {last:.4f}" if len(curves.held_out) > 1 else f"{last:.4f}"))
    if "lr" in curves.last:
        pairs.append(("learning rate", f"{curves.last['lr']:.2e}"))
    if curves.last.get("seconds"):
        pairs.append(("a step takes", f"{curves.last['seconds']:.2f} s"))
    if curves.last.get("memory_gb"):
        pairs.append(("memory", f"{curves.last['memory_gb']:.1f} GB"))
    if stops := _stops_at(snapshot):
        pairs.append(("stops at", stops))
    if status.state.alive:
        device, load = live.load()
        what = "processor" if device.startswith("processor") else "GPU"
        pairs.append(
            (f"{what} load", f"{load.utilisation:.0f} %, {load.memory_used_gb:.1f} of {load.memory_total_gb:.0f} GB")
        )
    elif status.ended_at:
        pairs.append(("ended", time.strftime("%d %b, %H:%M", time.localtime(status.ended_at))))
    return pairs


def _stops_at(snapshot: Snapshot) -> str:
    """When the time limit of a living run is up; "" without one, and while it waits for its turn."""
    settings, status = snapshot.settings, snapshot.status
    if settings is None or settings.time_limit is None or not status.state.alive:
        return ""
    starts = read_starts(snapshot.run.folder)
    if not starts or starts[-1].time < (status.started_at or 0.0):
        return ""  # this start is not ready yet
    return time.strftime("%H:%M, %d %b", time.localtime(starts[-1].time + 60 * settings.time_limit))


def hanging(snapshot: Snapshot) -> str:
    """What to think of a run that says nothing; empty for one that does."""
    status = snapshot.status
    if not status.hanging:
        return ""
    limit = snapshot.settings.stall_timeout if snapshot.settings else 0
    ends = f" After {limit:g} minutes of silence it ends itself and says where it stood." if limit else ""
    return render.note(f"No sign of life for {duration(status.silent_seconds)}: look at its stacks.{ends}", "bad")
