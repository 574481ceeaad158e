"""Which checkpoints of a run are kept: the last ones, those of every so many steps, the best one, the starred ones.

    stars.json      {"checkpoints": [steps that a person wants to keep]}
    best.json       {"step", "why", "time"}: the one that a person found best by looking

Only whole checkpoints count as the last ones: a damaged one among them is set aside, so that the newest whole one is
never removed, whatever the rules say. What will go can be asked before it goes. Going is renaming, then deleting: one
killed in between leaves no half checkpoint, and the next one sweeps up. Not covered: writing them (checkpoints).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench import jobs
from workbench.errors import ConfigError
from workbench.jobs import processes
from workbench.operating_system import system
from workbench.runs import checkpoints
from workbench.runs.analysis.best_checkpoint import best_step
from workbench.runs.analysis.visible_effect import VisibleEffect, from_line
from workbench.runs.metrics import METRICS, parse_lines
from workbench.workspace import read_json, read_to_change, write_json, writing

STARS, CHOSEN = "stars.json", "best.json"
PUBLISHED = "published.json"  # in a checkpoint that is on the Hub


@dataclass(frozen=True)
class Doomed:
    """A checkpoint that will go."""

    step: int
    bytes: int


def starred(run: Path) -> list[int]:
    """Steps whose checkpoints a person wants to keep, oldest first."""
    if not (run / STARS).exists():
        return []
    with contextlib.suppress(ConfigError, TypeError, KeyError, ValueError, OverflowError):
        return sorted({int(step) for step in read_json(run / STARS)["checkpoints"]})
    return []


def star(run: Path, step: int) -> None:
    """Keep a step's checkpoint for good. Raises ConfigError when there is none, CannotWrite."""
    if step not in checkpoints.steps(run):
        raise ConfigError(f"{run.name} has no checkpoint of step {step}: choose one of {checkpoints.steps(run)}")
    with jobs.locked(run / ".stars.lock"):
        check_stars(run)
        write_json(run / STARS, {"checkpoints": sorted({*starred(run), step})})


def unstar(run: Path, step: int) -> None:
    """Let a step's checkpoint go with the others. Raises CannotWrite."""
    with jobs.locked(run / ".stars.lock"):
        check_stars(run)
        write_json(run / STARS, {"checkpoints": [other for other in starred(run) if other != step]})


def check_stars(run: Path) -> None:
    """Raises ConfigError where it cannot be read which checkpoints are starred."""
    try:
        if any(not isinstance(step, int) for step in read_to_change(run / STARS).get("checkpoints", ())):
            raise TypeError("checkpoints has something that is no step")
    except TypeError as error:
        raise ConfigError(f"{run / STARS} is damaged ({error}): fix or remove it") from error


def choose_best(run: Path, step: int, why: str) -> None:
    """Note which checkpoint a person found best, and keep it for good. Raises ConfigError when there is none of it."""
    star(run, step)
    write_json(run / CHOSEN, {"step": step, "why": why, "time": time.time()})


def chosen_best(run: Path) -> dict[str, Any]:
    """{"step", "why", "time"} of the checkpoint that a person found best; {} where nobody chose."""
    with contextlib.suppress(ConfigError, TypeError, KeyError, ValueError, OverflowError):
        if (run / CHOSEN).exists() and int((found := read_json(run / CHOSEN))["step"]) in checkpoints.steps(run):
            return {"step": int(found["step"]), "why": str(found.get("why", "")), "time": found.get("time")}
    return {}


def best(run: Path) -> int | None:
    """The best checkpoint (`best_checkpoint.best_step`); None while nothing was measured."""
    saved, path = checkpoints.steps(run), run / METRICS
    if not saved or not path.is_file():
        return None
    held_out, effects = dict[int, float](), dict[int, VisibleEffect]()
    with path.open("rb") as lines:
        for line in lines:
            if b'"held_out_loss"' not in line and b'"preview_changes"' not in line:
                continue  # few lines are measurements, and a long run has a million others
            for measured in parse_lines(line):
                if "held_out_loss" in measured:
                    held_out[measured["step"]] = measured["held_out_loss"]
                if (effect := from_line(measured)) is not None:
                    effects[measured["step"]] = effect
    return best_step(held_out, saved, effects)


def doomed(run: Path, keep: int, keep_every: int = 0, coming: int | None = None) -> list[Doomed]:
    """What the rules would remove now, oldest first; with `coming`, once the checkpoint of that step is written.

    keep: how many of the newest whole ones stay; keep_every: so do the multiples of this many steps, 0 is none. With
    `coming` it is a forecast, which reads no checkpoint to see whether it is whole.
    """
    if coming is None:
        last, damaged = _last(run, keep)
        return _going(run, {*last, *damaged}, keep_every)
    steps = sorted({*checkpoints.steps(run), coming})
    return _going(run, set(steps[-max(1, keep) :]), keep_every)


def retire(
    run: Path, keep: int, keep_every: int = 0, written: int | None = None, only: Collection[int] | None = None
) -> list[Doomed]:
    """Set damaged checkpoints among the last ones aside, and remove what the rules let go; returns what went.

    written: the step that has just been saved, which stays; None: a person frees space. only: of these steps alone,
    which a person was shown. Raises CannotWrite.
    """
    last, damaged = _last(run, keep)
    going = _going(run, {*last, *damaged, *([] if written is None else [written])}, keep_every)
    for step in damaged:
        checkpoints.set_aside(run, step)
    gone = []
    for one in (one for one in going if only is None or one.step in only):
        target = run / checkpoints.FOLDER / f".del-{one.step}-{os.getpid()}"
        with writing(target), contextlib.suppress(FileNotFoundError):  # another may have been faster
            if target.exists():
                shutil.rmtree(target)
            system.replace(checkpoints.folder_of(run, one.step), target)
            gone.append(one)
    sweep(run)
    return gone


def _last(run: Path, keep: int) -> tuple[list[int], list[int]]:
    """The newest whole checkpoints, so many of them, and the damaged ones that came before them in the search."""
    whole, damaged = list[int](), list[int]()
    for step in reversed(checkpoints.steps(run)):
        (whole if checkpoints.verified(checkpoints.folder_of(run, step)) else damaged).append(step)
        if len(whole) == max(1, keep):
            break
    return whole, damaged


def _going(run: Path, last: set[int], keep_every: int) -> list[Doomed]:
    """All but the last ones, and what a rule or a person keeps."""
    steps = checkpoints.steps(run)
    try:
        check_stars(run)
    except ConfigError:  # any of them may be starred
        return []
    kept = {*last, *starred(run), best(run), chosen_best(run).get("step")}
    kept |= {step for step in steps if (checkpoints.folder_of(run, step) / PUBLISHED).exists()}
    if keep_every:
        kept |= {step for step in steps if step % keep_every == 0}
    folders = {step: checkpoints.folder_of(run, step) for step in steps if step not in kept}
    return [Doomed(step, checkpoints.bytes_of(folder)) for step, folder in folders.items()]


def sweep(run: Path) -> None:
    """Delete what was on its way out, and what killed processes left half written."""
    folder = run / checkpoints.FOLDER
    for left_over in folder.glob(".del-*"):
        shutil.rmtree(left_over, ignore_errors=True)
    for left_over in folder.glob(".tmp-*"):
        owner = left_over.name.rpartition("-")[2]
        if owner == str(os.getpid()) or not owner.isdecimal() or processes.start_time(int(owner)) is None:
            shutil.rmtree(left_over, ignore_errors=True)
