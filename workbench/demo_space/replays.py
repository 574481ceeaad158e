"""A replay: what a training run showed while it ran, small enough to share, with a slider over its time.

    replay.json         {title, description, model, steps, seconds, device, versions, settings, points, previews}
    previews/NAME.mp4   as the run generated them

    points    [seconds, step, loss, smoothed loss, held-out loss] of a line of metrics each; None where it had none.
              The smoothed loss is a mean over the steps before, as it was shown at that moment
    previews  [seconds, step, prompt's number, file]; `prompts` holds the prompts

Made from a run's folder by `record`: times are those of the run's own lines and files. It holds no weights, clips or
paths of the machine. `page` makes one file of it, shown by an element (assets/elements/replay.js).
"""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench import __version__
from workbench.display import elements
from workbench.display.quantities import duration
from workbench.errors import ConfigError, DataError
from workbench.paths import ASSETS
from workbench.runs.metrics import read_sessions
from workbench.runs.run import Run
from workbench.workspace import confined, disk, read_json, write_text, writing

SHIPPED = ASSETS / "replays"
REPLAY, PREVIEWS = "replay.json", "previews"
POINTS = 600  # training lines that are kept, evenly; all measurements are
SMOOTH = 0.03  # share of a new loss in the mean
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
    """A folder that `record` has written."""

    folder: Path
    record: dict[str, Any]

    @classmethod
    def open(cls, folder: Path) -> Replay:
        """Raises ConfigError when it is none, or names files outside of itself."""
        record = read_json(folder / REPLAY)
        if not isinstance(record, dict) or not isinstance(record.get("points"), list):
            raise ConfigError(f"{folder} is no replay: make one with `workbench record RUN FOLDER`")
        previews = record.get("previews")
        if not isinstance(previews, list) or not all(isinstance(one, list) and len(one) == 4 for one in previews):
            raise ConfigError(f"{folder / REPLAY} is damaged: record the run again")
        for *_, name in previews:
            confined(folder, str(name))
        return cls(folder, record)


def shipped() -> list[Replay]:
    """The replays that come with the workbench."""
    return [Replay.open(path.parent) for path in sorted(SHIPPED.glob(f"*/{REPLAY}"))]


# ---- recording ------------------------------------------------------------------------------------------------------


def record(run: Run, target: Path, description: str = "") -> Replay:
    """Write what the run showed over its time into a new folder. description: a sentence that says what it is.

    Raises DataError when the run has nothing to show yet, ConfigError when the target exists, CannotWrite.
    """
    lines = run.metrics
    times = [line["time"] for line in lines if line.get("time")]
    if not times:
        raise DataError(f"{run.name} has measured nothing yet: let it train first")
    if target.exists():
        raise ConfigError(f"{target} is there already: name a new folder")
    settings = run.settings.model_dump(mode="json")
    begun, model = min(times), run.settings.resolved.model
    partial = target.with_name(f".{target.name}.tmp")
    shutil.rmtree(partial, ignore_errors=True)
    with writing(partial):
        (partial / PREVIEWS).mkdir(parents=True)
    prompts, previews = _previews(run, partial, begun)
    device = next((session.device for session in read_sessions(run.folder) if session.device), "")
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
            points.append([seconds, line["step"], *(_short(one) for one in (loss, smooth, held))])
    return points


def _previews(run: Run, target: Path, begun: float) -> tuple[list[str], list[list[Any]]]:
    """Copy the videos; they are shown from the moment their files were written."""
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


def _short(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(f"{value:.5g}")


# ---- replaying ------------------------------------------------------------------------------------------------------


def page(replay: Replay) -> Iterator[str]:
    """Yield, in pieces, a page that needs nothing else. Raises OSError when a preview cannot be read."""
    files = {name: replay.folder / name for *_, name in replay.record["previews"]}
    return elements.exported(replay.record["title"], "wb-replay", {"replay": shown(replay)}, files)


def shown(replay: Replay) -> dict[str, Any]:
    """Return what the element takes: title, description, facts, chart, steps, seconds, rows, settings, width, height.

    Videos are named as in the replay's folder.
    """
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
    curve = {"tone": "faint", "style": "line", "name": "loss, mean of the last steps", "points": _curve(record, 3)}
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
    }


def _curve(record: dict[str, Any], column: int) -> list[tuple[int, float]]:
    return [(point[1], point[column]) for point in record["points"] if point[column] is not None]


def at(replay: Replay, seconds: float) -> str:
    """One moment as a line of text."""
    points = [point for point in replay.record["points"] if point[0] <= seconds] or replay.record["points"][:1]
    loss = next((point[3] for point in reversed(points) if point[3] is not None), None)
    held = next((point[4] for point in reversed(points) if point[4] is not None), None)
    generated = sorted({step for when, step, *_ in replay.record["previews"] if when <= seconds})
    parts = [f"{duration(seconds)}", f"step {points[-1][1]:,} of {replay.record['steps']:,}"]
    parts += [f"loss {loss:.4f}"] if loss is not None else []
    parts += [f"held out {held:.4f}"] if held is not None else []
    parts += [f"previews of step {generated[-1]:,}"] if generated else []
    return " · ".join(parts)
