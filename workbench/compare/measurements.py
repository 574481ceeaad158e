"""Measure a grid's videos and put it into words: distance to the base, motion, sharpness, nearest training clip.

Each video is measured once, and again if it or its base was generated again. Signatures tell whether a LoRA has
memorized a clip, the way they find near-duplicate clips (clips.frame_metrics): four frames of 8x8 pixels in color, for
a clip from the frames that training used.
"""

from __future__ import annotations

import base64
import contextlib
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench import jobs
from workbench.clips import frame_metrics, media
from workbench.clips.media import WORDS
from workbench.compare.grid import MEASUREMENTS, Cell, Grid, GridState, read_measurements, stamp
from workbench.errors import ConfigError, DataError
from workbench.runs.data import read_lock, sources_of
from workbench.runs.run import Run
from workbench.workspace import Workspace, confined, read_object, write_json

if TYPE_CHECKING:
    from workbench.clips.frame_metrics import Pixels

MOTION_FPS = 8  # as in the dataset check
SHARP_LONGEST, SHARP_FRAMES = 720, 4
POLL_SECONDS = 0.5
TIMEOUT = 60.0  # seconds without a new video; `Grid.maintain` restarts the job when one appears
LONGEST = 128  # longest side of the frames that signatures are made from, in pixels, as in the dataset check
# Differences are those of `frame_metrics.alike`. Among 3,828 pairs of different demo clips, which have very plain
# scenes, the smallest is 0.47 and half are above 1.5; in real footage they are 1.9 or more; re-encoding a clip changes
# it by up to 0.14. So below COPY a video repeats a clip, and below NEAR it resembles one by more than chance.
COPY, NEAR = 0.25, 0.45
SAME = 0.06  # clips that differ by less are copies of each other
MOST_COMPARED = 500  # clips
APART = 0.5  # of the usual difference between the clips: if all clips look alike, every video resembles one of them

HELP = {
    "distance": "How much the pixels differ from the base model's video in this row, on average, in levels of 255. 0 "
    "is the same video; from about 25, it shows something else.",
    "motion": "How much the picture changes within an eighth of a second, in levels of 255. Below 0.5, nothing moves. "
    "A LoRA that makes everything stand still shows here first.",
    "sharpness": "How much fine detail there is: 100% is crisp, below about 40% looks soft. Training too long or too "
    "strongly often blurs the picture or breaks it up into false detail.",
    "nearest": "How much the video differs from the nearest training clip. Different scenes differ by 0.5 or more. "
    "Below 0.25 it repeats that clip: the LoRA may have memorized it.",
}
# Measurement -> title, format, the limit below which it hints at a problem, and a word for values below each limit.
SCALES: dict[str, tuple[str, str, float, dict[float, str]]] = {
    "distance": ("from {}", "{:.1f}", 0.0, WORDS),
    "motion": ("motion", "{:.1f}", 0.5, {0.5: "stands still", 2: "calm", 8: "lively", math.inf: "wild"}),
    "sharpness": ("sharpness", "{:.0%}", 0.38, {0.38: "blurred", 0.5: "soft", math.inf: "sharp"}),
}


@dataclass(frozen=True)
class VideoMeasurement:
    """A measurement ready to show; `warn` says that it hints at a problem."""

    name: str
    title: str
    value: str
    words: str
    warn: bool = False


def run(grid: Grid, job: jobs.Job) -> None:
    """Measure finished videos, including those that finish while the job runs. Raises jobs.Stop."""
    clips, last = None, time.monotonic()
    while True:
        state = grid.state()
        todo = [cell for cell in state.all if cell.video and not state.is_measured(cell)]
        if todo and clips is None:
            known = grid.workspace.run(grid.settings.run) if grid.settings.run else None
            kept = grid.folder / ".measurements" / "clips.json"
            clips = trained_on(grid.workspace, Run(known), kept) if known and known.is_dir() else []
        for index, cell in enumerate(todo):
            job.check_stop("Stopped; finished measurements are kept.")
            job.beat("measuring", index, len(todo))
            measured = {**read_measurements(grid.folder), cell.key: measure(cell, state, clips or [])}
            write_json(grid.folder / MEASUREMENTS, {"cells": measured})
            last = time.monotonic()
        if not todo:
            if not state.going or time.monotonic() - last > TIMEOUT:
                return
            job.beat("waiting for videos")
            time.sleep(POLL_SECONDS)


def measure(cell: Cell, state: GridState, clips: Sequence[TrainingClip]) -> dict[str, Any]:
    """Measure a video; if it cannot be read, return "error" with the versions."""
    assert cell.video is not None
    reference = state.references[cell.key]
    versions = {"version": stamp(cell.video), "reference": reference}
    try:
        found = of_video(cell.video)
        found_signature = found.pop("signature")
        if reference and (other := state.cell(reference.partition("@")[0]).video):
            apart = media.difference(cell.video, other)
            found |= {"distance": apart.levels, "psnr": apart.psnr} if apart else {}
        return {**versions, **found, **nearest_clip(found_signature, clips, usual_difference(clips))}
    except DataError as error:
        return {**versions, "error": str(error)}


def of_video(path: Path) -> dict[str, Any]:
    """Measure a video's motion (levels of 255), sharpness (0 to 1) and signature (bytes). Raises DataError."""
    import numpy as np

    fps = media.probe(path).fps or 8.0
    stride = max(1, round(fps / MOTION_FPS))
    small: list[Pixels] = []
    large: list[Pixels] = []
    for _, frame in media.raw_frames(path):
        small.append(frame_metrics.small(frame, LONGEST))
        large.append(frame_metrics.small(frame, SHARP_LONGEST, "gray"))
    if not small:
        raise DataError(f"{path.name} has no frames: generate it again")
    # In color, because a red object may be as bright as the green ground behind it.
    halved = [frame_metrics.halved(picture).astype(np.float32) for picture in small[::stride]]
    moved = [float(np.abs(after - before).mean()) for before, after in zip(halved, halved[1:], strict=False)]
    indices = sorted({int((part + 0.5) * len(large) / SHARP_FRAMES) for part in range(SHARP_FRAMES)})
    return {
        "motion": round(float(np.median(moved or [0.0])), 2),
        "sharpness": round(1 - float(np.median([frame_metrics.blur(large[index]) for index in indices])), 3),
        "signature": signature(small),
    }


def describe(measured: dict[str, Any], reference: str = "base model") -> list[VideoMeasurement]:
    """Put a video's measurements into words; [] if nothing was measured."""
    if measured.get("error"):
        return [VideoMeasurement("error", "not measured", "", str(measured["error"]), warn=True)]
    found = []
    for name, (title, form, warned, limits) in SCALES.items():
        if (value := measured.get(name)) is not None:
            words = next(word for limit, word in limits.items() if value < limit)
            found.append(VideoMeasurement(name, title.format(reference), form.format(value), words, value < warned))
    if "nearest" in measured:
        value, clip, copied = measured["nearest_difference"], measured["nearest"], bool(measured.get("copied"))
        near = "nearly" if copied else "resembles" if value < NEAR else ""
        words = f"{near} the training clip {clip}" if near else "unlike any training clip"
        found.append(VideoMeasurement("nearest", "training clips", f"{value:.2f}", words, warn=copied))
    return found


# ---- the nearest training clip --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TrainingClip:
    """A clip that a run was trained on."""

    name: str
    signature: bytes


def signature(pictures: Sequence[Pixels]) -> bytes:
    """Compute the signature of a video's frames, each BGR [H, W, 3]."""
    return frame_metrics.fingerprint([pictures[index] for index in signature_frames(len(pictures))])


def signature_frames(count: int) -> list[int]:
    """Return the indices of the frames, out of `count`, that a signature is made from."""
    return [int((part + 0.5) * count / frame_metrics.PRINT_FRAMES) for part in range(frame_metrics.PRINT_FRAMES)]


def trained_on(workspace: Workspace, run: Run, kept: Path) -> list[TrainingClip]:
    """Return a run's clips with their signatures, which the file `kept` caches. Missing clips are left out."""
    known, found = read_object(kept), []
    prints = dict(known)
    for clip in read_lock(run.folder):
        path = _file(workspace, run, clip)
        if path is None or clip.get("role") == "held_out":
            continue
        mark = f"{clip.get('sha256')} {clip.get('indices')} {clip.get('crop')} {clip.get('resize')}"
        if mark not in prints:
            with contextlib.suppress(DataError, OSError):
                prints[mark] = base64.b64encode(_print(path, clip)).decode()
        if mark in prints:
            found.append(TrainingClip(clip["name"], base64.b64decode(prints[mark])))
    if prints != known:
        write_json(kept, prints)
    return found


def _file(workspace: Workspace, run: Run, clip: dict[str, Any]) -> Path | None:
    settings = run.settings
    names = [*(one.name for one in sources_of(settings)), *filter(None, [settings.regularization_dataset])]
    for name in names:
        with contextlib.suppress(ConfigError):
            path = confined(workspace.dataset(name), str(clip.get("file_name", "")))
            if path.is_file():
                return path
    return None


def _print(path: Path, clip: dict[str, Any]) -> bytes:
    """Compute the signature of the frames and the part of the picture that training used. Raises DataError."""
    indices = list(clip["indices"])
    wanted = [indices[index] for index in signature_frames(len(indices))]
    height, width = clip["resize"]
    unique = sorted(set(wanted))
    frames = media.read_frames(path, unique, (height, width), tuple(clip["crop"]))
    by_number = dict(zip(unique, frames, strict=True))
    return frame_metrics.fingerprint([by_number[number][..., ::-1] for number in wanted])


def differences(one: bytes, others: Sequence[bytes]) -> list[float]:
    """Compute how much a signature differs from others: RMS difference divided by the smaller contrast."""
    import numpy as np

    table = np.frombuffer(b"".join([one, *others]), np.uint8).reshape(len(others) + 1, -1).astype(np.float32)
    contrast = np.maximum(table.reshape(len(table), -1, 3).var(1).mean(1) ** 0.5, 8.0)
    apart = ((table[1:] - table[0]) ** 2).mean(1) ** 0.5
    found: list[float] = (apart / np.minimum(contrast[1:], contrast[0])).tolist()
    return found


def usual_difference(clips: Sequence[TrainingClip]) -> float | None:
    """Return a clip's median difference from its nearest clip, ignoring copies; None for fewer than three clips."""
    import numpy as np

    some = [clip.signature for clip in clips[:MOST_COMPARED]]
    nearest = []
    for index, one in enumerate(some):
        apart = [value for value in differences(one, some[:index] + some[index + 1 :]) if value > SAME]
        nearest += [min(apart)] if apart else []
    return float(np.median(nearest)) if len(nearest) > 2 else None


def nearest_clip(signature: bytes, clips: Sequence[TrainingClip], usual: float | None) -> dict[str, Any]:
    """Find the clip nearest to a video, and whether it looks memorized; {} without clips.

    Args:
        usual: How much the clips usually differ from each other.
    """
    if not clips:
        return {}
    apart = differences(signature, [clip.signature for clip in clips])
    index = min(range(len(clips)), key=apart.__getitem__)
    difference = round(apart[index], 3)
    copied = difference < COPY and (usual is None or difference < APART * usual)
    return {"nearest": clips[index].name, "nearest_difference": difference, "copied": copied}
