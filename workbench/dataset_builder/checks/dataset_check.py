"""The dataset check, as a job: looks at every clip and caption and says what would stop or hurt a training.

Pictures are measured once per content (measures), captions counted with the chosen model's own tokenizer; findings
offer their fixes (fixes). Not covered: what a clip shows.
"""

from __future__ import annotations

import time
from pathlib import Path

from workbench import jobs
from workbench.clips import frame_plan
from workbench.clips.records import Clip, clip_file, file_sha256, read_clips, read_info
from workbench.dataset_builder import parallel
from workbench.dataset_builder.checks import caption_checks, measures, picture_checks
from workbench.dataset_builder.checks.findings import Finding, Severity, write_report
from workbench.dataset_builder.checks.settings import CheckSettings
from workbench.families.latents_file import Fit
from workbench.workspace import write_json


def run(dataset: Path, config: Path, job: jobs.Job) -> None:
    """Check the whole dataset and replace its findings. Raises ConfigError, DataError, CannotWrite, jobs.Stop."""
    settings = CheckSettings.load(config)
    clips, info = read_clips(dataset), read_info(dataset)
    family, model = settings.resolved
    found: list[Finding] = []
    if settings.pictures:
        shape = frame_plan.shape_of(settings, model)
        videos = [clip for clip in clips if not clip.is_latents]
        found += picture_checks.check_pictures(videos, _measured(dataset, videos, job), settings)
        found += picture_checks.check_plans(clips, shape, model.title)
        found += picture_checks.check_latents(dataset, clips, Fit(family, model), model.title)
    if settings.captions:
        job.beat("captions", 0, len(clips))
        found += caption_checks.check_captions(clips, info, settings.fewest_words)
        too_long, tokens = caption_checks.check_tokens(clips, info, family, model)
        found += too_long
        write_json(dataset / measures.FOLDER / caption_checks.TOKENS, tokens)
    write_report(dataset, time.time(), model.id, clips, found)
    counts = {severity.value: sum(f.severity == severity for f in found) for severity in Severity}
    job.outcome = {"clips": len(clips), "findings": counts}
    job.beat("check", len(clips), len(clips))


def _measured(dataset: Path, clips: list[Clip], job: jobs.Job) -> dict[str, measures.Measures]:
    """File name -> measures; a folder of another tool's has no sha256 in its records."""
    hashed = [c if c.sha256 else c.changed(sha256=file_sha256(clip_file(dataset, c.file_name))) for c in clips]
    known = measures.measure_all(dataset, hashed, parallel.job_progress(job))
    return {clip.file_name: known[clip.sha256] for clip in hashed}
