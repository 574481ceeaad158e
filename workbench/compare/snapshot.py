"""A grid at one moment as plain data, which the page, the exported page, the shell, JSON and notebooks render.

A finished cell has url, measurements and details; a pending one has step, total and preview.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from workbench.clips.frame_plan import shape_for
from workbench.compare import measurements
from workbench.compare.grid import Cell, CellState, Grid, GridState, tallies
from workbench.display.quantities import duration
from workbench.errors import ConfigError
from workbench.sampler.samples import Sample, shareable
from workbench.sampler.settings import SampleSettings
from workbench.sampler.view import loras_used, title_of, width_of
from workbench.settings import specs

FEWEST, MOST = 2, 4
LETTERS = 48  # of a prompt to show above its video
WATCHED = ("grid.json", "marks.json", "measurements.json", "requests.json", "cells", "export")


def snapshot(
    grid: Grid, state: GridState | None = None, url: Callable[[Path], str] = str, details: bool = False
) -> dict[str, Any]:
    """Return the grid as JSON values.

    Args:
        url: Maps a file to its address, by default its path.
        details: Include the settings of the videos.

    Raises ConfigError.
    """
    state, marked = state or grid.state(), grid.marked
    return {
        "grid": grid.name,
        "title": state.title,
        "run": grid.settings.run,
        "fixed": list(state.plan.fixed),
        "rows": [{"prompt": row.prompt, "label": row.label} for row in state.rows],
        "columns": [
            {
                "name": column.name,
                "labels": list(column.labels),
                "reference": column.reference,
                "base": column.base,
                "checkpoint": column.step is not None or column.final,
                "won": tally.won,
                "votes": tally.votes,
                "confidence": tally.confidence,
                "stars": sum(cells[index].starred for cells in state.cells),
                "rejects": sum(cells[index].rejected for cells in state.cells),
            }
            for index, (column, tally) in enumerate(zip(state.columns, tallies(state.plan, marked.votes), strict=True))
        ],
        "heads": _heads(state),
        "best": marked.best,
        "votes": [[vote["left"], vote["right"]] for vote in marked.votes],
        "cells": [
            [_cell(cell, state, column, url, details) for column, cell in enumerate(cells)] for cells in state.cells
        ],
        "help": measurements.HELP,
        "progress": _progress(state),
        **_shape(grid.base),
    }


class GridReader:
    """Reads a grid repeatedly; once nothing is pending, only after its files have changed."""

    def __init__(self, grid: Grid, keep_going: bool = False) -> None:
        """With `keep_going`, reading also maintains the grid's requests and measurements."""
        self.grid, self._keep_going = grid, keep_going
        self._version: tuple[int, ...] = ()
        self._value: dict[str, Any] = {}

    def read(self) -> dict[str, Any]:
        """Return the grid's snapshot. Raises ConfigError."""
        paths = [self.grid.folder / name for name in WATCHED]
        version = tuple(path.stat().st_mtime_ns if path.exists() else 0 for path in paths)
        if not self._value or version != self._version:
            state = self.grid.state()
            if self._keep_going:
                self.grid.maintain(state)
            self._value = snapshot(self.grid, state)
            self._version = () if state.going or not state.measured else version
        return self._value


def details_of(settings: SampleSettings, record: dict[str, Any]) -> list[list[str]]:
    """Return a video's settings that differ from the defaults, as rows of title and value."""
    usual = SampleSettings().model_dump(mode="json")
    rows = []
    for spec in specs(SampleSettings):
        value = getattr(settings, spec.name)
        if value is None:
            value = record.get(spec.name)
        if value in (None, "", ()) or (value == usual[spec.name] and spec.name not in ("model", "seed", "scheduler")):
            continue
        if spec.name == "scheduler":
            value = record.get("scheduler", value)
        if isinstance(value, tuple):
            # The end of a LoRA's path names the run and the step.
            parts = 4 if spec.name == "loras" else 1
            value = ", ".join("/".join(text.replace("\\", "/").split("/")[-parts:]) for text in value)
        if isinstance(value, str):
            value = shareable({spec.name: value}, None)[spec.name]  # without this machine's paths
        rows.append([spec.title, f"{value:g}" if isinstance(value, float) else str(value)])
    if record.get("seconds"):
        rows.append(["Generated in", duration(float(record["seconds"]))])
    if record.get("device"):
        rows.append(["Device", str(record["device"])])
    return rows


def _heads(state: GridState) -> list[list[dict[str, Any]]]:
    """Return the header lines above the columns; equal neighbors in the outer line share a header."""
    by_line = list(zip(*(column.labels for column in state.columns), strict=True))
    lines: list[list[dict[str, Any]]] = []
    for labels in by_line:
        line: list[dict[str, Any]] = []
        for text in labels:
            if labels is not by_line[-1] and line and line[-1]["text"] == text:
                line[-1]["span"] += 1
            else:
                line.append({"text": text, "span": 1})
        lines.append(line)
    return lines


def _cell(cell: Cell, state: GridState, column: int, url: Callable[[Path], str], details: bool) -> dict[str, Any]:
    made: dict[str, Any] = {
        "key": cell.key,
        "state": str(cell.state),
        "starred": cell.starred,
        "rejected": cell.rejected,
        "message": cell.message,
        "outdated": cell.outdated,
    }
    if cell.video:
        reference = state.columns[state.columns[column].reference]
        name = "base model" if reference.base else reference.name
        found = measurements.describe(cell.measurements, name)
        made |= {"url": url(cell.video), "measurements": [asdict(one) for one in found]}
        made |= {"details": details_of(cell.settings, cell.record)} if details else {}
    elif cell.state.pending:
        made |= {"step": cell.step, "total": cell.total}
        made |= {"preview": f"{url(cell.preview)}?{cell.step}"} if cell.preview else {}
    return made


def _progress(state: GridState) -> dict[str, Any]:
    every, done = len(state.all), state.count(CellState.DONE)
    failed, missing = state.count(CellState.FAILED), state.count(CellState.MISSING)
    outdated = sum(cell.outdated for cell in state.all)
    parts = [f"{every} videos" if state.complete else f"{done} of {every} videos"]
    if state.going and state.seconds_left is not None:
        parts.append(f"about {duration(state.seconds_left)} left")
    elif state.going:
        parts.append("the time left will be known after the first one")
    if failed:
        parts.append(f"{failed} failed")
    if missing and not state.going:
        parts.append(f"{missing} not generated")
    if outdated:
        parts.append(f"{outdated} generated with an older LoRA file")
    text = " · ".join(parts)
    return {"text": text, "all": every, "done": done, "going": state.going, "open": failed + missing + outdated}


def _shape(base: SampleSettings) -> dict[str, Any]:
    try:
        shape = shape_for(base.resolved.model, base.frames, base.height, base.width)
    except ConfigError:
        return {"fps": base.fps or 8, "frames": 1, "width": base.width or 64, "height": base.height or 64}
    return {"fps": base.fps or shape.fps, "frames": shape.frames, "width": shape.width, "height": shape.height}


# ---- chosen samples side by side ------------------------------------------------------------------------------------


def side_by_side(samples: Sequence[Sample], url: Callable[[Path], str]) -> dict[str, Any]:
    """Return samples in the form of a grid with one row, for the grid's player.

    Args:
        samples: FEWEST to MOST samples, a column each.
        url: Maps a file to its address.

    Raises:
        ConfigError: For fewer or more samples.
    """
    if not FEWEST <= len(samples) <= MOST:
        raise ConfigError(f"{len(samples)} samples are chosen, must be {FEWEST} to {MOST} for a comparison")
    names, same = _names(samples), len({one.settings.prompt for one in samples}) == 1
    record = samples[0].record
    return {
        "grid": " ".join(one.id for one in samples),
        "title": "Side by side",
        "reference": "the first",
        "run": "",
        "fixed": [],
        "rows": [{"prompt": title_of(samples[0]) if same else "Played in sync", "label": ""}],
        "columns": [
            {
                **{"name": " · ".join(labels), "labels": labels, "reference": 0, "base": False, "checkpoint": False},
                **{"won": 0, "votes": 0, "confidence": "", "stars": int(one.starred), "rejects": 0},
            }
            for labels, one in zip(names, samples, strict=True)
        ],
        "heads": [[{"text": " · ".join(labels), "span": 1} for labels in names]],
        "best": {},
        "votes": [],
        "cells": [
            [
                {
                    **{"key": one.id, "state": "done", "url": url(one.video), "starred": one.starred},
                    **{"rejected": False, "message": "", "outdated": False, "measurements": []},
                    "details": details_of(one.settings, one.record),
                }
                for one in samples
            ]
        ],
        "help": {},
        "progress": {"text": "", "all": 0, "done": 0, "going": False, "open": 0},
        "fps": max(float(one.record.get("fps") or 8) for one in samples),
        "frames": max(int(one.record.get("frames") or 1) for one in samples),
        "width": width_of(samples[0].settings, record) or 64,
        "height": int(record.get("height") or samples[0].settings.height or 64),
    }


def _names(samples: Sequence[Sample]) -> list[list[str]]:
    """Name samples by what differs of LoRAs, seed, steps, guidance, speed and prompt, or else by their times."""
    aspects: list[list[str]] = [
        [loras_used(one) for one in samples],
        [f"seed {one.record.get('seed', one.settings.seed)}" for one in samples],
        [f"{one.record.get('steps', one.settings.steps)} steps" for one in samples],
        [f"guidance {one.record.get('guidance_scale', one.settings.guidance_scale)}" for one in samples],
        [one.settings.speed for one in samples],
        [text if len(text) <= LETTERS else f"{text[: LETTERS - 1].rstrip()}…" for text in map(title_of, samples)],
    ]
    different = [texts for texts in aspects if len(set(texts)) > 1]
    times = [time.strftime("%d %b, %H:%M:%S", time.localtime(one.created)) for one in samples]
    return [list(texts) for texts in zip(*(different or [times]), strict=True)]
