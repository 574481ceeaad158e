"""Whether what lies beside a clip belongs to it: length and size, what a mask marks, whether a control clip follows.

    .check/pairs.jsonl    a line for a clip's content and a file beside it; lines of other versions count as missing

Each pair is decoded once, small, in a child process (`main`).
"""

from __future__ import annotations

import contextlib
import itertools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from workbench.clips import frame_metrics, media
from workbench.clips.records import COMPANION_NAMES, Clip, clip_file
from workbench.dataset_builder import tasks
from workbench.dataset_builder.checks.findings import Finding, finding_of
from workbench.dataset_builder.checks.measures import FOLDER, MODULES, SECONDS_PER_FRAME
from workbench.dataset_builder.tasks import OnProgress, Tick, silent
from workbench.errors import DataError
from workbench.jobs.limited import ChildLost, LimitedChild, Watch, serve
from workbench.workspace import append_line, writing
from workbench.workspace.records import read_json_lines

WORKER = "workbench.dataset_builder.checks.pairs"
FILE = "pairs.jsonl"
VERSION = 1  # of what the numbers mean
LONGEST_SIDE = 256  # pixels of the pictures that are compared
GRID = (16, 12)  # columns and rows of the cells whose change is compared
RATE = 1e-3  # share by which the rates of a clip and its mask may differ
MARKED = 32  # levels: a mask is empty where no pixel is brighter, full where none is darker than white by more
UNCHANGED = 0.3  # levels of change from frame to frame: with less, nothing moves that a control clip could follow
# Correlation of the two changes, cell by cell: pairs of real clips that match have 0.3 to 1, others 0.25 at most.
FOLLOWS = 0.25


class Pair(BaseModel):
    """What a file beside a clip measures.

    sha256: of the clip; name: of the file, below the dataset's folder; error: why it cannot be read, "" when it can
    darkest, brightest: levels of a mask's pixels, over all frames; empty: in how many frames nothing is marked
    follows: correlation of the changes of clip and control clip; None where too little moves to tell
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
    """Measure what is not known yet of what lies beside clips, where its file is there. Raises as `measure_all`."""
    known: dict[Key, Pair] = {}
    for line in read_json_lines(dataset / FOLDER / FILE):
        with contextlib.suppress(ValueError):
            found = Pair.model_validate(line)
            if found.version == VERSION:
                known[found.sha256, found.name] = found
    wanted = [
        (clip, kind, name) for clip in clips for kind, name in clip.companions.items() if _is_there(dataset, name)
    ]
    missing = [one for one in wanted if (one[0].sha256, one[2]) not in known]
    if not missing:
        return known
    with writing(dataset):
        (dataset / FOLDER).mkdir(exist_ok=True)
    children = [LimitedChild(WORKER, dataset) for _ in range(tasks.WORKERS)]
    free = list(children)

    def ask_child(item: tuple[Clip, str, str], tick: Tick) -> Pair:
        clip, kind, name = item
        child = free.pop()
        try:
            task: dict[str, object] = {"clip": clip.model_dump(mode="json"), "kind": kind}
            answer = child.ask(task, SECONDS_PER_FRAME)
        except ChildLost:
            return Pair(sha256=clip.sha256, name=name, error="it brought the decoder down")
        finally:
            free.append(child)
        tick(clip.frames)
        return Pair.model_validate_json(answer)

    def keep(found: Pair) -> None:
        append_line(dataset / FOLDER / FILE, found.model_dump_json())
        known[found.sha256, found.name] = found

    def kill_children() -> None:
        for child in children:
            child.kill()

    frames = sum(clip.frames for clip, _, _ in missing)
    try:
        tasks.each("comparing pairs", frames, missing, ask_child, on_progress, on_done=keep, on_stop=kill_children)
    finally:
        for child in children:
            child.close()
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
    """Decode what lies beside a clip once, a control clip together with the clip."""
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
    """How alike the two change: the correlation over all frames and cells of the picture."""
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
    """What is wrong with what lies beside clips, a finding a file and problem."""
    for clip, kind in itertools.chain.from_iterable(((clip, kind) for kind in clip.companions) for clip in clips):
        name, said = clip.companions[kind], f"The {COMPANION_NAMES[kind]} of {clip.name}"
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
        yield finding_of("beside_short", f"{said} has {theirs}, the clip {ours}.", [clip], about=about)
    elif found.frames > clip.frames:
        yield finding_of("beside_long", f"{said} has {found.frames} frames, the clip {ours}.", [clip], about=about)
    if (found.width, found.height) != (clip.width, clip.height):
        sizes = f"{found.width}x{found.height}, the clip {clip.width}x{clip.height}"
        yield finding_of("beside_size", f"{said} is {sizes}.", [clip], about=about)
    if kind == "mask" and found.brightest <= MARKED:
        sentence = f"{said} is black in every frame: it marks nothing, and nothing would be learned."
        yield finding_of("mask_empty", sentence, [clip], about=about)
    elif kind == "mask" and found.darkest >= 255 - MARKED:
        sentence = f"{said} is white in every frame: it marks everything, as no mask does."
        yield finding_of("mask_full", sentence, [clip], about=about)
    elif kind == "mask" and found.empty:
        share = f"{found.empty} of its {found.frames} frames"
        yield finding_of("mask_gaps", f"{said} is black in {share}: nothing is learned there.", [clip], about=about)
    if kind == "control" and found.follows is not None and found.follows < FOLLOWS:
        sentence = (
            f"{said} does not move as the clip does (correlation {found.follows:.2f}, of pairs that match "
            f"more than {FOLLOWS:g}): it may belong to another clip."
        )
        yield finding_of("beside_motion", sentence, [clip], about=about)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
