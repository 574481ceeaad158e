"""An export as a job: to a disk or to the Hub, as its settings say."""

from __future__ import annotations

import time
from dataclasses import asdict
from pathlib import Path

from workbench import jobs
from workbench.clips.records import read_clips
from workbench.dataset_builder.export import hub_push
from workbench.dataset_builder.export.files import export
from workbench.dataset_builder.export.settings import ExportSettings
from workbench.dataset_builder.sources.layouts import layout_named
from workbench.display.quantities import counted
from workbench.errors import ConfigError


def check(dataset: Path, settings: ExportSettings) -> None:
    """Raises ConfigError unless it says to one place where to."""
    if bool(settings.target.strip()) == bool(settings.repo_id.strip()):
        raise ConfigError("name a folder or archive, or a Hub dataset: one of them, not both")


def run(dataset: Path, config: Path, job: jobs.Job) -> None:
    """The export as a job. Raises ConfigError, DataError, CannotWrite, ModelUnavailable (the Hub), jobs.Stop."""
    settings = ExportSettings.load(config)
    check(dataset, settings)
    began = time.monotonic()

    def on_clip(done: int, total: int) -> None:
        job.beat("export", done, total, step_seconds=(time.monotonic() - began) / max(1, done))
        job.check_stop("stopped: nothing was written")

    if settings.repo_id:
        pushed = hub_push.push(dataset, settings, on_clip)
        job.outcome = {"repo_id": settings.repo_id, **asdict(pushed)}
    else:
        path = export(dataset, settings, on_clip)
        job.outcome = {"target": str(path), "layout": settings.layout}
    clips = read_clips(dataset)
    job.outcome["clips"] = len(clips)
    count = sum(bool(clip.first_frame) for clip in clips)
    if count and not layout_named("videofolder" if settings.repo_id else settings.layout).pictures:
        sentence = f"{count} first frames that came with clips have no place in this layout: lists keeps them"
        job.outcome["left_behind"] = sentence
    if latents := sum(clip.is_latents for clip in clips):
        sentence = f"{counted(latents, 'clip')} of latents written as they are: other tools may not read them"
        job.outcome["left_behind"] = "; ".join(filter(None, (job.outcome.get("left_behind"), sentence)))
