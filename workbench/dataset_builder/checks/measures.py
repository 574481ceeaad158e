"""What each clip's pictures measure, once per content: motion, blur, shake, flashes, cuts, bars, text, similarity.

    .check/measures.jsonl    a line a content (sha256); a line of another version of this module counts as missing

A clip is decoded once, at small size, in a child process; as many as there are cores work at a time. Not covered:
what the numbers mean (frame_metrics), which are bad (dataset_check).
"""

from __future__ import annotations

import base64
import contextlib
import multiprocessing
import os
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from workbench.clips import frame_metrics
from workbench.clips.records import Clip
from workbench.dataset_builder.checks import text_detection
from workbench.dataset_builder.cuts import scenes
from workbench.errors import DataError
from workbench.workspace import append_line, writing

if TYPE_CHECKING:
    from workbench.clips.frame_metrics import Pixels

FOLDER, FILE = ".check", "measures.jsonl"
VERSION = 2  # of what the numbers mean
SHARP_LONGEST = 720  # pixels of the pictures that are looked at for blur
STEPS = 8  # looks a second at motion
SHAKE_STEPS = 15  # looks a second at shake
SHARP_LOOKS = 4  # looks a clip at blur
CUTS_BY: scenes.DetectorName = "adaptive"  # splitting's default
CHANGED = 6.0  # levels; less is noise
STILL = 0.005  # of the pixels have changed at most
TICK_SECONDS = 0.5
Progress = Callable[[int, int], None]


class Measures(BaseModel):
    """What one clip's pictures measure.

    error:      why it cannot be read, "" when it can; the numbers are then 0
    motion:     mean change within an eighth of a second, levels (0 to 255)
    still:      share of the clip, 0 to 1, in which nothing changes within a second
    blur:       0 (sharp) to 1;  shake: percent of the width from step to step;  brightness: mean level
    flashes:    (first frame, frame where it is over, height in levels)
    cuts:       (first frame of the new shot, its score): what scenes finds, down to the detector's lowest threshold
    letterbox:    (left, top, width, height) of the picture inside black bars, pixels; None without bars
    text:       (position, sampled frames that have it, what is written); None where no reader is installed
    fingerprint: base64 of a few tiny frames (frame_metrics.fingerprint)
    """

    model_config = ConfigDict(frozen=True)

    sha256: str
    version: int = VERSION
    error: str = ""
    motion: float = 0.0
    still: float = 0.0
    blur: float = 0.0
    shake: float = 0.0
    brightness: float = 0.0
    flashes: tuple[tuple[int, int, float], ...] = ()
    cuts: tuple[tuple[int, float], ...] = ()
    letterbox: tuple[int, int, int, int] | None = None
    text: tuple[text_detection.Text, ...] | None = None
    fingerprint: str = ""

    @property
    def print_bytes(self) -> bytes:
        return base64.b64decode(self.fingerprint)


def read_measures(dataset: Path) -> dict[str, Measures]:
    """sha256 -> what is known; torn lines and lines of other versions are left out."""
    path, known = dataset / FOLDER / FILE, {}
    if path.exists():
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            with contextlib.suppress(ValueError):
                found = Measures.model_validate_json(line)
                if found.version == VERSION:
                    known[found.sha256] = found
    return known


def measure_all(dataset: Path, clips: Sequence[Clip], on_progress: Progress = lambda *_: None) -> dict[str, Measures]:
    """Measure what is not known yet; sha256 -> measures of every clip. `on_progress(done, total)` may raise to stop.

    Each is on disk once it is known, so that going on after a stop repeats nothing. Raises CannotWrite.
    """
    known = read_measures(dataset)
    if text_detection.can_read():  # those of before it was installed are measured again
        known = {sha256: found for sha256, found in known.items() if found.error or found.text is not None}
    missing = list({clip.sha256: clip for clip in clips if clip.sha256 not in known}.values())
    with writing(dataset):
        (dataset / FOLDER).mkdir(exist_ok=True)
    done = 0
    on_progress(done, len(missing))
    with contextlib.closing(_in_children(dataset, missing)) as ready:
        for found in ready:
            if found is not None:
                append_line(dataset / FOLDER / FILE, found.model_dump_json())
                known[found.sha256] = found
                done += 1
            on_progress(done, len(missing))
    return {clip.sha256: known[clip.sha256] for clip in clips}


def _in_children(dataset: Path, clips: Sequence[Clip]) -> Generator[Measures | None, None, None]:
    """The measures of each, in the order they are ready, and None now and then while none is.

    A clip that brings its child down costs no other. Closing it ends the children at once, in the middle of a clip.
    """
    suspects: list[Clip] = []
    if not clips:
        return
    queue = deque(clips)
    while queue:
        running: dict[Future[Measures], Clip] = {}
        others = set(multiprocessing.active_children())
        with _pool(min(os.cpu_count() or 1, len(queue))) as pool:
            try:
                while queue or running:
                    while queue and len(running) < 2 * (os.cpu_count() or 1):
                        running[pool.submit(measure, dataset, queue[0])] = queue[0]
                        queue.popleft()
                    ready = wait(running, TICK_SECONDS, FIRST_COMPLETED).done
                    for future in ready:
                        yield future.result()
                        running.pop(future)
                    if not ready:
                        yield None
            except BrokenProcessPool:
                suspects += running.values()
            except GeneratorExit:
                for child in set(multiprocessing.active_children()) - others:
                    child.kill()
                raise
    for clip in suspects:
        with _pool(1) as pool:
            try:
                yield pool.submit(measure, dataset, clip).result()
            except BrokenProcessPool:
                yield Measures(sha256=clip.sha256, error="reading it brought the decoder down: import it again")


def _pool(children: int) -> ProcessPoolExecutor:
    # Not forked: a job has threads.
    return ProcessPoolExecutor(children, multiprocessing.get_context("spawn"), initializer=os.nice, initargs=(5,))


# ---- in the child ---------------------------------------------------------------------------------------------------


def measure(dataset: Path, clip: Clip) -> Measures:
    """Decode one clip once and measure it."""
    from workbench.dataset_builder.checks.letterbox import find_letterbox

    path = dataset / clip.file_name
    try:
        watcher = _ProgressWatcher(clip.frames, clip.fps or 8.0)
        watcher.watch(path)
        letterbox = find_letterbox(path)
        text = text_detection.find_text(path) if text_detection.can_read() else None
    except (DataError, OSError) as error:
        return Measures(sha256=clip.sha256, error=str(error))
    return Measures(sha256=clip.sha256, letterbox=letterbox, text=text, **watcher.found())


class _ProgressWatcher:
    """One pass over a clip's frames; keeps a second of small pictures, and a tiny one a frame."""

    def __init__(self, frames: int, fps: float) -> None:
        self._fps = fps
        self._prints_at = {
            int((part + 0.5) * frames / frame_metrics.PRINT_FRAMES) for part in range(frame_metrics.PRINT_FRAMES)
        }
        self._sharp_at = {int((part + 0.5) * frames / SHARP_LOOKS) for part in range(SHARP_LOOKS)}
        self._stride = max(1, round(fps / STEPS))
        self._shake_stride = max(1, round(fps / SHAKE_STEPS))
        self._scorer = scenes.Scorer(CUTS_BY)
        self._blur: list[float] = []
        self._motion: list[float] = []
        self._still: list[bool] = []
        self._moves: list[tuple[float, float] | None] = []
        self._prints: list[Pixels] = []
        self._second: deque[Pixels] = deque(maxlen=STEPS + 1)
        self._steady: Pixels | None = None
        self._width = 0

    def watch(self, path: Path) -> None:
        """Look at every frame. Raises DataError."""
        from workbench.clips import media

        for number, (_, frame) in enumerate(media.raw_frames(path)):
            colour = frame_metrics.small(frame, scenes.LONGEST_SIDE)
            self._width = colour.shape[1]
            self._scorer.look(colour)
            if number % self._stride == 0 or number % self._shake_stride == 0:
                grey = frame_metrics.grey(colour)
            if number % self._stride == 0:
                self._look_at_motion(frame_metrics.halved(grey))
            if number % self._shake_stride == 0:
                if self._steady is not None:
                    self._moves.append(frame_metrics.camera_move(self._steady, grey))
                self._steady = grey
            if number in self._prints_at:
                self._prints.append(colour)
            if number in self._sharp_at:
                self._blur.append(frame_metrics.blur(frame_metrics.small(frame, SHARP_LONGEST, "gray")))

    def _look_at_motion(self, grey: Pixels) -> None:
        import cv2

        if self._second:
            self._motion.append(float(cv2.absdiff(grey, self._second[-1]).mean()))
        self._second.append(grey)
        if len(self._second) == STEPS + 1:
            self._still.append(self._unchanged())

    def _unchanged(self) -> bool:
        """Whether the first and the last picture of the second kept are the same."""
        import cv2

        return bool((cv2.absdiff(self._second[-1], self._second[0]) > CHANGED).mean() < STILL)

    def found(self) -> dict[str, Any]:
        """The numbers, by their names in Measures."""
        import numpy as np

        scores = self._scorer.scores(self._fps)
        cuts = scenes.cuts(scores, scenes.DETECTORS[CUTS_BY].low)
        still = self._still or [len(self._second) > 1 and self._unchanged()]
        prints = self._prints + self._prints[-1:] * (
            frame_metrics.PRINT_FRAMES - len(self._prints)
        )  # of very short clips
        return {
            "motion": round(float(np.median(self._motion or [0])), 2),
            "still": round(float(np.mean(still)), 3),
            "blur": round(float(np.median(self._blur or [0])), 3),
            "shake": round(frame_metrics.shake(self._moves, self._width), 3),
            "brightness": round(float(self._scorer.tiny.mean()), 1),
            "flashes": tuple(frame_metrics.flashes(self._scorer.tiny, self._fps)),
            "cuts": tuple((frame, round(float(scores.values[frame]), 2)) for frame in cuts),
            "fingerprint": base64.b64encode(frame_metrics.fingerprint(prints)).decode(),
        }
