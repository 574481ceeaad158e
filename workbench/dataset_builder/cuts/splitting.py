"""Cut many clips into shots or pieces of one length, as a job; or only say what that would do.

Short pieces are left out and named. A clip of which no piece is long enough stays as it is. All clips change at once,
at the end: a split that was stopped or killed leaves its parts behind, and the next one uses them; so it does the
scores of a preview.
"""

from __future__ import annotations

import contextlib
import math
import time
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from workbench import jobs
from workbench.clips.records import Clip, clip_file, clips_named, read_clips
from workbench.dataset_builder import tasks
from workbench.dataset_builder.cuts import cutting, scenes
from workbench.dataset_builder.cuts.cutting import FEWEST, MASTERS, Cut, Master, checked, cut_of, master_of
from workbench.dataset_builder.cuts.scenes import DETECTORS
from workbench.dataset_builder.settings import SplitSettings, SplitTask
from workbench.dataset_builder.tasks import OnProgress, Tick, silent
from workbench.display.quantities import counted
from workbench.errors import ConfigError, DataError

SCORES = ".split/scores"  # below the dataset folder; may be deleted at any time
LEFTOVER_SECONDS = 3600.0


@dataclass(frozen=True)
class Split:
    """What would become of one clip. Spans are (start, end) in frames of its master, the end not included.

    spans:   the pieces; none when the clip stays as it is
    dropped: pieces that are too short
    reason:  why it stays as it is, "" when it is split
    fps:     of the master, to turn frames into seconds
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
            return f"{name} stays as it is: {self.reason}"
        left_out = ", ".join(f"{a / self.fps:.2f} to {b / self.fps:.2f} s" for a, b in self.dropped)
        return f"{name}: {len(self.spans)} pieces" + (f", too short: {left_out}" if left_out else "")


# ---- planning --------------------------------------------------------------------------------------------------------


def plan_split(dataset: Path, settings: SplitSettings, on_progress: OnProgress = silent) -> list[Split]:
    """What `run` would do, a plan a clip; nothing is changed (scores are kept in the folder .split/scores).

    Raises ConfigError for settings that cannot be met, CannotWrite, and whatever `on_progress` raises.
    """
    clips = check(dataset, settings)
    frames = sum(clip.frames for clip in clips) if settings.mode == "scenes" else 0
    return tasks.each(
        "finding cuts", frames, clips, lambda clip, tick: plan_clip(dataset, clip, settings, tick), on_progress
    )


def check(dataset: Path, settings: SplitSettings) -> list[Clip]:
    """The clips to split. Raises ConfigError for settings that contradict one another, or name no clip."""
    detector = DETECTORS[settings.detector]
    if settings.threshold is not None and not detector.low <= settings.threshold <= detector.high:
        raise ConfigError(
            f"threshold is {settings.threshold:g}, must be {detector.low:g} to {detector.high:g} for the detector "
            f"{settings.detector}: the default is {detector.threshold:g}"
        )
    if settings.max_seconds is not None and settings.max_seconds < 2 * settings.min_seconds:
        raise ConfigError(
            f"max_seconds is {settings.max_seconds:g}, must be twice min_seconds ({settings.min_seconds:g}) or more, "
            f"so that equal pieces are not too short: use {2 * settings.min_seconds:g}"
        )
    if settings.mode == "windows" and settings.window_seconds < settings.min_seconds:
        raise ConfigError(
            f"window_seconds is {settings.window_seconds:g}, must be min_seconds ({settings.min_seconds:g}) or more, "
            f"else every piece is too short: use {settings.min_seconds:g}"
        )
    return clips_named(read_clips(dataset), settings.clips or None)


def plan_clip(dataset: Path, clip: Clip, settings: SplitSettings, tick: Tick = silent) -> Split:
    """The plan for one clip; one that cannot be read stays as it is, with the reason. Raises CannotWrite."""
    try:
        master = master_of(dataset, clip)
        cut = cut_of(clip, master)
        if cut.end - cut.start < FEWEST:
            return Split(clip, reason="a picture")
        if settings.mode == "windows":  # of one length, whole frames on average, and what is left at the end
            length = settings.window_seconds * master.fps
            count = max(1, math.ceil((cut.end - cut.start) / length - 1e-9))
            pieces = list(pairwise([*(cut.start + round(number * length) for number in range(count)), cut.end]))
        else:
            shots = _shots(dataset, clip, cut, master, settings, tick)
            pieces = [piece for shot in shots for piece in _equal(*shot, settings.max_seconds, master.fps)]
    except DataError as error:
        return Split(clip, reason=str(error))
    least = max(float(FEWEST), settings.min_seconds * master.fps - 0.5)
    spans = tuple(piece for piece in pieces if piece[1] - piece[0] >= least)
    dropped = tuple(piece for piece in pieces if piece[1] - piece[0] < least)
    if len(pieces) == 1:
        return Split(clip, reason="one shot" if settings.mode == "scenes" else "no longer than one piece")
    if not spans:
        return Split(clip, reason=f"none of its {len(pieces)} pieces reaches {settings.min_seconds:g} s")
    return Split(clip, spans, dropped, fps=master.fps)


def _shots(
    dataset: Path, clip: Clip, cut: Cut, master: Master, settings: SplitSettings, tick: Tick
) -> list[tuple[int, int]]:
    # The clip's own file shows its crop alone; at another rate its frames lie between the master's.
    own = cut.fps is None
    path, offset = (clip_file(dataset, clip.file_name), cut.start) if own else (master.path, 0)
    found = scenes.scores(path, settings.detector, dataset / SCORES, tick)
    threshold = DETECTORS[settings.detector].threshold if settings.threshold is None else settings.threshold
    frames = [number + offset for number in scenes.cuts(found, threshold)]
    bounds = [cut.start, *(frame for frame in frames if cut.start < frame < cut.end), cut.end]
    return list(pairwise(bounds))


def _equal(start: int, end: int, longest: float | None, fps: float) -> list[tuple[int, int]]:
    """A shot in the fewest equal pieces that are not too long."""
    frames = end - start
    count = 1 if longest is None else max(1, math.ceil(frames / max(FEWEST, longest * fps) - 1e-9))
    bounds = [start + round(number * frames / count) for number in range(count + 1)]
    return list(pairwise(bounds))


# ---- the job ---------------------------------------------------------------------------------------------------------


def run(dataset: Path, config: Path, job: jobs.Job) -> None:
    """Split as config.json says, or preview it. The outcome: {clips, parts, preview, splits, spans, failed}.

    splits, failed: in words; splits has a sentence a clip, spans its pieces, [start, end] in seconds
    """
    settings = SplitTask.load(config)
    for leftover in (dataset / MASTERS).glob(".*"):  # what a killed process left half-written
        with contextlib.suppress(FileNotFoundError):
            if time.time() - leftover.stat().st_mtime > LEFTOVER_SECONDS:  # a younger one may be another's work
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
            with contextlib.suppress(ConfigError):  # a piece too short for the clip's rate
                cuts[-1][1].append(checked(Cut(start, end, base.crop, base.fps), master))
    done = cutting.recut(
        dataset, cuts, lambda clips, parts: f"{counted(clips, 'clip')} split into {parts}", on_progress
    )
    failed = [f"{name}: {reason}" for name, reason in done.failed.items()]
    job.outcome |= {"clips": done.clips, "parts": done.parts, "failed": failed}
