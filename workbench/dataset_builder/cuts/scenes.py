"""Find the shots of clips, and split many clips into shots or pieces of equal length, as a job.

Shot detection follows PySceneDetect. Each clip is scored once and the scores are cached, so changing the threshold
decodes nothing. A cut is the first frame of the new shot. Flashes, after which the picture returns, do not count.
Dissolves and fades score low over many frames and are not found.

A split drops and reports short pieces. A clip without a piece that is long enough stays unchanged. All clips change at
once at the end. A split reuses the parts of one that was stopped or killed, and the scores of a preview.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import math
import time
import zlib
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from workbench import jobs
from workbench.clips import frame_metrics, media
from workbench.clips.records import Clip, clip_file, clips_named, read_clips
from workbench.dataset_builder import tasks
from workbench.dataset_builder.cuts import cutting
from workbench.dataset_builder.cuts.cutting import FEWEST, MASTERS, Cut, checked, cut_of, master_of
from workbench.dataset_builder.settings import DetectorName, SplitSettings, SplitTask
from workbench.dataset_builder.tasks import OnProgress, Tick, silent
from workbench.display.quantities import counted
from workbench.errors import ConfigError, DataError
from workbench.workspace import write_bytes

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Scores = NDArray[np.float32]

HEAD_AND_TAIL = 1 << 20  # bytes


def fingerprint(path: Path) -> str:
    """Hash a clip's size, first and last megabyte to 16 hex digits, in milliseconds for any length.

    An mp4's index, which contains the size of every frame, is at one of its ends. Raises DataError.
    """
    try:
        with path.open("rb") as file:
            size = path.stat().st_size
            head = file.read(HEAD_AND_TAIL)
            file.seek(max(0, size - HEAD_AND_TAIL))
            return hashlib.sha256(b"%d " % size + head + file.read(HEAD_AND_TAIL)).hexdigest()[:16]
    except OSError as error:
        raise DataError(f"{path.name} cannot be read ({error.strerror}): import it again") from error


# ---- filmstrip -------------------------------------------------------------------------------------------------------

WIDEST = 65_500  # pixels, JPEG's limit
STRIPS = "strips"  # folder of the page's filmstrips, below the workspace's cache
TILES, TILE_HEIGHT = 24, 74  # frames per strip, and height in pixels


@dataclass(frozen=True)
class Filmstrip:
    """A row of frames. path: the JPEG. times: each frame's time in seconds. width: pixels per frame."""

    path: Path
    times: tuple[float, ...]
    width: int


def filmstrip(path: Path, cache: Path, frames: int = 24, height: int = 64) -> Filmstrip:
    """Return a clip's filmstrip, cached in the folder `cache`. A clip with fewer frames has a shorter one.

    Raises DataError if the clip cannot be read or the strip would be too wide, CannotWrite.
    """
    import numpy as np
    from PIL import Image

    target = cache / f"{fingerprint(path)}-{frames}x{height}.jpg"
    if not target.exists():
        times, pictures = [], []
        for seconds, frame in media.spread_frames(path, frames):
            width = max(1, round(frame.width * height / frame.height))
            if width * frames > WIDEST:
                most = WIDEST // width
                raise DataError(f"a strip of {frames} frames of {width} pixels is too wide: use {most} or fewer")
            times.append(round(seconds, 6))
            resized = frame.reformat(width=width, height=height, format="rgb24", interpolation="AREA")
            pictures.append(resized.to_ndarray())
        if not pictures:
            raise DataError(f"{path.name} has no frames: import it again")
        strip = Image.fromarray(np.concatenate(pictures, axis=1))
        data = io.BytesIO()
        strip.save(data, "JPEG", quality=80, comment=json.dumps({"times": times, "width": width}))
        write_bytes(target, data.getvalue())
    with Image.open(target) as picture:  # the times are stored in the file itself
        about = json.loads(picture.info["comment"])
    return Filmstrip(target, tuple(about["times"]), about["width"])


# ---- shots -----------------------------------------------------------------------------------------------------------

RECIPE = 2  # increase it when scores change
LONGEST_SIDE = 128  # pixels; larger pictures give the same scores more slowly
LEAST_CONTENT = 15.0  # AdaptiveDetector's minimum difference for a cut
NEIGHBORS, MOST_TIMES = 2, 255.0  # AdaptiveDetector's window (frames on each side) and largest ratio
HASH_SIZE, HASH_FACTOR = 8, 2  # HashDetector's defaults


class Detector(NamedTuple):
    """A detector's default threshold, and its sensible range."""

    threshold: float
    low: float
    high: float


DETECTORS: dict[DetectorName, Detector] = {
    # PySceneDetect's 3.0 misses cuts between fast shots at low frame rates, where all neighbors differ much.
    "adaptive": Detector(2.0, 1.2, 10.0),  # change of a frame over that of its neighbors
    "content": Detector(27.0, 5.0, 80.0),  # mean change of hue, saturation and brightness, 0 to 255
    "hash": Detector(0.35, 0.1, 0.8),  # share of a perceptual hash's bits that flip, 0 to 1
}


def scores(path: Path, detector: DetectorName, cache: Path, tick: Tick = silent) -> Scores:
    """Return a clip's scores, cached in the folder `cache`, in constant memory.

    Raises DataError if the clip cannot be read, CannotWrite, and whatever `tick` raises.
    """
    import numpy as np

    # Not .npy: parsing its header in threads fails now and then ("AST constructor recursion depth mismatch", Python
    # 3.11).
    kept = cache / f"{fingerprint(path)}-{detector}-{RECIPE}.f4"
    with contextlib.suppress(OSError, ValueError, zlib.error):  # recompute missing or damaged scores
        return np.frombuffer(zlib.decompress(kept.read_bytes()), np.float32)
    scorer = Scorer(detector)
    for _, frame in media.frames_from(path):
        scorer.look(frame_metrics.small(frame, LONGEST_SIDE))
        tick()
    values: Scores = np.asarray(scorer.scores(media.probe(path).fps), np.float32)
    write_bytes(kept, zlib.compress(values.tobytes()))
    return values


def cuts(found: Scores, threshold: float) -> list[int]:
    """Return the first frame of each new shot, in order."""
    import numpy as np

    return [int(number) for number in np.flatnonzero(found >= threshold)]


class Scorer:
    """Score a clip's frames one by one."""

    def __init__(self, detector: DetectorName) -> None:
        self._name = detector
        self._last: Any = None
        self._differs: list[float] = []
        self._tiny = bytearray()

    def look(self, picture: frame_metrics.Pixels) -> None:
        """Add the next frame, uint8 BGR [H, W, 3], at most LONGEST_SIDE pixels."""
        import cv2

        seen: Any
        if self._name == "hash":  # scored by the share of bits that flip
            from scenedetect import HashDetector

            seen = HashDetector.hash_frame(picture, hash_size=HASH_SIZE, factor=HASH_FACTOR)
        else:  # scored by the mean difference, as ContentDetector does; three times as fast, because without its edges
            seen = cv2.cvtColor(picture, cv2.COLOR_BGR2HSV)
        if (last := self._last) is None:
            differs = 0.0
        else:
            differs = float((seen != last).mean() if seen.dtype == bool else cv2.absdiff(seen, last).mean())
        self._differs.append(differs)
        self._tiny += frame_metrics.tiny(picture)
        self._last = seen

    @property
    def tiny(self) -> frame_metrics.Pixels:
        """All frames in gray, uint8 [F, h, w]."""
        import numpy as np

        return np.frombuffer(self._tiny, np.uint8).reshape(-1, *frame_metrics.TINY)

    def scores(self, fps: float) -> Scores:
        """Return the scores of all frames so far; 0 for the first frame and in flashes."""
        import numpy as np

        values = np.array(self._differs, np.float32)
        if self._name == "adaptive":
            values = _against_neighbors(values)
        for first, over, _ in frame_metrics.flashes(self.tiny, fps):
            values[first : over + 1] = 0
        return values


def _against_neighbors(content: Scores) -> Scores:
    """Return AdaptiveDetector's ratio, with fewer neighbors at the ends, to find stray frames there."""
    import numpy as np

    content = np.concatenate([[np.nan], content[1:]])  # the first frame has no difference
    windows = np.lib.stride_tricks.sliding_window_view(
        np.pad(content, NEIGHBORS, constant_values=np.nan), 2 * NEIGHBORS + 1
    )
    others = np.delete(windows, NEIGHBORS, axis=1)
    usual = np.nansum(others, axis=1) / np.maximum(1, np.isfinite(others).sum(axis=1))
    ratio = np.minimum(content / np.maximum(usual, 1e-5), MOST_TIMES)
    return np.where(content >= LEAST_CONTENT, ratio, 0).astype(np.float32)


# ---- planning a split ------------------------------------------------------------------------------------------------

SCORES = ".split/scores"  # below the dataset folder; may be deleted at any time
LEFTOVER_SECONDS = 3600.0


@dataclass(frozen=True)
class Split:
    """The plan for one clip: its pieces, and those that are too short, as (start, end) in frames of its master.

    reason: why the clip stays unchanged; "" if it is split. fps: the master's.
    """

    clip: Clip
    spans: tuple[tuple[int, int], ...] = ()
    dropped: tuple[tuple[int, int], ...] = ()
    reason: str = ""
    fps: float = 0.0

    @property
    def sentence(self) -> str:
        name = self.clip.name
        if self.reason:
            return f"{name} stays unchanged: {self.reason}"
        left_out = ", ".join(f"{a / self.fps:.2f} to {b / self.fps:.2f} s" for a, b in self.dropped)
        return f"{name}: {len(self.spans)} pieces" + (f", too short: {left_out}" if left_out else "")


def plan_split(dataset: Path, settings: SplitSettings, on_progress: OnProgress = silent) -> list[Split]:
    """Plan the split of each clip. Changes nothing except the cached scores in .split/scores.

    Raises ConfigError for contradictory settings, CannotWrite, and whatever `on_progress` raises.
    """
    clips = check(dataset, settings)
    frames = sum(clip.frames for clip in clips) if settings.mode == "scenes" else 0
    return tasks.each(
        "finding cuts", frames, clips, lambda clip, tick: plan_clip(dataset, clip, settings, tick), on_progress
    )


def check(dataset: Path, settings: SplitSettings) -> list[Clip]:
    """Return the clips to split. Raises ConfigError for contradictory settings or an unknown clip."""
    detector = DETECTORS[settings.detector]
    if settings.threshold is not None and not detector.low <= settings.threshold <= detector.high:
        raise ConfigError(
            f"threshold is {settings.threshold:g}, must be {detector.low:g} to {detector.high:g} for the detector "
            f"{settings.detector}: the default is {detector.threshold:g}"
        )
    if settings.max_seconds is not None and settings.max_seconds < 2 * settings.min_seconds:
        raise ConfigError(
            f"max_seconds is {settings.max_seconds:g}, must be at least twice min_seconds ({settings.min_seconds:g}), "
            f"or equal pieces could be too short: use {2 * settings.min_seconds:g}"
        )
    if settings.mode == "windows" and settings.window_seconds < settings.min_seconds:
        raise ConfigError(
            f"window_seconds is {settings.window_seconds:g}, must be at least min_seconds ({settings.min_seconds:g}), "
            f"or every piece is too short: use {settings.min_seconds:g}"
        )
    return clips_named(read_clips(dataset), settings.clips or None)


def plan_clip(dataset: Path, clip: Clip, settings: SplitSettings, tick: Tick = silent) -> Split:
    """Plan the split of one clip; an unreadable one stays unchanged, with the reason. Raises CannotWrite."""
    try:
        master = master_of(dataset, clip)
        cut = cut_of(clip, master)
        if cut.end - cut.start < FEWEST:
            return Split(clip, reason="a picture")
        if settings.mode == "windows":  # equal windows, to the nearest frame, and the rest at the end
            length = settings.window_seconds * master.fps
            count = max(1, math.ceil((cut.end - cut.start) / length - 1e-9))
            pieces = list(pairwise([*(cut.start + round(number * length) for number in range(count)), cut.end]))
        else:
            # The clip's own file shows only its crop, so score that; at another rate its frames are not the master's.
            path, offset = (clip_file(dataset, clip.file_name), cut.start) if cut.fps is None else (master.path, 0)
            found = scores(path, settings.detector, dataset / SCORES, tick)
            threshold = DETECTORS[settings.detector].threshold if settings.threshold is None else settings.threshold
            frames = (number + offset for number in cuts(found, threshold))
            longest = math.inf if settings.max_seconds is None else max(FEWEST, settings.max_seconds * master.fps)
            pieces = []
            for start, end in pairwise([cut.start, *(one for one in frames if cut.start < one < cut.end), cut.end]):
                count = max(1, math.ceil((end - start) / longest - 1e-9))  # equal pieces that are not too long
                pieces += pairwise(start + round(number * (end - start) / count) for number in range(count + 1))
    except DataError as error:
        return Split(clip, reason=str(error))
    least = max(float(FEWEST), settings.min_seconds * master.fps - 0.5)
    spans = tuple(piece for piece in pieces if piece[1] - piece[0] >= least)
    dropped = tuple(piece for piece in pieces if piece[1] - piece[0] < least)
    if len(pieces) == 1:
        return Split(clip, reason="one shot" if settings.mode == "scenes" else "no longer than one piece")
    if not spans:
        return Split(clip, reason=f"none of its {len(pieces)} pieces lasts {settings.min_seconds:g} s")
    return Split(clip, spans, dropped, fps=master.fps)


# ---- splitting, as a job ---------------------------------------------------------------------------------------------


def run(dataset: Path, config: Path, job: jobs.Job) -> None:
    """Split clips, or preview that. The outcome: {clips, parts, preview, splits, spans, failed}.

    splits has a sentence per clip, spans the pieces of each clip ([start, end] in seconds), failed a sentence per
    failure.
    """
    settings = SplitTask.load(config)
    for leftover in (dataset / MASTERS).glob(".*"):  # partial files of killed processes
        with contextlib.suppress(FileNotFoundError):
            if time.time() - leftover.stat().st_mtime > LEFTOVER_SECONDS:  # newer ones may be in use
                leftover.unlink()
    on_progress = tasks.job_progress(job)
    plans = plan_split(dataset, settings, on_progress)
    for plan in plans:
        print(plan.sentence, flush=True)  # noqa: T201 - the job's log
    cut = [plan for plan in plans if plan.spans]
    job.outcome = {
        "clips": len(cut),
        "parts": sum(len(plan.spans) for plan in cut),
        "preview": settings.preview,
        "splits": [plan.sentence for plan in plans],
        "spans": [[[round(frame / plan.fps, 3) for frame in span] for span in plan.spans] for plan in plans],
        "failed": [],
    }
    if settings.preview:
        return
    cuts: list[tuple[Clip, list[Cut]]] = []
    for plan in cut:
        master = master_of(dataset, plan.clip)
        base = cut_of(plan.clip, master)
        cuts.append((plan.clip, []))
        for start, end in plan.spans:
            with contextlib.suppress(ConfigError):  # too short for the clip's frame rate
                cuts[-1][1].append(checked(Cut(start, end, base.crop, base.fps), master))
    clips, parts, failed = cutting.recut(
        dataset, cuts, lambda clips, parts: f"{counted(clips, 'clip')} split into {parts}", on_progress
    )
    job.outcome |= {"clips": clips, "parts": parts, "failed": [f"{name}: {why}" for name, why in failed.items()]}
