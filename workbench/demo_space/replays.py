"""A recorded run: what a training showed while it went on, small enough to give away, replayed by a slider over time.

    recording.json      {title, said, model, steps, seconds, device, versions, settings, points, previews}
    previews/NAME.mp4   as the run drew them

    points    [seconds, step, loss, smoothed loss, held-out loss] of a line of metrics each; None where it had none.
              The smoothed loss is a mean over the steps before, so that it is what a watcher saw at that moment
    previews  [seconds, step, prompt's number, file]; `prompts` holds the prompts

Made from a run's folder by `record`, and from nothing else: times are those of the run's own lines and files. No
weight, clip or path of the machine is taken along. `player` draws it as HTML for the page, a notebook or a file of its
own; the browser's half is assets/replay.js. Not covered: a run that is still there (runs.analysis, ui).
"""

from __future__ import annotations

import base64
import html
import json
import math
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench import __version__, jobs
from workbench.errors import ConfigError, DataError
from workbench.families import find_model
from workbench.paths import ASSETS
from workbench.runs.run import Run
from workbench.workspace import confined, read_json, write_text, writing

SHIPPED = ASSETS / "recorded_runs"
SCRIPT, STYLE = ASSETS / "replay.js", ASSETS / "replay.css"
RECORD, PREVIEWS = "recording.json", "previews"
POINTS = 600  # training lines that are kept, evenly; all measurements are
SMOOTH = 0.03  # share of a new loss in the mean
TOLD = ("dataset", "method", "steps", "batch_size", "learning_rate", "lr_schedule", "rank", "alpha", "targets",
        "frames", "height", "width", "fps", "precision", "seed")  # fmt: skip
TITLES = ("the recorded run's loss, and that of clips it was not trained on", "what it drew at that moment")


@dataclass(frozen=True)
class Recording:
    """A folder that `record` has written."""

    folder: Path
    record: dict[str, Any]

    @classmethod
    def open(cls, folder: Path) -> Recording:
        """Raises ConfigError when it is none, or names files outside of itself."""
        record = read_json(folder / RECORD)
        if not isinstance(record, dict) or not isinstance(record.get("points"), list):
            raise ConfigError(f"{folder} is no recorded run: make one with `workbench record RUN`")
        for *_, name in record["previews"]:
            confined(folder, str(name))
        return cls(folder, record)


def shipped() -> list[Recording]:
    """The recordings that came with the workbench."""
    return [Recording.open(path.parent) for path in sorted(SHIPPED.glob(f"*/{RECORD}"))]


# ---- recording ------------------------------------------------------------------------------------------------------


def record(run: Run, target: Path, said: str = "") -> Recording:
    """Write what the run showed over its time into a new folder. said: a sentence that says what it is.

    Raises DataError when the run has nothing to show yet, ConfigError when the target exists, CannotWrite.
    """
    lines = run.metrics
    times = [line["time"] for line in lines if line.get("time")]
    if not times:
        raise DataError(f"{run.name} has measured nothing yet: let it train first")
    if target.exists():
        raise ConfigError(f"{target} is there already: name a new folder")
    settings = run.settings.model_dump(mode="json")
    begun, model = min(times), find_model(settings["model"])[1]
    partly = target.with_name(f".{target.name}.partly")
    shutil.rmtree(partly, ignore_errors=True)
    with writing(partly):
        (partly / PREVIEWS).mkdir(parents=True)
    prompts, shown = _previews(run, partly, begun)
    device = str(next((line["device"] for line in _starts(run) if line.get("device")), ""))
    found = {
        "title": run.name, "said": said, "model": model.id, "model_title": model.title, "steps": lines[-1]["step"],
        "seconds": math.ceil(10 * max([max(times) - begun, *(one[0] for one in shown)])) / 10, "device": device,
        "state": str(run.status.state),
        "versions": {"workbench": __version__}, "settings": {name: settings.get(name) for name in TOLD},
        "prompts": prompts, "points": _points(lines, begun), "previews": shown,
        "size": [settings.get("width") or model.width, settings.get("height") or model.height],
    }  # fmt: skip
    write_text(partly / RECORD, json.dumps(found, ensure_ascii=False) + "\n")
    with writing(target):
        partly.rename(target)
    return Recording(target, found)


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
    shown: list[list[Any]] = []
    for preview in run.previews:
        if preview.prompt not in prompts:
            prompts.append(preview.prompt)
        name = f"{PREVIEWS}/{preview.step:08d}-{preview.index}.mp4"
        with writing(target):
            shutil.copyfile(preview.video, target / name)
        seconds = round(max(0.0, preview.video.stat().st_mtime - begun), 2) if preview.step else 0.0
        shown.append([seconds, preview.step, prompts.index(preview.prompt), name])
    return prompts, shown


def _starts(run: Run) -> list[dict[str, Any]]:
    path = run.folder / "sessions.jsonl"
    text = path.read_text(encoding="utf-8") if path.exists() else ""
    return [json.loads(line) for line in text.splitlines() if line.strip()]


def _short(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(f"{value:.5g}")


# ---- replaying ------------------------------------------------------------------------------------------------------


def player(recording: Recording, address: Callable[[Path], str]) -> str:
    """The recording as HTML; assets/replay.js brings it to life. address: where the browser finds a file."""
    record = recording.record
    files = {name: address(recording.folder / name) for *_, name in record["previews"]}
    shown = {**record, "previews": [[*rest, files[name]] for *rest, name in record["previews"]]}
    settings = ", ".join(f"{name} {value}" for name, value in record["settings"].items() if value is not None)
    facts = [
        record.get("model_title") or record["model"], f"{record['steps']:,} steps", jobs.duration(record["seconds"]),
        record.get("device", ""), f"workbench {record['versions']['workbench']}",
    ]  # fmt: skip
    data = html.escape(json.dumps(shown, allow_nan=False), quote=True)
    said = f"<p>{html.escape(record['said'])}</p>" if record.get("said") else ""
    return (
        f'<section class="replay" data-replay="{data}"><h3>{html.escape(record["title"])}</h3>'
        f'<p class="facts-line">{html.escape(" · ".join(filter(None, facts)))}</p>{said}'
        '<div class="controls"><button type="button" class="play">Play</button>'
        '<input type="range" min="0" max="1000" value="0" step="1" aria-label="Time of the recorded run">'
        '<output>at the start</output></div><div class="moment">'
        f'<figure class="curve" aria-label="{TITLES[0]}"></figure>'
        f'<div class="videos" aria-label="{TITLES[1]}"></div></div>'
        f"<details><summary>Its settings</summary><p>{html.escape(settings)}</p></details></section>"
    )


def embedded(path: Path) -> str:
    """A file's content as an address of its own, for pages that must stand alone."""
    return "data:video/mp4;base64," + base64.b64encode(path.read_bytes()).decode()


def standalone(recording: Recording) -> str:
    """A page that needs nothing else: for a notebook's output, or a file to open."""
    script = SCRIPT.read_text(encoding="utf-8")
    style = STYLE.read_text(encoding="utf-8")
    return (
        f"<style>{style}</style><div>{player(recording, embedded)}</div>"
        f"<script>(function (element) {{ {script} }})(document.currentScript.previousElementSibling);</script>"
    )


def at(recording: Recording, seconds: float) -> str:
    """One moment in a line of words."""
    points = [point for point in recording.record["points"] if point[0] <= seconds] or recording.record["points"][:1]
    loss = next((point[3] for point in reversed(points) if point[3] is not None), None)
    held = next((point[4] for point in reversed(points) if point[4] is not None), None)
    drawn = sorted({step for when, step, *_ in recording.record["previews"] if when <= seconds})
    parts = [f"{jobs.duration(seconds)}", f"step {points[-1][1]:,} of {recording.record['steps']:,}"]
    parts += [f"loss {loss:.4f}"] if loss is not None else []
    parts += [f"held out {held:.4f}"] if held is not None else []
    parts += [f"previews of step {drawn[-1]:,}"] if drawn else []
    return " · ".join(parts)
