"""Make companions of many clips as a job: edges, gray, blur, masks of boxes and borders, end frames (clips.made).

All of them are one change of the history. A clip that cannot be read is named and stays without one.
"""

from __future__ import annotations

from pathlib import Path

from workbench import jobs
from workbench.clips import made
from workbench.clips.records import COMPANION_NAMES, Clip, clip_file, clips_named, read_clips
from workbench.dataset_builder import tasks
from workbench.dataset_builder.companions import attach_all
from workbench.dataset_builder.cuts.cutting import scratch_file
from workbench.dataset_builder.settings import MakeSettings
from workbench.dataset_builder.tasks import Tick
from workbench.display.quantities import counted
from workbench.errors import ConfigError, DataError


def check(dataset: Path, settings: MakeSettings) -> list[Clip]:
    """Return the clips that get a companion.

    Raises:
        ConfigError: The maker cannot make that kind, its number is out of bounds, no clip needs it, or a named clip is
            not there.
    """
    kind = made.kind_of(settings.maker, settings.kind)
    made.amount_of(settings.maker, settings.amount)
    chosen = [clip for clip in clips_named(read_clips(dataset), settings.clips or None) if not clip.is_latents]
    wanted = [clip for clip in chosen if settings.again or kind not in clip.companions]
    if not wanted:
        why = f"all have a {COMPANION_NAMES[kind]} (again: make it anew)" if chosen else "there is none with pictures"
        raise ConfigError(f"no clip needs one: {why}")
    return wanted


def run(dataset: Path, config: Path, job: jobs.Job) -> None:
    """Make what the settings ask for. The outcome: {clips, done (a sentence), failed (a sentence each)}.

    Raises ConfigError, DataError when it could be made of no clip, CannotWrite, jobs.Stop.
    """
    settings = MakeSettings.load(config)
    kind, about = made.kind_of(settings.maker, settings.kind), made.ABOUT[settings.maker]
    clips = check(dataset, settings)
    box = (settings.left, settings.top, settings.width, settings.height)

    def make(clip: Clip, tick: Tick) -> Path | str:
        target = scratch_file(dataset, f".{clip.id}")
        source = clip_file(dataset, clip.file_name)
        try:
            return made.make(
                settings.maker, kind, source, target, fps=clip.fps, amount=settings.amount, box=box, tick=tick
            )
        except DataError as error:
            return f"{clip.name}: {error}"

    found = tasks.each("making", sum(clip.frames for clip in clips), clips, make, tasks.job_progress(job))
    files = [(clip, kind, path) for clip, path in zip(clips, found, strict=True) if isinstance(path, Path)]
    failed = [sentence for sentence in found if isinstance(sentence, str)]
    if not files:
        raise DataError(failed[0])
    what = f"{about.title.lower()} of {files[0][0].name if len(files) == 1 else f'{len(files)} clips'}"
    try:
        attach_all(dataset, files, what, made=True, tick=lambda: job.check_stop("stopped: start it again to go on"))
    finally:
        for _, _, path in files:
            path.unlink(missing_ok=True)
    done = f"{about.title} of {counted(len(files), 'clip')} made, as {COMPANION_NAMES[kind]}."
    job.outcome = {"clips": len(files), "done": done, "failed": failed}
