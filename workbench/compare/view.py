"""A grid as plain data for the player in a browser (assets/grid.js): on the page and in the exported file.

Not covered: how it is drawn there, how files are reached (`url` is handed in).
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from workbench.clips.frame_plan import shape_for
from workbench.compare import marks, measurements
from workbench.compare.axes import Column
from workbench.compare.grid import Grid
from workbench.compare.state import Cell, CellState, GridState
from workbench.errors import ConfigError
from workbench.families import find_model
from workbench.jobs import duration
from workbench.sampler.embedded import shareable
from workbench.sampler.settings import SampleSettings
from workbench.settings import specs

Url = Callable[[Path], str]


def data(grid: Grid, view: GridState, url: Url) -> dict[str, Any]:
    """What the player shows. Times are seconds; `cells` is [row][column]."""
    marked = grid.marked
    measures = shape(grid.base)
    return {
        "grid": grid.name,
        "title": view.title,
        "run": grid.settings.run,
        "fixed": list(view.plan.fixed),
        "rows": [{"prompt": row.prompt, "label": row.label} for row in view.rows],
        "columns": [_column(column) for column in view.columns],
        "heads": heads(view),
        "tally": _tally(view, marked),
        "best": marked.best,
        "votes": [[vote["left"], vote["right"]] for vote in marked.votes],
        "cells": [
            [_cell(cell, view.columns[place], view, url) for place, cell in enumerate(row)] for row in view.cells
        ],
        "help": measurements.HELP,
        "state": progress(view),
        **measures,
    }


def details(cell: Cell) -> list[list[str]]:
    """A video's settings as name and value, those that say something: what the enlarged view shows."""
    record, plain = cell.record, SampleSettings().model_dump(mode="json")
    rows = []
    for spec in specs(SampleSettings):
        value = getattr(cell.settings, spec.name)
        if value is None:
            value = record.get(spec.name)
        if value in (None, "", ()) or (value == plain[spec.name] and spec.name not in ("model", "seed", "scheduler")):
            continue
        if spec.name == "scheduler":
            value = record.get("scheduler", value)
        if isinstance(value, tuple):
            value = ", ".join(Path(text).name if spec.name != "loras" else _short(text) for text in value)
        if isinstance(value, str):
            value = shareable({spec.name: value}, None)[spec.name]  # a grid is exported, too
        rows.append([spec.title, f"{value:g}" if isinstance(value, float) else str(value)])
    if record.get("seconds"):
        rows.append(["Drawn in", duration(float(record["seconds"]))])
    if record.get("device"):
        rows.append(["Device", str(record["device"])])
    return rows


def _short(lora: str) -> str:
    """A LoRA's file by the end of its path, which says run and step."""
    return "/".join(lora.replace("\\", "/").split("/")[-4:])


def _column(column: Column) -> dict[str, Any]:
    return {
        "name": column.name,
        "reference": column.reference,
        "base": column.base,
        "checkpoint": column.step is not None or column.final,
    }


def heads(view: GridState) -> list[list[dict[str, Any]]]:
    """The lines of the head: of each a list of {text, span}; the outer one joins what is alike side by side."""
    lines = max((len(column.labels) for column in view.columns), default=1)
    lines_of: list[list[dict[str, Any]]] = []
    for line in range(lines):
        cells: list[dict[str, Any]] = []
        for column in view.columns:
            text = column.labels[line]
            if line == 0 and lines > 1 and cells and cells[-1]["text"] == text:
                cells[-1]["span"] += 1
            else:
                cells.append({"text": text, "span": 1})
        lines_of.append(cells)
    return lines_of


def _tally(view: GridState, marked: marks.Marks) -> list[dict[str, Any]]:
    tallies = marks.tallies(view.plan, marked.votes)
    stars = [sum(row[place].starred for row in view.cells) for place in range(len(view.columns))]
    rejects = [sum(row[place].rejected for row in view.cells) for place in range(len(view.columns))]
    return [
        {"won": one.won, "votes": one.votes, "word": one.word, "stars": star, "rejects": reject}
        for one, star, reject in zip(tallies, stars, rejects, strict=True)
    ]


def _cell(cell: Cell, column: Column, view: GridState, url: Url) -> dict[str, Any]:
    reference = view.columns[column.reference]
    made: dict[str, Any] = {
        "key": cell.key,
        "state": str(cell.state),
        "starred": cell.starred,
        "rejected": cell.rejected,
    }
    if cell.video:
        name = "base model" if reference.base else reference.name
        said = measurements.in_words(cell.numbers, name)
        made |= {
            "url": url(cell.video),
            "numbers": [
                {"name": one.name, "title": one.title, "value": one.value, "words": one.words, "warn": one.warn}
                for one in said
            ],
            "outdated": cell.outdated,
        }
    elif cell.state.pending:
        made |= {"step": cell.step, "total": cell.total, "message": cell.message}
        if cell.picture:
            made["picture"] = f"{url(cell.picture)}?{cell.step}"
    else:
        made["message"] = cell.message
    return made


def progress(view: GridState) -> dict[str, Any]:
    """How far the whole grid is, in numbers and in a sentence."""
    every, done = len(view.all), view.count(CellState.DONE)
    failed, missing = view.count(CellState.FAILED), view.count(CellState.MISSING)
    if view.complete:
        said = f"{every} videos"
    else:
        said = f"{done} of {every} videos"
        if view.going and view.seconds_left is not None:
            said += f" · about {duration(view.seconds_left)} left"
        elif view.going:
            said += " · the time left is known after the first one"
        said += f" · {failed} failed" if failed else ""
        said += f" · {missing} not drawn" if missing and not view.going else ""
    outdated = sum(cell.outdated for cell in view.all)
    said += f" · {outdated} drawn with an older LoRA file" if outdated else ""
    return {"said": said, "all": every, "done": done, "going": view.going, "open": failed + missing + outdated}


def shape(base: SampleSettings) -> dict[str, Any]:
    """Frames, rate and size of the videos that begin with these settings."""
    try:
        _, model = find_model(base.model)
        found = shape_for(model, base.frames, base.height, base.width)
    except ConfigError:
        return {"fps": base.fps or 8, "frames": 1, "width": base.width or 64, "height": base.height or 64}
    return {
        "fps": base.fps or found.fps,
        "frames": found.frames,
        "width": found.width,
        "height": found.height,
    }
