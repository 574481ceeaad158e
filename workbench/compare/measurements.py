"""What each video of a grid measures, and in words: distance to the base, motion, sharpness, nearest training clip.

    grids/<slug>/numbers.json       {"cells": {key: {"drawn", "against", "distance", "psnr", "motion", "sharpness",
                                    "nearest", "nearest_difference", "copied"}}}
    grids/<slug>/.numbers/          the job that measures; clips.json: signatures of the run's clips

Once for each video; one that was drawn anew, or whose base was, is measured again. Not covered: what a person sees.
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
from workbench.compare import similarity
from workbench.compare.cell_files import read_object, stamp
from workbench.compare.grid import NUMBERS, Grid
from workbench.compare.state import Cell, GridState
from workbench.errors import DataError
from workbench.runs.run import Run
from workbench.workspace import write_json

if TYPE_CHECKING:
    from workbench.clips.frame_metrics import Pixels

LOOKS_A_SECOND = 8  # at motion, as the dataset's check
SHARP_LONGEST, SHARP_LOOKS = 720, 4
POLL_SECONDS = 0.5
PATIENCE = 60.0  # seconds without a new video, after which whoever watches starts the job again
SAME = 99.0  # dB for equal videos

HELP = {
    "distance": "How much the pixels differ from the video of the base model in this row, on average, in levels of "
    "255. 0 is the same video; from about 25 on it shows something else.",
    "motion": "How much the picture changes within an eighth of a second, in levels of 255. Below 0.5 nothing moves. "
    "A LoRA that makes everything stand still shows here first.",
    "sharpness": "How much fine detail there is: 100 % is crisp, below about 40 % looks soft. Training too long or too "
    "strong often blurs, or frays into false detail.",
    "nearest": "How much the video differs from the training clip it is nearest to. Different scenes differ by 0.5 and "
    "more; below 0.25 it is that clip again: the LoRA may have learned it by heart.",
}


@dataclass(frozen=True)
class Number:
    """One number under a picture, for people. warn: whether it is worth a second look."""

    name: str
    title: str
    value: str
    words: str
    warn: bool = False


def follow(grid: Grid, job: jobs.Job) -> None:
    """Measure every video that is done, and those that come while the job watches. Raises jobs.Stop."""
    clips, quiet_since = None, time.monotonic()
    while True:
        view = grid.look()
        todo = [cell for cell in view.all if cell.video and cell.numbers.get("against") != view.against[cell.key]]
        if todo and clips is None:
            clips = _clips(grid)
        for place, cell in enumerate(todo):
            if job.take("stop") is not None:
                raise jobs.Stop("Stopped; what was measured is kept.")
            job.beat("measuring", place, len(todo))
            _keep(grid, cell.key, measured(cell, view, clips or []))
            quiet_since = time.monotonic()
        if not view.going and not todo:
            return
        if time.monotonic() - quiet_since > PATIENCE:
            return
        if not todo:
            job.beat("waiting for videos")
            time.sleep(POLL_SECONDS)


def measured(cell: Cell, view: GridState, clips: Sequence[similarity.TrainingClip]) -> dict[str, Any]:
    """What a video measures; {"error": ...} beside the marks when it cannot be read."""
    assert cell.video is not None
    against = view.against[cell.key]
    marks = {"drawn": stamp(cell.video), "against": against}
    other = view.cell(against.partition("@")[0])
    try:
        found = of_video(cell.video)
        prints = found.pop("print")
        if other is not None and other.video is not None:
            found |= apart(cell.video, other.video)
        nearest = similarity.nearest(prints, clips, similarity.usual(clips))
    except DataError as error:
        return {**marks, "error": str(error)}
    if nearest is not None:
        found |= {"nearest": nearest.clip, "nearest_difference": nearest.difference, "copied": nearest.copied}
    return {**marks, **found}


def of_video(path: Path) -> dict[str, Any]:
    """motion (levels), sharpness (0 to 1) and print (a signature, bytes) of a video. Raises DataError."""
    import numpy as np

    fps = media.probe(path).fps or 8.0
    stride = max(1, round(fps / LOOKS_A_SECOND))
    small: list[Pixels] = []
    large: list[Pixels] = []
    for _, frame in media.raw_frames(path):
        small.append(frame_metrics.small(frame, similarity.LONGEST))
        large.append(frame_metrics.small(frame, SHARP_LONGEST, "gray"))
    if not small:
        raise DataError(f"{path.name} has no frames: draw it again")
    # In colour: a red thing on a green ground may be as bright as that.
    looks_at = [frame_metrics.halved(picture).astype(np.float32) for picture in small[::stride]]
    moved = [float(np.abs(after - before).mean()) for before, after in zip(looks_at, looks_at[1:], strict=False)]
    looks = sorted({int((part + 0.5) * len(large) / SHARP_LOOKS) for part in range(SHARP_LOOKS)})
    return {
        "motion": round(float(np.median(moved or [0.0])), 2),
        "sharpness": round(1 - float(np.median([frame_metrics.blur(large[place]) for place in looks])), 3),
        "print": similarity.signature(small),
    }


def apart(one: Path, other: Path) -> dict[str, float]:
    """distance (mean difference of the pixels, levels) and psnr (dB) of two videos, as far as the shorter one goes.

    Videos of different sizes have neither. Raises DataError.
    """
    import numpy as np

    total = squares = count = 0.0
    for (_, left), (_, right) in zip(media.decode(one), media.decode(other), strict=False):
        if left.shape != right.shape:
            return {}
        difference = left.astype(np.float32) - right
        total += float(np.abs(difference).sum())
        squares += float((difference**2).sum())
        count += difference.size
    if not count:
        return {}
    psnr = 10 * math.log10(255**2 * count / squares) if squares else SAME
    return {"distance": round(total / count, 2), "psnr": round(min(psnr, SAME), 1)}


def _clips(grid: Grid) -> list[similarity.TrainingClip]:
    run = grid.settings.run
    if not run or not grid.workspace.run(run).is_dir():
        return []
    kept = grid.folder / ".numbers" / "clips.json"
    return similarity.trained_on(grid.workspace, Run(grid.workspace.run(run)), kept)


def _keep(grid: Grid, key: str, found: dict[str, Any]) -> None:
    path = grid.folder / NUMBERS
    known = read_object(path).get("cells", {})
    write_json(path, {"cells": {**known, key: found}})


def in_words(found: dict[str, Any], reference: str = "base model") -> list[Number]:
    """The numbers of a video for people; none where nothing was measured."""
    if found.get("error"):
        return [Number("error", "not measured", "", str(found["error"]), warn=True)]
    numbers = []
    if "distance" in found:
        value = found["distance"]
        words = _step(
            value, ((1.0, "the same"), (6.0, "nearly the same"), (25.0, "clearly different")), "another video"
        )
        numbers.append(Number("distance", f"from {reference}", f"{value:.1f}", words))
    if "motion" in found:
        value = found["motion"]
        words = _step(value, ((0.5, "stands still"), (2.0, "calm"), (8.0, "lively")), "wild")
        numbers.append(Number("motion", "motion", f"{value:.1f}", words, warn=value < 0.5))
    if "sharpness" in found:
        value = found["sharpness"]
        words = _step(value, ((0.38, "blurred"), (0.5, "soft")), "sharp")
        numbers.append(Number("sharpness", "sharpness", f"{value:.0%}", words, warn=value < 0.38))
    if "nearest" in found:
        value, clip = found["nearest_difference"], found["nearest"]
        if found.get("copied"):
            words = f"nearly the training clip {clip}"
        else:
            words = f"resembles the training clip {clip}" if value < similarity.NEAR else "like no training clip"
        numbers.append(Number("nearest", "training clips", f"{value:.2f}", words, warn=bool(found.get("copied"))))
    return numbers


def _step(value: float, steps: Sequence[tuple[float, str]], last: str) -> str:
    return next((word for limit, word in steps if value < limit), last)
