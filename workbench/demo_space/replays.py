"""A replay: the curves and previews of a run over time, small enough to share, shown with a slider.

    replay.json         {title, description, model, steps, seconds, device, versions, settings, points, previews,
                         size, frames, verdict, grid}
    previews/NAME.mp4   the run's previews
    grid/NAME.mp4       the videos of a grid, if one was recorded with the run

    points    [seconds, step, loss, smoothed loss, held-out loss] for each line of metrics; missing values are None.
              The smoothed loss is a running mean, as shown at that moment
    previews  [seconds, step, index in `prompts`, file]
    verdict   {tone, claim, evidence} about the run at its end, or None
    grid      a grid's data (compare/snapshot.py), whose videos are files of the replay, or None

`record` makes it from a run's folder, with the times of the run's metrics and files. It contains no weights, clips or
paths. `page` writes it as one HTML file, shown by an element (assets/elements/replay.js).
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench import __version__
from workbench.display import elements
from workbench.display.quantities import duration
from workbench.errors import ConfigError, DataError
from workbench.paths import ASSETS
from workbench.workspace import confined, disk, read_json, write_text, writing

if TYPE_CHECKING:
    from workbench.runs.run import Run

SHIPPED = ASSETS / "replays"
REPLAY, PREVIEWS, GRID = "replay.json", "previews", "grid"
POINTS = 600  # training losses to keep, evenly spaced; all held-out losses are kept
SMOOTH = 0.03  # weight of a new loss in the running mean
SETTINGS = (
    "dataset",
    "method",
    "steps",
    "batch_size",
    "learning_rate",
    "lr_schedule",
    "rank",
    "alpha",
    "targets",
    "frames",
    "height",
    "width",
    "fps",
    "precision",
    "seed",
)


@dataclass(frozen=True)
class Replay:
    """A folder written by `record`."""

    folder: Path
    record: dict[str, Any]

    @classmethod
    def open(cls, folder: Path) -> Replay:
        """Open a replay. Raises ConfigError if the folder is not one, or names files outside itself."""
        record = read_json(folder / REPLAY)
        if not isinstance(record, dict) or not isinstance(record.get("points"), list):
            raise ConfigError(f"{folder} is not a replay: make one with `workbench record RUN FOLDER`")
        previews = record.get("previews")
        if not isinstance(previews, list) or not all(isinstance(one, list) and len(one) == 4 for one in previews):
            raise ConfigError(f"{folder / REPLAY} is damaged: record the run again")
        found = cls(folder, record)
        for name in found.videos:
            confined(folder, name)
        return found

    @property
    def videos(self) -> list[str]:
        """Return the names of its videos, relative to its folder."""
        previews = [str(name) for *_, name in self.record["previews"]]
        cells = [cell for row in (self.record.get("grid") or {"cells": ()})["cells"] for cell in row]
        return [*previews, *(str(cell["url"]) for cell in cells if cell.get("url"))]


def shipped() -> list[Replay]:
    """Return the replays that come with the workbench."""
    return [Replay.open(path.parent) for path in sorted(SHIPPED.glob(f"*/{REPLAY}"))]


# ---- recording ------------------------------------------------------------------------------------------------------


def record(
    run: Run,
    target: Path,
    description: str = "",
    grid: tuple[Mapping[str, Any], Mapping[str, Path]] | None = None,
) -> Replay:
    """Record a run's curves, previews and verdict in a new folder.

    Args:
        run: The run.
        target: The folder, which must not exist.
        description: A sentence about the run.
        grid: A grid's data and its videos by their names in the data (`compare.export.contents`).

    Raises:
        DataError: The run has no metrics yet.
        ConfigError: The target exists.
        CannotWrite: It cannot be written.
    """
    # Here: the documents' site shows replays without pydantic.
    from workbench.runs.metrics import read_sessions
    from workbench.runs.snapshot import snapshot, verdict_of

    lines = run.metrics
    times = [line["time"] for line in lines if line.get("time")]
    if not times:
        raise DataError(f"{run.name} has no metrics yet: let it train first")
    if target.exists():
        raise ConfigError(f"{target} already exists: choose a new folder")
    settings = run.settings.model_dump(mode="json")
    begun, model = min(times), run.settings.resolved.model
    partial = target.with_name(f".{target.name}.tmp")
    shutil.rmtree(partial, ignore_errors=True)
    with writing(partial):
        (partial / PREVIEWS).mkdir(parents=True)
    prompts, previews = _previews(run, partial, begun)
    device = next((session.device for session in read_sessions(run.folder) if session.device), "")
    verdict = verdict_of(snapshot(run))
    found = {
        "title": run.name,
        "description": description,
        "model": model.id,
        "model_title": model.title,
        "steps": lines[-1]["step"],
        "seconds": math.ceil(10 * max([max(times) - begun, *(one[0] for one in previews)])) / 10,
        "device": device,
        "state": str(run.status.state),
        "versions": {"workbench": __version__},
        "settings": {name: settings.get(name) for name in SETTINGS},
        "prompts": prompts,
        "points": _points(lines, begun),
        "previews": previews,
        "size": [settings.get("width") or model.width, settings.get("height") or model.height],
        "frames": settings.get("preview_frames") or settings.get("frames") or model.frames,
        "verdict": verdict and {"tone": verdict.tone, "claim": verdict.claim, "evidence": verdict.evidence},
        "grid": grid and _grid(*grid, partial),
    }
    write_text(partial / REPLAY, json.dumps(found, ensure_ascii=False) + "\n")
    with writing(target):
        disk.replace(partial, target)
    return Replay(target, found)


def _points(lines: list[dict[str, Any]], begun: float) -> list[list[float | None]]:
    every = max(1, math.ceil(sum("loss" in line for line in lines) / POINTS))
    mean: float | None = None
    points: list[list[float | None]] = []
    for line in lines:
        loss, held = line.get("loss"), line.get("held_out_loss")
        if loss is not None:
            mean = loss if mean is None else mean + SMOOTH * (loss - mean)
        if held is not None or (loss is not None and line["step"] % every == 0):
            seconds = round(line["time"] - begun, 2)
            smooth = mean if loss is not None else None
            values = (one if one is not None and math.isfinite(one) else None for one in (loss, smooth, held))
            points.append([seconds, line["step"], *(None if one is None else float(f"{one:.5g}") for one in values)])
    return points


def _previews(run: Run, target: Path, begun: float) -> tuple[list[str], list[list[Any]]]:
    """Copy the previews. Each appears at the time its file was written."""
    prompts: list[str] = []
    previews: list[list[Any]] = []
    for preview in run.previews:
        if preview.prompt not in prompts:
            prompts.append(preview.prompt)
        name = f"{PREVIEWS}/{preview.step:08d}-{preview.index}.mp4"
        with writing(target):
            shutil.copyfile(preview.video, target / name)
        seconds = round(max(0.0, preview.video.stat().st_mtime - begun), 2) if preview.step else 0.0
        previews.append([seconds, preview.step, prompts.index(preview.prompt), name])
    return prompts, previews


def _grid(data: Mapping[str, Any], videos: Mapping[str, Path], target: Path) -> dict[str, Any]:
    """Copy a grid's videos, and return its data with their new names."""
    with writing(target):
        (target / GRID).mkdir()
        for name, video in videos.items():
            shutil.copyfile(video, target / GRID / name)
    return addressed(data, lambda name: f"{GRID}/{name}")


def addressed(grid: Mapping[str, Any], address: Callable[[str], str]) -> dict[str, Any]:
    """Return a grid's data with other addresses of its videos."""
    cells = [
        [{**cell, "url": address(cell["url"])} if cell.get("url") else cell for cell in row] for row in grid["cells"]
    ]
    return {**grid, "cells": cells}


# ---- replaying ------------------------------------------------------------------------------------------------------


def page(replay: Replay) -> Iterator[str]:
    """Yield the pieces of a self-contained page. Raises OSError if a preview cannot be read."""
    files = {name: replay.folder / name for name in replay.videos}
    return elements.exported(replay.record["title"], "wb-replay", {"replay": shown(replay)}, files)


def shown(replay: Replay) -> dict[str, Any]:
    """Return the data of the element wb-replay. Videos are paths within the replay's folder."""
    record = replay.record
    width, height = record["size"]
    steps = sorted({step for _, step, *_ in record["previews"]})
    seconds = {step: when for when, step, *_ in reversed(record["previews"])}
    facts = [
        record.get("model_title") or record["model"],
        f"{record['steps']:,} steps",
        duration(record["seconds"]),
        record.get("device", ""),
        f"workbench {record['versions']['workbench']}",
    ]
    rows = []
    for number, prompt in enumerate(record["prompts"]):
        made = {step: name for _, step, of, name in record["previews"] if of == number}
        rows.append({"prompt": prompt, "videos": [made.get(step) for step in steps]})
    curve = {"tone": "faint", "style": "line", "name": "loss, running mean", "points": _curve(record, 3)}
    measured = {"tone": "accent", "style": "dots", "name": "held-out clips", "points": _curve(record, 4)}
    return {
        "title": record["title"],
        "description": record.get("description", ""),
        "facts": [*filter(None, facts)],
        "chart": {"title": "Loss", "note": "", "lines": [one for one in (curve, measured) if one["points"]]},
        "steps": steps,
        "seconds": [seconds[step] for step in steps],
        "rows": rows,
        "settings": ", ".join(f"{name} {value}" for name, value in record["settings"].items() if value is not None),
        "width": width,
        "height": height,
        "frames": record.get("frames", 0),
        "verdict": record.get("verdict"),
        "grid": record.get("grid"),
    }


def _curve(record: dict[str, Any], column: int) -> list[tuple[int, float]]:
    return [(point[1], point[column]) for point in record["points"] if point[column] is not None]


def at(replay: Replay, seconds: float) -> str:
    """Return one moment of a replay as a line of text."""
    points = [point for point in replay.record["points"] if point[0] <= seconds] or replay.record["points"][:1]
    loss = next((point[3] for point in reversed(points) if point[3] is not None), None)
    held = next((point[4] for point in reversed(points) if point[4] is not None), None)
    generated = sorted({step for when, step, *_ in replay.record["previews"] if when <= seconds})
    parts = [f"{duration(seconds)}", f"step {points[-1][1]:,} of {replay.record['steps']:,}"]
    parts += [f"loss {loss:.4f}"] if loss is not None else []
    parts += [f"held out {held:.4f}"] if held is not None else []
    parts += [f"previews of step {generated[-1]:,}"] if generated else []
    return " · ".join(parts)
