"""What each clip's pictures measure, once per content: motion, blur, shake, flashes, cuts, bars, text, similarity.

    .check/measures.jsonl    a line a content (sha256); a line of another version of this module counts as missing

A clip is decoded once, at small size, in a child process (`main`), one a core. Not covered: what the numbers mean
(frame_metrics), which are bad (dataset_check).
"""

from __future__ import annotations

import base64
import contextlib
import sys
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from workbench.clips import frame_metrics
from workbench.clips.records import Clip, clip_file
from workbench.dataset_builder import parallel
from workbench.dataset_builder.checks import text_detection
from workbench.dataset_builder.cuts import scenes
from workbench.dataset_builder.parallel import OnProgress, Tick, silent
from workbench.errors import DataError
from workbench.jobs.limited import ChildLost, LimitedChild, Watch, serve
from workbench.workspace import append_line, writing
from workbench.workspace.records import read_json_lines

if TYPE_CHECKING:
    from workbench.clips.frame_metrics import Pixels

WORKER = "workbench.dataset_builder.checks.measures"
MODULES = ("av", "cv2", "numpy", "scenedetect")
SECONDS_PER_FRAME = 300.0  # of computing, from one frame to the next
FOLDER, FILE = ".check", "measures.jsonl"
VERSION = 2  # of what the numbers mean
SHARP_LONGEST = 720  # pixels of the pictures that are looked at for blur
STEPS = 8  # looks a second at motion
SHAKE_STEPS = 15  # looks a second at shake
SHARP_LOOKS = 4  # looks a clip at blur
CUTS_BY: scenes.DetectorName = "adaptive"  # splitting's default
CHANGED = 6.0  # levels; less is noise
STILL = 0.005  # of the pixels have changed at most


class Measures(BaseModel):
    """What one clip's pictures measure.

    error:      why it cannot be read, "" when it can; the numbers are then 0
    motion:     mean change within an eighth of a second, levels (0 to 255)
    still:      share of the clip, 0 to 1, in which nothing changes within a second
    blur:       0 (sharp) to 1;  shake: percent of the width from step to step
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
    known = {}
    for line in read_json_lines(dataset / FOLDER / FILE):
        with contextlib.suppress(ValueError):
            found = Measures.model_validate(line)
            if found.version == VERSION:
                known[found.sha256] = found
    return known


def measure_all(dataset: Path, clips: Sequence[Clip], on_progress: OnProgress = silent) -> dict[str, Measures]:
    """Measure what is not known yet; sha256 -> measures of every clip.

    Each is on disk once it is known, so that going on after a stop repeats nothing. A clip that brings its child down
    costs no other; a stop ends the children at once. Raises CannotWrite and what `on_progress` raises.
    """
    known, can_read = read_measures(dataset), text_detection.can_read()
    if can_read:  # those of before it was installed are measured again
        known = {sha256: found for sha256, found in known.items() if found.error or found.text is not None}
    missing = list({clip.sha256: clip for clip in clips if clip.sha256 not in known}.values())
    with writing(dataset):
        (dataset / FOLDER).mkdir(exist_ok=True)
    children = [LimitedChild(WORKER, dataset) for _ in range(parallel.WORKERS)]
    free = list(children)

    def ask_child(clip: Clip, tick: Tick) -> Measures:
        child = free.pop()
        try:
            answer = child.ask({"clip": clip.model_dump(mode="json"), "text": can_read}, SECONDS_PER_FRAME)
        except ChildLost as lost:
            reason = f"has no frame within {SECONDS_PER_FRAME:.0f} s" if lost.late else "brought the decoder down"
            return Measures(sha256=clip.sha256, error=f"{reason} when it was read: import it again")
        finally:
            free.append(child)
        tick(clip.frames)
        return Measures.model_validate_json(answer)

    def keep(found: Measures) -> None:
        append_line(dataset / FOLDER / FILE, found.model_dump_json())
        known[found.sha256] = found

    def kill_children() -> None:
        for child in children:
            child.kill()

    frames = sum(clip.frames for clip in missing)
    try:
        parallel.each(
            "measuring pictures", frames, missing, ask_child, on_progress, on_done=keep, on_stop=kill_children
        )
    finally:
        for child in children:
            child.close()
    return {clip.sha256: known[clip.sha256] for clip in clips}


# ---- in the child ---------------------------------------------------------------------------------------------------


def main(dataset: Path) -> None:
    """Measure clips until stdin ends."""

    def handle(task: dict[str, Any], watch: Watch) -> str:
        return measure(dataset, Clip.model_validate(task["clip"]), task["text"], watch.progress).model_dump_json()

    serve(handle, MODULES)


def measure(dataset: Path, clip: Clip, text: bool = True, on_frame: Callable[[], None] = silent) -> Measures:
    """Decode one clip once and measure it; text: look for that, too, where a reader is installed."""
    from workbench.dataset_builder.checks.letterbox import find_letterbox

    try:
        path = clip_file(dataset, clip.file_name)
        numbers = _Pictures(clip.frames, clip.fps or 8.0).measure(path, on_frame)
        letterbox = find_letterbox(path)
        texts = text_detection.find_text(path) if text and text_detection.can_read() else None
    except (DataError, OSError) as error:
        return Measures(sha256=clip.sha256, error=str(error))
    return Measures(sha256=clip.sha256, letterbox=letterbox, text=texts, **numbers)


class _Pictures:
    """One pass over a clip's frames; keeps a second of small pictures, and a tiny one a frame."""

    def __init__(self, frames: int, fps: float) -> None:
        self._fps = fps
        self._prints_at = _spread(frames, frame_metrics.PRINT_FRAMES)
        self._sharp_at = _spread(frames, SHARP_LOOKS)
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

    def measure(self, path: Path, on_frame: Callable[[], None]) -> dict[str, Any]:
        """Look at every frame; the numbers, by their names in Measures. Raises DataError."""
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
            on_frame()
        return self._found()

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

    def _found(self) -> dict[str, Any]:
        import numpy as np

        scores = self._scorer.scores(self._fps)
        cuts = scenes.cuts(scores, scenes.DETECTORS[CUTS_BY].low)
        still = self._still or [len(self._second) > 1 and self._unchanged()]
        missing = frame_metrics.PRINT_FRAMES - len(self._prints)  # of very short clips
        prints = self._prints + self._prints[-1:] * missing
        return {
            "motion": round(float(np.median(self._motion or [0])), 2),
            "still": round(float(np.mean(still)), 3),
            "blur": round(float(np.median(self._blur or [0])), 3),
            "shake": round(frame_metrics.shake(self._moves, self._width), 3),
            "flashes": tuple(frame_metrics.flashes(self._scorer.tiny, self._fps)),
            "cuts": tuple((frame, round(float(scores[frame]), 2)) for frame in cuts),
            "fingerprint": base64.b64encode(frame_metrics.fingerprint(prints)).decode(),
        }


def _spread(frames: int, looks: int) -> set[int]:
    """Frame numbers, each in the middle of its share of the clip."""
    return {int((part + 0.5) * frames / looks) for part in range(looks)}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
