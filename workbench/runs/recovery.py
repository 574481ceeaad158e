"""Which checkpoint a start goes on from, and when it asks before it begins at step 0 again.

    checkpoints/.damaged-step-00000250/     a checkpoint that does not match its manifest: kept, but no longer counted

A damaged checkpoint that is newer than the one a run goes on from is set aside, so that it neither counts nor stands in
the way of the same step. A run that has made steps and of which no checkpoint is whole is refused, and nothing of it is
touched, until somebody says that it may begin again. No torch. Not covered: which checkpoints are kept (retention).
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from workbench.errors import ResumeRefused
from workbench.runs import checkpoints
from workbench.runs.forks import PARENT
from workbench.runs.metrics import METRICS, MetricsReader
from workbench.workspace import writing

FROM_START = "WORKBENCH_FROM_START"  # in the environment of a run that may begin at step 0 again
NOTHING_WHOLE = "has no whole checkpoint"  # in the sentence of every refusal, for runs.failures


@dataclass(frozen=True)
class Beginning:
    """Where a start begins: a checkpoint, or step 0; note: what a person should know of it, "" if nothing."""

    checkpoint: tuple[int, Path] | None = None
    note: str = ""


def beginning(run: Path, from_start: bool = False) -> Beginning:
    """Find the newest whole checkpoint and set the damaged ones above it aside.

    from_start: begin at step 0 where there is none, and forget the curve. Raises ResumeRefused, CannotWrite.
    """
    found, damaged = _look(run)
    check(run, from_start)
    names = {step: checkpoints.set_aside(run, step) for step in damaged}
    if found is not None:
        reason = ", ".join(f"{name} ({damaged[step]})" for step, name in names.items())
        note = f"damaged and set aside: {reason}; the run goes on from step {found}" if reason else ""
        return Beginning((found, checkpoints.folder_of(run, found)), note)
    if not damaged and not _last_step(run):
        return Beginning()
    with writing(run / METRICS):
        (run / METRICS).unlink(missing_ok=True)
    return Beginning(note="began at step 0 again, as requested")


def check(run: Path, from_start: bool = False) -> None:
    """Refuse a start that would begin at step 0 again unasked; changes nothing. Raises ResumeRefused."""
    found, damaged = _look(run)
    if found is not None:
        return
    made = _last_step(run)
    if not (damaged or made):
        return
    why = (
        "; ".join(f"step {step}: {reason}" for step, reason in damaged.items())
        or "none was written, or all were removed"
    )
    if (run / PARENT).exists():
        raise ResumeRefused(f"{run.name} {NOTHING_WHOLE} to go on from ({why}): fork its parent again")
    if not from_start:
        raise ResumeRefused(
            f"{run.name} {NOTHING_WHOLE} to go on from ({why}), and starting it would begin at step 0 again, without "
            f"the curve up to step {made}: put a whole one back, or begin again with workbench runs start {run.name} "
            f"--from-start"
        )


def from_start_requested() -> bool:
    """Whether this process was started to begin at step 0 again, if it has to."""
    return os.environ.get(FROM_START) == "1"


def _look(run: Path) -> tuple[int | None, dict[int, str]]:
    """The newest whole checkpoint's step, and what is wrong with each above it."""
    damaged = dict[int, str]()
    for step in reversed(checkpoints.steps(run)):
        if not (reason := checkpoints.damage(checkpoints.folder_of(run, step))):
            return step, damaged
        damaged[step] = reason
    return None, damaged


def _last_step(run: Path) -> int:
    return max((int(line["step"]) for line in MetricsReader(run).lines()), default=0)
