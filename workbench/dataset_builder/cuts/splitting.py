"""Split many clips into shots or pieces of equal length, as a job, or preview that.

Short pieces are dropped and reported. A clip without a piece that is long enough stays unchanged. All clips change at
once at the end. A split reuses the parts of one that was stopped or killed, and the scores of a preview.
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
    """The plan for one clip. Spans are (start, end) in frames of its master, end exclusive.

    spans: the pieces; () if the clip stays unchanged.
    dropped: pieces that are too short.
    reason: why the clip stays unchanged; "" if it is split.
    fps: the master's frame rate, to convert frames to seconds.
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


# ---- planning --------------------------------------------------------------------------------------------------------


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
        return Split(clip, reason=f"none of its {len(pieces)} pieces lasts {settings.min_seconds:g} s")
    return Split(clip, spans, dropped, fps=master.fps)


def _shots(
    dataset: Path, clip: Clip, cut: Cut, master: Master, settings: SplitSettings, tick: Tick
) -> list[tuple[int, int]]:
    # The clip's own file shows only its crop, so score that; at another rate its frames do not match the master's.
    path, offset = (clip_file(dataset, clip.file_name), cut.start) if cut.fps is None else (master.path, 0)
    found = scenes.scores(path, settings.detector, dataset / SCORES, tick)
    threshold = DETECTORS[settings.detector].threshold if settings.threshold is None else settings.threshold
    frames = [number + offset for number in scenes.cuts(found, threshold)]
    bounds = [cut.start, *(frame for frame in frames if cut.start < frame < cut.end), cut.end]
    return list(pairwise(bounds))


def _equal(start: int, end: int, longest: float | None, fps: float) -> list[tuple[int, int]]:
    """Divide a shot into the fewest equal pieces that are not too long."""
    frames = end - start
    count = 1 if longest is None else max(1, math.ceil(frames / max(FEWEST, longest * fps) - 1e-9))
    bounds = [start + round(number * frames / count) for number in range(count + 1)]
    return list(pairwise(bounds))


# ---- the job ---------------------------------------------------------------------------------------------------------


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
    done = cutting.recut(
        dataset, cuts, lambda clips, parts: f"{counted(clips, 'clip')} split into {parts}", on_progress
    )
    failed = [f"{name}: {reason}" for name, reason in done.failed.items()]
    job.outcome |= {"clips": done.clips, "parts": done.parts, "failed": failed}
