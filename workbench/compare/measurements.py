"""Measurements of a grid's videos, and in words: distance to the base, motion, sharpness, nearest training clip.

    grids/<slug>/measurements.json    {"cells": {key: {"version", "reference", "distance", "psnr", "motion",
                                      "sharpness", "nearest", "nearest_difference", "copied"}}}
    grids/<slug>/.measurements/       the job that measures; clips.json: signatures of the run's clips

Once for each video; one that was generated again, or whose base was, is measured again.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench import jobs
from workbench.clips import frame_metrics, media
from workbench.clips.media.difference import WORDS
from workbench.compare import similarity
from workbench.compare.grid import MEASUREMENTS, Grid, read_measurements, stamp
from workbench.compare.state import Cell, GridState
from workbench.errors import DataError
from workbench.runs.run import Run
from workbench.workspace import write_json

if TYPE_CHECKING:
    from workbench.clips.frame_metrics import Pixels

MOTION_FPS = 8  # as in the dataset check
SHARP_LONGEST, SHARP_FRAMES = 720, 4
POLL_SECONDS = 0.5
TIMEOUT = 60.0  # seconds without a new video; `Grid.maintain` starts the job again when one comes

HELP = {
    "distance": "How much the pixels differ from the video of the base model in this row, on average, in levels of "
    "255. 0 is the same video; from about 25 on it shows something else.",
    "motion": "How much the picture changes within an eighth of a second, in levels of 255. Below 0.5 nothing moves. "
    "A LoRA that makes everything stand still shows here first.",
    "sharpness": "How much fine detail there is: 100 % is crisp, below about 40 % looks soft. Training too long or too "
    "strong often blurs, or frays into false detail.",
    "nearest": "How much the video differs from the training clip it is nearest to. Different scenes differ by 0.5 and "
    "more; below 0.25 it is that clip again: the LoRA may have memorized it.",
}
# Measurement -> its title, how it is written, below what it hints at a fault, and the word of each limit it is below.
SCALES: dict[str, tuple[str, str, float, dict[float, str]]] = {
    "distance": ("from {}", "{:.1f}", 0.0, WORDS),
    "motion": ("motion", "{:.1f}", 0.5, {0.5: "stands still", 2: "calm", 8: "lively", math.inf: "wild"}),
    "sharpness": ("sharpness", "{:.0%}", 0.38, {0.38: "blurred", 0.5: "soft", math.inf: "sharp"}),
}


@dataclass(frozen=True)
class VideoMeasurement:
    """One measurement as faces show it. warn: whether it hints at a fault."""

    name: str
    title: str
    value: str
    words: str
    warn: bool = False


def run(grid: Grid, job: jobs.Job) -> None:
    """Measure every video that is done, and those that come while the job runs. Raises jobs.Stop."""
    clips, last = None, time.monotonic()
    while True:
        state = grid.state()
        todo = [cell for cell in state.all if cell.video and not state.is_measured(cell)]
        if todo and clips is None:
            clips = _clips(grid)
        for index, cell in enumerate(todo):
            job.check_stop("Stopped; what was measured is kept.")
            job.beat("measuring", index, len(todo))
            measured = {**read_measurements(grid.folder), cell.key: measure(cell, state, clips or [])}
            write_json(grid.folder / MEASUREMENTS, {"cells": measured})
            last = time.monotonic()
        if not todo:
            if not state.going or time.monotonic() - last > TIMEOUT:
                return
            job.beat("waiting for videos")
            time.sleep(POLL_SECONDS)


def measure(cell: Cell, state: GridState, clips: Sequence[similarity.TrainingClip]) -> dict[str, Any]:
    """The measurements of a video; {"error": ...} beside the versions when it cannot be read."""
    assert cell.video is not None
    reference = state.references[cell.key]
    versions = {"version": stamp(cell.video), "reference": reference}
    try:
        found = of_video(cell.video)
        signature = found.pop("signature")
        if reference and (other := state.cell(reference.partition("@")[0]).video):
            apart = media.difference(cell.video, other)
            found |= {"distance": apart.levels, "psnr": apart.psnr} if apart else {}
        nearest = similarity.nearest(signature, clips, similarity.usual(clips))
    except DataError as error:
        return {**versions, "error": str(error)}
    if nearest is not None:
        found |= {"nearest": nearest.clip, "nearest_difference": nearest.difference, "copied": nearest.copied}
    return {**versions, **found}


def of_video(path: Path) -> dict[str, Any]:
    """motion (levels), sharpness (0 to 1) and signature (bytes) of a video. Raises DataError."""
    import numpy as np

    fps = media.probe(path).fps or 8.0
    stride = max(1, round(fps / MOTION_FPS))
    small: list[Pixels] = []
    large: list[Pixels] = []
    for _, frame in media.raw_frames(path):
        small.append(frame_metrics.small(frame, similarity.LONGEST))
        large.append(frame_metrics.small(frame, SHARP_LONGEST, "gray"))
    if not small:
        raise DataError(f"{path.name} has no frames: generate it again")
    # In colour: a red thing on a green ground may be as bright as that.
    halved = [frame_metrics.halved(picture).astype(np.float32) for picture in small[::stride]]
    moved = [float(np.abs(after - before).mean()) for before, after in zip(halved, halved[1:], strict=False)]
    indices = sorted({int((part + 0.5) * len(large) / SHARP_FRAMES) for part in range(SHARP_FRAMES)})
    return {
        "motion": round(float(np.median(moved or [0.0])), 2),
        "sharpness": round(1 - float(np.median([frame_metrics.blur(large[index]) for index in indices])), 3),
        "signature": similarity.signature(small),
    }


def _clips(grid: Grid) -> list[similarity.TrainingClip]:
    run = grid.settings.run
    if not run or not grid.workspace.run(run).is_dir():
        return []
    kept = grid.folder / ".measurements" / "clips.json"
    return similarity.trained_on(grid.workspace, Run(grid.workspace.run(run)), kept)


def describe(measured: dict[str, Any], reference: str = "base model") -> list[VideoMeasurement]:
    """The measurements of a video in words; none where nothing was measured."""
    if measured.get("error"):
        return [VideoMeasurement("error", "not measured", "", str(measured["error"]), warn=True)]
    found = []
    for name, (title, form, warned, limits) in SCALES.items():
        if (value := measured.get(name)) is not None:
            words = next(word for limit, word in limits.items() if value < limit)
            found.append(VideoMeasurement(name, title.format(reference), form.format(value), words, value < warned))
    if "nearest" in measured:
        value, clip, copied = measured["nearest_difference"], measured["nearest"], bool(measured.get("copied"))
        near = "nearly" if copied else "resembles" if value < similarity.NEAR else ""
        words = f"{near} the training clip {clip}" if near else "like no training clip"
        found.append(VideoMeasurement("nearest", "training clips", f"{value:.2f}", words, warn=copied))
    return found
