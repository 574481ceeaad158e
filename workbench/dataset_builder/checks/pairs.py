"""Check companions against their clips: length and size, what a mask marks, whether a control clip moves alike.

    .check/pairs.jsonl    one line per clip content and companion; lines of other versions are ignored

Each pair is decoded once, at small size, in a child process (`main`).
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from workbench.clips import frame_metrics, media
from workbench.clips.records import COMPANION_NAMES, Clip, clip_file
from workbench.dataset_builder.checks.findings import Finding, finding_of
from workbench.dataset_builder.checks.measures import FOLDER, MODULES, SECONDS_PER_FRAME, in_children
from workbench.dataset_builder.companions import RATE
from workbench.dataset_builder.tasks import OnProgress, silent
from workbench.errors import DataError
from workbench.jobs.limited import ChildLost, LimitedChild, Watch, serve
from workbench.workspace.records import read_json_lines

WORKER = "workbench.dataset_builder.checks.pairs"
FILE = "pairs.jsonl"
VERSION = 1  # increase it when the numbers change their meaning
LONGEST_SIDE = 256  # pixels of the longer side when pictures are compared
GRID = (16, 12)  # columns and rows of cells whose changes are compared
MARKED = 32  # levels: a mask is empty if no pixel is brighter, full if none is darker than white by more
UNCHANGED = 0.3  # levels of mean change per frame below which too little moves to compare
# Correlation of the changes, cell by cell: matching pairs of real clips have 0.3 to 1, others at most 0.25.
FOLLOWS = 0.25


class Pair(BaseModel):
    """Measurements of a clip's companion.

    sha256: the clip's.
    name: the companion's file name, relative to the dataset folder.
    error: why it cannot be read, or "".
    darkest, brightest: levels of a mask's pixels over all frames.
    empty: number of frames in which a mask marks nothing.
    follows: correlation of the changes in clip and control clip; None if too little moves to tell.
    """

    model_config = ConfigDict(frozen=True)

    sha256: str
    name: str
    version: int = VERSION
    error: str = ""
    frames: int = 0
    width: int = 0
    height: int = 0
    fps: float = 0.0
    darkest: int = 0
    brightest: int = 0
    empty: int = 0
    follows: float | None = None


Key = tuple[str, str]  # sha256 of the clip, name of the file


def measure_pairs(dataset: Path, clips: Sequence[Clip], on_progress: OnProgress = silent) -> dict[Key, Pair]:
    """Measure the companions that are not measured yet and whose files exist. Raises as `measure_all`."""
    known: dict[Key, Pair] = {}
    for line in read_json_lines(dataset / FOLDER / FILE):
        with contextlib.suppress(ValueError):
            found = Pair.model_validate(line)
            if found.version == VERSION:
                known[found.sha256, found.name] = found
    missing = [
        (clip, kind)
        for clip in clips
        for kind, name in clip.companions.items()
        if _is_there(dataset, name) and (clip.sha256, name) not in known
    ]

    def ask(child: LimitedChild, clip: Clip, kind: str) -> Pair:
        try:
            answer = child.ask({"clip": clip.model_dump(mode="json"), "kind": kind}, SECONDS_PER_FRAME)
        except ChildLost:
            return Pair(sha256=clip.sha256, name=clip.companions[kind], error="it crashed the decoder")
        return Pair.model_validate_json(answer)

    if missing:
        for pair in in_children(dataset, WORKER, FILE, "comparing pairs", missing, ask, on_progress):
            known[pair.sha256, pair.name] = pair
    return known


def _is_there(dataset: Path, name: str) -> bool:
    try:
        return clip_file(dataset, name).is_file()
    except DataError:
        return False


# ---- in the child ----------------------------------------------------------------------------------------------------


def main(dataset: Path) -> None:
    """Measure pairs until stdin ends."""

    def handle(task: dict[str, Any], watch: Watch) -> str:
        clip = Clip.model_validate(task["clip"])
        return measure_pair(dataset, clip, task["kind"], watch.progress).model_dump_json()

    serve(handle, MODULES)


def measure_pair(dataset: Path, clip: Clip, kind: str, on_frame: Callable[[], None] = silent) -> Pair:
    """Decode and measure a companion, a control clip together with its clip."""
    name = clip.companions[kind]
    found = Pair(sha256=clip.sha256, name=name)
    try:
        path = clip_file(dataset, name)
        if path.suffix.lower() == ".png":
            return found.model_copy(update=_picture(path))
        about = media.probe(path)
        size = {"width": about.width, "height": about.height, "fps": about.fps}
        numbers = _mask(path, on_frame) if kind == "mask" else _count(path, on_frame)
        if kind == "control" and not clip.is_latents and numbers["frames"] == clip.frames:
            numbers["follows"] = _follows(clip_file(dataset, clip.file_name), path, on_frame)
        return found.model_copy(update={**size, **numbers})
    except (DataError, OSError) as error:
        return found.model_copy(update={"error": str(error)})


def _picture(path: Path) -> dict[str, Any]:
    from PIL import Image

    with Image.open(path, formats=["PNG"]) as picture:
        picture.load()
        return {"frames": 1, "width": picture.width, "height": picture.height}


def _count(path: Path, on_frame: Callable[[], None]) -> dict[str, Any]:
    frames = 0
    for _ in media.raw_frames(path):
        frames += 1
        on_frame()
    return {"frames": frames}


def _mask(path: Path, on_frame: Callable[[], None]) -> dict[str, Any]:
    darkest, brightest, empty, frames = 255, 0, 0, 0
    for _, frame in media.raw_frames(path):
        picture = frame_metrics.small(frame, LONGEST_SIDE, "gray")
        darkest, brightest = min(darkest, int(picture.min())), max(brightest, int(picture.max()))
        empty += int(picture.max()) <= MARKED
        frames += 1
        on_frame()
    return {"frames": frames, "darkest": darkest, "brightest": brightest, "empty": empty}


def _follows(clip: Path, control: Path, on_frame: Callable[[], None]) -> float | None:
    """Correlate the changes of a clip and its control clip over all frames and cells; None if too little moves."""
    import numpy as np

    changes: tuple[list[Any], list[Any]] = ([], [])
    before: list[Any] = [None, None]
    for pair in zip(media.raw_frames(clip), media.raw_frames(control), strict=False):
        for at, (_, frame) in enumerate(pair):
            picture = frame_metrics.small(frame, LONGEST_SIDE, "gray").astype(np.float32)
            if before[at] is not None:
                changes[at].append(frame_metrics.shrunk(np.abs(picture - before[at]), *GRID))
            before[at] = picture
        on_frame()
    if not changes[0]:
        return None
    ours, theirs = (np.stack(one) for one in changes)
    if min(float(ours.mean()), float(theirs.mean())) < UNCHANGED or not ours.std() or not theirs.std():
        return None
    return round(float(np.corrcoef(ours.ravel(), theirs.ravel())[0, 1]), 3)


# ---- findings --------------------------------------------------------------------------------------------------------


def check_pairs(dataset: Path, clips: Sequence[Clip], measured: Mapping[Key, Pair]) -> Iterator[Finding]:
    """Yield the problems of clips' companions, one finding per file and problem."""
    for clip, (kind, name) in ((one, item) for one in clips for item in one.companions.items()):
        said = f"The {COMPANION_NAMES[kind]} of {clip.name}"
        about = {"kind": kind, "beside": name}
        found = measured.get((clip.sha256, name))
        if not _is_there(dataset, name):
            yield finding_of("beside_missing", f"{said} is missing ({name}).", [clip], about=about)
        elif found is not None and found.error:
            yield finding_of("beside_damaged", f"{said} cannot be read: {found.error}.", [clip], about=about)
        elif found is not None and kind in ("control", "mask"):
            yield from _check_pair(clip, kind, found, said, about)


def _check_pair(clip: Clip, kind: str, found: Pair, said: str, about: dict[str, str]) -> Iterator[Finding]:
    ours = f"{clip.frames} frames at {clip.fps:.4g} fps"
    same_rate = not clip.fps or not found.fps or abs(found.fps / clip.fps - 1) < RATE
    if found.frames < clip.frames or not same_rate:
        theirs = f"{found.frames} frames at {found.fps:.4g} fps"
        yield finding_of("beside_short", f"{said} has {theirs}, the clip has {ours}.", [clip], about=about)
    elif found.frames > clip.frames:
        yield finding_of("beside_long", f"{said} has {found.frames} frames, the clip has {ours}.", [clip], about=about)
    if (found.width, found.height) != (clip.width, clip.height):
        sizes = f"{found.width}x{found.height}, the clip is {clip.width}x{clip.height}"
        yield finding_of("beside_size", f"{said} is {sizes}.", [clip], about=about)
    if kind == "mask" and found.brightest <= MARKED:
        sentence = f"{said} is black in every frame: it marks nothing, so nothing would be learned."
        yield finding_of("mask_empty", sentence, [clip], about=about)
    elif kind == "mask" and found.darkest >= 255 - MARKED:
        sentence = f"{said} is white in every frame: it marks everything, as if there were no mask."
        yield finding_of("mask_full", sentence, [clip], about=about)
    elif kind == "mask" and found.empty:
        share = f"{found.empty} of its {found.frames} frames"
        yield finding_of("mask_gaps", f"{said} is black in {share}: nothing is learned there.", [clip], about=about)
    if kind == "control" and found.follows is not None and found.follows < FOLLOWS:
        sentence = (
            f"{said} does not move like the clip (the correlation is {found.follows:.2f}, but matching pairs have "
            f"more than {FOLLOWS:g}): it may belong to another clip."
        )
        yield finding_of("beside_motion", sentence, [clip], about=about)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
