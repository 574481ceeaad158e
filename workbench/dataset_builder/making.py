"""Make companions of many clips as a job: edges, gray, depth, poses, box masks, end frames ... (clips.made).

A maker's model is loaded once, after waiting for the GPU if there is one. All companions are one change in the
history. Clips that cannot be read are reported and get none.
"""

from __future__ import annotations

from pathlib import Path

from workbench import jobs
from workbench.clips import made
from workbench.clips.records import COMPANION_NAMES, Clip, clip_file, clips_named, read_clips
from workbench.dataset_builder import tasks
from workbench.dataset_builder.companions import attach_all
from workbench.dataset_builder.cuts.cutting import named, scratch_file
from workbench.dataset_builder.settings import MakeSettings
from workbench.dataset_builder.tasks import Tick
from workbench.display.quantities import counted
from workbench.errors import ConfigError, DataError
from workbench.jobs import queue
from workbench.jobs.devices import Device, gpus_of
from workbench.workspace import Workspace

MOST_FRAMES = 1000  # per clip with a model: depth maps stay in memory until the last frame, two gigabytes


def check(dataset: Path, settings: MakeSettings) -> list[Clip]:
    """Return the clips that get a companion.

    Raises:
        ConfigError: The maker cannot make that kind, its amount is out of bounds, its model is unknown, a clip is too
            long or missing, or no clip needs one.
    """
    kind = made.kind_of(settings.maker, settings.kind)
    made.amount_of(settings.maker, settings.amount)
    made.check_model(settings.maker, settings.model, settings.detector)
    chosen = [clip for clip in clips_named(read_clips(dataset), settings.clips or None) if not clip.is_latents]
    wanted = [clip for clip in chosen if settings.again or kind not in clip.companions]
    if not wanted:
        why = f"all have a {COMPANION_NAMES[kind]} (set again to replace them)" if chosen else "none has pictures"
        raise ConfigError(f"no clip needs one: {why}")
    if made.ABOUT[settings.maker].models and (long := [clip for clip in wanted if clip.frames > MOST_FRAMES]):
        most = f"but {settings.maker} takes at most {MOST_FRAMES:,}"
        raise ConfigError(f"{long[0].name} has {long[0].frames:,} frames, {most}: split it first")
    return wanted


def devices(config: Path) -> list[Device]:
    """Return the GPU that the maker's model needs. Raises ConfigError."""
    settings = MakeSettings.load(config)
    return gpus_of(settings.device)[:1] if made.ABOUT[settings.maker].models else []


def run(dataset: Path, config: Path, job: jobs.Job) -> None:
    """Make the companions. The outcome: {clips, done (a sentence), failed (a sentence each)}.

    Raises ConfigError, DataError if every clip failed, CannotWrite, jobs.Stop; with a model also ModelUnavailable,
    OutOfMemory.
    """
    settings = MakeSettings.load(config)
    kind, about = made.kind_of(settings.maker, settings.kind), made.ABOUT[settings.maker]
    clips = check(dataset, settings)
    box = (settings.left, settings.top, settings.width, settings.height)

    with queue.acquired(Workspace.of(dataset), devices(config), job, f"make of {dataset.name}"):
        if about.models:
            words = made.opening(settings.maker, settings.model, settings.detector)
            job.beat("loading", 0, len(clips), message=words)
        with made.opened(settings.maker, settings.model, settings.detector, settings.device) as model:

            def make(clip: Clip, tick: Tick) -> Path | str:
                try:
                    return made.make(
                        settings.maker,
                        kind,
                        clip_file(dataset, clip.file_name),
                        scratch_file(dataset, f".{clip.id}"),
                        fps=clip.fps,
                        amount=settings.amount,
                        box=box,
                        model=model,
                        tick=tick,
                    )
                except DataError as error:
                    return f"{clip.name}: {error}"

            frames, workers = sum(clip.frames for clip in clips), 1 if model else tasks.WORKERS
            found = tasks.each("making", frames, clips, make, tasks.job_progress(job), workers=workers)
    files = [(clip, kind, path) for clip, path in zip(clips, found, strict=True) if isinstance(path, Path)]
    failed = [sentence for sentence in found if isinstance(sentence, str)]
    if not files:
        raise DataError(failed[0])
    what = f"{about.title.lower()} of {named([clip for clip, _, _ in files])}"
    try:
        attach_all(dataset, files, what, made=True, tick=lambda: job.check_stop("stopped: start it again to resume"))
    finally:
        for _, _, path in files:
            path.unlink(missing_ok=True)
    done = f"{about.title}: made {counted(len(files), COMPANION_NAMES[kind])}."
    job.outcome = {"clips": len(files), "done": done, "failed": failed}
