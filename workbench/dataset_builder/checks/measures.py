"""Measure clips: motion, blur, shake, flashes, cuts, black bars, text, similarity; and their companions.

    .check/measures.jsonl    one line per content (sha256); lines of other versions of this module are ignored
    .check/pairs.jsonl       one line per clip content and companion, likewise

Each file is decoded once, at small size, in a child process (`main`), one per core. `frame_metrics` defines the
numbers, `dataset_check` judges them.
"""

from __future__ import annotations

import base64
import contextlib
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import BaseModel, ConfigDict

from workbench.clips import frame_metrics, media, sound, speech
from workbench.clips.frame_metrics import small
from workbench.clips.records import Clip, clip_file
from workbench.dataset_builder import tasks
from workbench.dataset_builder.cuts import scenes
from workbench.dataset_builder.settings import DetectorName
from workbench.dataset_builder.tasks import OnProgress, Tick, silent
from workbench.errors import DataError
from workbench.jobs.limited import ChildLost, LimitedChild, Watch, serve
from workbench.paths import extra_command
from workbench.workspace import append_line, make_folder
from workbench.workspace.records import read_json_lines

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from workbench.clips.frame_metrics import Pixels

    Video = NDArray[np.float32]

WORKER = "workbench.dataset_builder.checks.measures"
MODULES = ("av", "cv2", "numpy", "scenedetect")
SECONDS_PER_FRAME = 300.0  # timeout of the child for one frame
FOLDER, FILE = ".check", "measures.jsonl"
PAIRS_FILE = "pairs.jsonl"
VERSION, PAIRS_VERSION = 3, 1  # increase them when the numbers change their meaning
SHARP_LONGEST = 720  # pixels of the longer side when blur is measured
STEPS = 8  # motion samples per second
SHAKE_STEPS = 15  # shake samples per second
SHARP_LOOKS = 4  # blur samples per clip
CUTS_BY: DetectorName = "adaptive"  # splitting's default
CHANGED = 6.0  # levels; smaller changes of a pixel are noise
STILL = 0.005  # largest share of changed pixels in a still picture


class Heard(BaseModel):
    """Measurements of a clip's sound, as in `sound.Loudness`.

    error: why it cannot be read, or "". speech: the share of it that sounds like speech (speech.speech_share).
    """

    model_config = ConfigDict(frozen=True)

    error: str = ""
    seconds: float = 0.0
    rms: float = sound.LEAST_DB
    clipped: float = 0.0
    peak: float = 0.0
    speech: float = 0.0


class Measures(BaseModel):
    """Measurements of one clip.

    error: why the clip cannot be read (the numbers are then 0), or "".
    motion: mean change within 1/8 s, in levels (0 to 255).
    still: share of the clip, 0 to 1, in which nothing changes for a second.
    blur: 0 (sharp) to 1.
    shake: percent of the width from step to step.
    flashes: (first frame, first frame after it, height in levels).
    cuts: (first frame of the new shot, score), down to the detector's lowest threshold.
    letterbox: (left, top, width, height) of the picture inside black bars, in pixels; None without bars.
    text: (position, number of sampled frames that have it, the text); None if no reader is installed.
    fingerprint: base64 of a few tiny frames (frame_metrics.fingerprint).
    sound: of its sound track; None without one.
    """

    model_config = ConfigDict(frozen=True)

    sha256: str
    version: int = VERSION
    error: str = ""
    motion: float = 0.0
    still: float = 0.0
    blur: float = 0.0
    shake: float = 0.0
    flashes: tuple[tuple[int, int, float], ...] = ()
    cuts: tuple[tuple[int, float], ...] = ()
    letterbox: tuple[int, int, int, int] | None = None
    text: tuple[Text, ...] | None = None
    fingerprint: str = ""
    sound: Heard | None = None


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
    version: int = PAIRS_VERSION
    error: str = ""
    frames: int = 0
    width: int = 0
    height: int = 0
    fps: float = 0.0
    darkest: int = 0
    brightest: int = 0
    empty: int = 0
    follows: float | None = None


Found = TypeVar("Found", Measures, Pair)
Key = tuple[str, str]  # of a pair: sha256 of the clip, name of the companion


def _known(dataset: Path, file: str, shape: type[Found]) -> Iterator[Found]:
    """Yield the results in a file below FOLDER, skipping torn lines and other versions."""
    for line in read_json_lines(dataset / FOLDER / file):
        with contextlib.suppress(ValueError):
            found = shape.model_validate(line)
            if found.version == shape.model_fields["version"].default:
                yield found


def read_measures(dataset: Path) -> dict[str, Measures]:
    """Read the known measurements by sha256."""
    return {found.sha256: found for found in _known(dataset, FILE, Measures)}


def measure_all(dataset: Path, clips: Sequence[Clip], on_progress: OnProgress = silent) -> dict[str, Measures]:
    """Measure the clips that are not measured yet; return the measurements of all by sha256.

    Each result is written at once, so resuming after a stop repeats nothing. A clip that crashes its child does not
    affect others. A stop kills the children at once. Raises CannotWrite and what `on_progress` raises.
    """
    known, text = read_measures(dataset), can_read_text()
    if text:  # repeat measurements from before the text reader was installed
        known = {sha256: found for sha256, found in known.items() if found.error or found.text is not None}
    missing = {clip.sha256: clip for clip in clips if clip.sha256 not in known}
    items = [(clip, {"text": text}, Measures(sha256=sha256)) for sha256, clip in missing.items()]
    for found in _in_children(dataset, FILE, "measuring pictures", items, on_progress):
        known[found.sha256] = found
    return {clip.sha256: known[clip.sha256] for clip in clips}


def measure_pairs(dataset: Path, clips: Sequence[Clip], on_progress: OnProgress = silent) -> dict[Key, Pair]:
    """Measure the companions that are not measured yet and whose files exist. Raises as `measure_all`."""
    known = {(found.sha256, found.name): found for found in _known(dataset, PAIRS_FILE, Pair)}
    items = [
        (clip, {"kind": kind}, Pair(sha256=clip.sha256, name=name))
        for clip in clips
        for kind, name in clip.companions.items()
        if (clip.sha256, name) not in known and is_there(dataset, name)
    ]
    for pair in _in_children(dataset, PAIRS_FILE, "comparing pairs", items, on_progress) if items else ():
        known[pair.sha256, pair.name] = pair
    return known


def is_there(dataset: Path, name: str) -> bool:
    """Whether a file that a record names exists, inside the dataset."""
    try:
        return clip_file(dataset, name).is_file()
    except DataError:
        return False


def _in_children(
    dataset: Path,
    file: str,
    phase: str,
    items: Sequence[tuple[Clip, dict[str, Any], Found]],
    on_progress: OnProgress,
) -> list[Found]:
    """Measure items in child processes, one per core; append each result to a file below FOLDER as it arrives.

    items: the clip, its task for `main` besides, and the result before it is measured.
    """
    make_folder(dataset / FOLDER)
    children = [LimitedChild(WORKER, dataset) for _ in range(tasks.WORKERS)]
    free = list(children)

    def work(item: tuple[Clip, dict[str, Any], Found], tick: Tick) -> Found:
        clip, task, found = item
        child = free.pop()
        try:
            answer = child.ask({"clip": clip.model_dump(mode="json"), **task}, SECONDS_PER_FRAME)
            found = type(found).model_validate_json(answer)
        except ChildLost as lost:
            reason = f"gave no frame for {SECONDS_PER_FRAME:.0f} s" if lost.late else "crashed the decoder"
            reason = f"it {reason}" if isinstance(found, Pair) else f"{reason}: import it again"
            found = found.model_copy(update={"error": reason})
        finally:
            free.append(child)
        tick(clip.frames)
        return found

    def keep(found: Found) -> None:
        append_line(dataset / FOLDER / file, found.model_dump_json())

    def kill_children() -> None:
        for child in children:
            child.kill()

    frames = sum(clip.frames for clip, _, _ in items)
    try:
        return tasks.each(phase, frames, items, work, on_progress, on_done=keep, on_stop=kill_children)
    finally:
        for child in children:
            child.close()


# ---- in the child ----------------------------------------------------------------------------------------------------


def main(dataset: Path) -> None:
    """Measure clips and pairs until stdin ends."""

    def handle(task: dict[str, Any], watch: Watch) -> str:
        clip = Clip.model_validate(task["clip"])
        if "kind" in task:
            return measure_pair(dataset, clip, task["kind"], watch.progress).model_dump_json()
        return measure(dataset, clip, task["text"], watch.progress).model_dump_json()

    serve(handle, MODULES)


def measure(dataset: Path, clip: Clip, text: bool = True, on_frame: Callable[[], None] = silent) -> Measures:
    """Decode and measure a clip. text: whether to detect text, if a reader is installed."""
    try:
        path = clip_file(dataset, clip.file_name)
        numbers = _look_at_pictures(path, clip.frames, clip.fps or 8.0, on_frame)
        letterbox = find_letterbox(path)
        texts = find_text(path) if text and can_read_text() else None
        heard = _listen(path, on_frame)
    except (DataError, OSError) as error:
        return Measures(sha256=clip.sha256, error=str(error))
    return Measures(sha256=clip.sha256, letterbox=letterbox, text=texts, sound=heard, **numbers)


def _listen(path: Path, tick: Callable[[], None]) -> Heard | None:
    """Measure a clip's sound, None without one."""
    try:
        if (found := sound.loudness(path, tick)) is None:
            return None
        return Heard(**found._asdict(), speech=round(speech.speech_share(path, tick), 3))
    except DataError as error:
        return Heard(error=str(error))


def _look_at_pictures(path: Path, frames: int, fps: float, on_frame: Callable[[], None]) -> dict[str, Any]:
    """Measure a clip in one pass over its frames; return fields of `Measures`. Raises DataError.

    Keeps one second of small pictures in memory, and a tiny one of every frame.
    """
    import cv2
    import numpy as np

    def spread(looks: int) -> set[int]:
        """Return evenly spaced frame numbers."""
        return {int((part + 0.5) * frames / looks) for part in range(looks)}

    def is_unchanged() -> bool:
        """Whether the first and last picture of the past second are the same."""
        return bool((cv2.absdiff(second[-1], second[0]) > CHANGED).mean() < STILL)

    prints_at, sharp_at = spread(frame_metrics.PRINT_FRAMES), spread(SHARP_LOOKS)
    stride, shake_stride = max(1, round(fps / STEPS)), max(1, round(fps / SHAKE_STEPS))
    scorer = scenes.Scorer(CUTS_BY)
    blur, motion, still = list[float](), list[float](), list[bool]()
    moves: list[tuple[float, float] | None] = []
    prints: list[Pixels] = []
    second: deque[Pixels] = deque(maxlen=STEPS + 1)
    steady: Pixels | None = None
    width = 0
    for number, (_, frame) in enumerate(media.raw_frames(path)):
        color = frame_metrics.small(frame, scenes.LONGEST_SIDE)
        width = color.shape[1]
        scorer.look(color)
        if number % stride == 0 or number % shake_stride == 0:
            gray = frame_metrics.gray(color)
        if number % stride == 0:
            half = frame_metrics.halved(gray)
            if second:
                motion.append(float(cv2.absdiff(half, second[-1]).mean()))
            second.append(half)
            if len(second) == STEPS + 1:
                still.append(is_unchanged())
        if number % shake_stride == 0:
            if steady is not None:
                moves.append(frame_metrics.camera_move(steady, gray))
            steady = gray
        if number in prints_at:
            prints.append(color)
        if number in sharp_at:
            blur.append(frame_metrics.blur(frame_metrics.small(frame, SHARP_LONGEST, "gray")))
        on_frame()
    scores = scorer.scores(fps)
    cuts = scenes.cuts(scores, scenes.DETECTORS[CUTS_BY].low)
    prints += prints[-1:] * (frame_metrics.PRINT_FRAMES - len(prints))  # for very short clips
    return {
        "motion": round(float(np.median(motion or [0])), 2),
        "still": round(float(np.mean(still or [len(second) > 1 and is_unchanged()])), 3),
        "blur": round(float(np.median(blur or [0])), 3),
        "shake": round(frame_metrics.shake(moves, width), 3),
        "flashes": tuple(frame_metrics.flashes(scorer.tiny, fps)),
        "cuts": tuple((frame, round(float(scores[frame]), 2)) for frame in cuts),
        "fingerprint": base64.b64encode(frame_metrics.fingerprint(prints)).decode(),
    }


# ---- companions ------------------------------------------------------------------------------------------------------

PAIR_SIDE = 256  # pixels of the longer side when pictures are compared
GRID = (16, 12)  # columns and rows of cells whose changes are compared
MARKED = 32  # levels: a mask is empty if no pixel is brighter, full if none is darker than white by more
UNCHANGED = 0.3  # levels of mean change per frame below which too little moves to compare


def measure_pair(dataset: Path, clip: Clip, kind: str, on_frame: Callable[[], None] = silent) -> Pair:
    """Decode and measure a companion, a control clip together with its clip."""
    from PIL import Image

    name = clip.companions[kind]
    found = Pair(sha256=clip.sha256, name=name)
    try:
        path = clip_file(dataset, name)
        if path.suffix.lower() == ".png":
            with Image.open(path, formats=["PNG"]) as image:
                image.load()
                return found.model_copy(update={"frames": 1, "width": image.width, "height": image.height})
        about, levels = media.probe(path), list[tuple[int, int]]()
        numbers: dict[str, Any] = {"width": about.width, "height": about.height, "fps": about.fps, "frames": 0}
        for _, frame in media.raw_frames(path):
            numbers["frames"] += 1
            if kind == "mask":
                picture = small(frame, PAIR_SIDE, "gray")
                levels.append((int(picture.min()), int(picture.max())))
            on_frame()
        if levels:
            numbers |= {"darkest": min(low for low, _ in levels), "brightest": max(high for _, high in levels)}
            numbers["empty"] = sum(high <= MARKED for _, high in levels)
        if kind == "control" and not clip.is_latents and numbers["frames"] == clip.frames:
            numbers["follows"] = _follows(clip_file(dataset, clip.file_name), path, on_frame)
        return found.model_copy(update=numbers)
    except (DataError, OSError) as error:
        return found.model_copy(update={"error": str(error)})


def _follows(clip: Path, control: Path, on_frame: Callable[[], None]) -> float | None:
    """Correlate the changes of a clip and its control clip over all frames and cells; None if too little moves."""
    import numpy as np

    changes: tuple[list[Any], list[Any]] = ([], [])
    before: list[Any] = [None, None]
    for pair in zip(media.raw_frames(clip), media.raw_frames(control), strict=False):
        for at, (_, frame) in enumerate(pair):
            picture = frame_metrics.small(frame, PAIR_SIDE, "gray").astype(np.float32)
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


# ---- black bars ------------------------------------------------------------------------------------------------------

BAR_LOOKS = 16  # sampled frames
BLACK, BLACK_SHARE = 32, 0.7  # level, and least share of black pixels in an outermost line (the rest may be a logo)
PIECES, SHORTEST = 32, 12  # most pieces of a line, and pixels per piece, whose means average out noise
TOLERANCE = 8.0  # levels by which a piece of a bar may differ from the bar's color in any frame
IN_BAR = 0.25  # share of a bar's pieces that may differ (a logo); in the picture, half and more do
BEGINS = 0.6  # share of a bar's length along which the picture must begin in the same frame
EDGE = 8  # lines over which an encoder may blur the edge: one block
THINNEST, THICKEST = 0.01, 0.4  # of the picture's side
ALIKE = 0.25  # relative difference allowed between opposite bars
Box = tuple[int, int, int, int]


def find_letterbox(path: Path) -> Box | None:
    """Detect black bars in a canonical clip; return the picture inside them (left, top, width, height; even), or None.

    Raises DataError if the clip cannot be read.
    """
    import numpy as np

    pictures = []
    for _, frame in media.spread_frames(path, BAR_LOOKS):
        pictures.append(frame.to_ndarray(format="rgb24"))
        black = (pictures[-1] < BLACK).all(axis=2)
        edges = (black[:, 0], black[:, -1], black[0], black[-1])
        left, right, top, bottom = (edge.mean() >= BLACK_SHARE for edge in edges)
        if not ((left and right) or (top and bottom)):
            return None  # most clips end here, after one frame
    height, width, _ = pictures[0].shape
    left, right = _bars(np.stack([_pieces(one, 1) for one in pictures]))
    top, bottom = _bars(np.stack([_pieces(one[:, left : width - right], 0) for one in pictures]))
    if (top or bottom) and not (left or right):  # with a low picture, bars at the sides are short: try again within it
        left, right = _bars(np.stack([_pieces(one[top : height - bottom], 1) for one in pictures]))
    if not (left or right or top or bottom):
        return None
    left, top, right, bottom = (side + side % 2 for side in (left, top, right, bottom))
    return left, top, width - left - right, height - top - bottom


def _pieces(picture: Any, axis: int) -> Any:
    """Average over pieces of each line (rows for axis 0, columns for axis 1); float32 [lines, at most PIECES, 3]."""
    import numpy as np

    lines = np.moveaxis(picture, axis, 0)
    pieces = max(1, min(PIECES, lines.shape[1] // SHORTEST))
    length = lines.shape[1] - lines.shape[1] % pieces
    return lines[:, :length].reshape(lines.shape[0], pieces, -1, 3).mean(axis=2, dtype=np.float32)


def _bars(video: Video) -> tuple[int, int]:
    """Return the thickness of the bars at both ends, in lines; (0, 0) unless both are certain."""
    first, last = _bar(video), _bar(video[:, ::-1])
    if not first or not last or abs(first - last) > max(EDGE, ALIKE * max(first, last)):
        return 0, 0
    return first, last


def _bar(video: Video) -> int:
    """Return the thickness of the bar at the start, in lines, including its blurred edge; 0 for none."""
    import numpy as np

    lines = video.shape[1]
    color = np.median(video[:, : max(2, int(THINNEST * lines))], axis=(0, 1, 2))
    differs = np.abs(video - color).max(axis=3)  # [frames, lines, pieces], the largest over the color channels
    in_bar = (differs.max(axis=0) > TOLERANCE).mean(axis=1) <= IN_BAR
    bar = lines if in_bar.all() else int(np.argmin(in_bar))
    if color.max() >= BLACK or not max(2, THINNEST * lines) <= bar <= THICKEST * lines:
        return 0
    if (differs[:, bar : bar + EDGE] > TOLERANCE / 2).mean(axis=2).max() < BEGINS:
        return 0  # something moving in front of a black background
    if in_bar[bar + EDGE : lines - int(THICKEST * lines)].any():
        return 0  # a striped background
    usual = np.median(differs.max(axis=0), axis=1)
    picture = np.median(usual[bar + EDGE : bar + 3 * EDGE])
    begun = np.flatnonzero((usual[bar : bar + EDGE] >= picture / 2) & (usual[bar : bar + EDGE] > TOLERANCE))
    return bar + int(begun[0]) if begun.size else 0


# ---- text ------------------------------------------------------------------------------------------------------------

PACKAGES = ("rapidocr", "onnxruntime")
MISSING = f"{extra_command('text')}, then check again"
TEXT_LOOKS = 4  # sampled frames
LONGEST, FOUND_AT = 960, 480  # pixels of the longer side for recognition and for detection
SURE = 0.8  # least confidence; textures and plain shapes rarely reach it
FEWEST = 2  # letters or digits: a single one may be a circle or a frame
Text = tuple[str, int, str]  # (position in words, number of sampled frames that have it, the text)


def can_read_text() -> bool:
    """Whether the packages for text detection are installed. Loads nothing."""
    return all(find_spec(name) for name in PACKAGES)


def find_text(path: Path) -> tuple[Text, ...]:
    """Read text in a canonical clip, one entry per position. Needs `can_read_text`. Raises DataError."""
    found: dict[str, list[str]] = {}
    for _, frame in media.spread_frames(path, TEXT_LOOKS):
        picture = small(frame, LONGEST)
        here: dict[str, str] = {}
        made = _reader()(picture)
        lines = zip(made.txts or (), made.boxes if made.txts else (), made.scores or (), strict=True)
        for text, box, sure in lines:
            if sure < SURE or sum(map(str.isalnum, text)) < FEWEST:
                continue
            position = _position(box, picture.shape[1], picture.shape[0])
            here[position] = f"{here[position]} {text}" if position in here else text
        for position, text in here.items():
            found.setdefault(position, []).append(text)
    return tuple((position, len(texts), max(texts, key=len)) for position, texts in found.items())


@lru_cache(maxsize=1)
def _reader() -> Any:
    from rapidocr import RapidOCR

    return RapidOCR(
        params={
            "Global.use_cls": False,  # detection of upside-down text
            "Global.log_level": "critical",
            "Det.limit_type": "max",
            "Det.limit_side_len": FOUND_AT,
            "EngineConfig.onnxruntime.intra_op_num_threads": 1,  # there is already one child per core
        }
    )


def _position(corners: Sequence[Sequence[float]], width: int, height: int) -> str:
    """Name a position by thirds of the picture: "top left", "bottom", "middle" ..."""
    across = sum(float(x) for x, _ in corners) / 4 / width
    down = sum(float(y) for _, y in corners) / 4 / height
    words = ["top", "", "bottom"][min(2, int(3 * down))], ["left", "", "right"][min(2, int(3 * across))]
    return " ".join(word for word in words if word) or "middle"


if __name__ == "__main__":
    main(Path(sys.argv[1]))
