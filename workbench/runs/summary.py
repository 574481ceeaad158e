"""A run in one line of a list: step, loss, held-out loss, diagnosis. Kept beside its metrics until they change.

    runs/NAME/.summary.json     {version, mark, step, loss, held_out, diagnosis}; may be removed at any time

Reading the metrics of a thousand runs takes many seconds, and nearly all of them ended long ago. Not covered: the state
of a run (jobs), its curves (curves).
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass
from typing import Any

from workbench.errors import CannotWrite
from workbench.operating_system import system
from workbench.runs.analysis.curves import curves_of
from workbench.runs.analysis.diagnosis import diagnose
from workbench.runs.metrics import METRICS
from workbench.runs.run import Run
from workbench.workspace import read_object, writing

KEPT = ".summary.json"
VERSION = 5  # rises with any change of what is found


@dataclass(frozen=True)
class RunSummary:
    """step: the last one done;  loss: smoothed, None before the first step
    held_out: the first and the last measurement, () without one;  diagnosis: its kind, "" before the first step
    """

    step: int = 0
    loss: float | None = None
    held_out: tuple[float, ...] = ()
    diagnosis: str = ""


def summary_of(run: Run, ended: bool = False) -> RunSummary:
    """The run as it is now. A folder that cannot be written is read anew each time. ended: whether the run has"""
    kept, mark = read_object(run.folder / KEPT), [*_mark(run), ended]
    if kept.get("version") == VERSION and kept.get("mark") == mark:
        with contextlib.suppress(KeyError, TypeError, ValueError, OverflowError):
            loss = None if kept["loss"] is None else float(kept["loss"])
            held_out = tuple(map(float, kept["held_out"]))
            return RunSummary(int(kept["step"]), loss, held_out, str(kept["diagnosis"]))
    found = _read(run, ended)
    record = {"version": VERSION, "mark": mark, **found.__dict__}
    temporary = run.folder / f"{KEPT}.{os.getpid()}.tmp"
    with contextlib.suppress(CannotWrite), writing(temporary):  # no fsync: it is made anew where it is gone
        temporary.write_text(json.dumps(record), encoding="utf-8")
        try:
            system.replace(temporary, run.folder / KEPT)
        finally:
            temporary.unlink(missing_ok=True)
    return found


def _mark(run: Run) -> list[Any]:
    """Changes whenever what is found does."""
    try:
        stat = (run.folder / METRICS).stat()
    except OSError:
        return [0, 0, run.checkpoints]
    return [stat.st_size, stat.st_mtime_ns, run.checkpoints]


def _read(run: Run, ended: bool) -> RunSummary:
    curves = curves_of(run)
    held_out = list(curves.held_out.values())
    return RunSummary(
        step=curves.last.get("step", 0),
        loss=curves.smoothed,
        held_out=(held_out[0], held_out[-1]) if held_out else (),
        diagnosis=diagnose(curves, run.checkpoints, ended).kind if curves.last else "",
    )
