"""The dataset check, as a job: looks at every clip and caption and says what would stop or hurt a training.

Pictures are measured once per content (measures), captions counted with the chosen model's own tokenizer; findings
offer their fixes (fixes). Not covered: what a clip shows.
"""

from __future__ import annotations

import time
from pathlib import Path

from workbench import jobs
from workbench.clips import frame_plan
from workbench.clips.records import Clip, file_sha256, read_clips, read_info
from workbench.dataset_builder.checks import caption_checks, measures, picture_checks
from workbench.dataset_builder.checks.findings import Finding, Severity, write_report
from workbench.dataset_builder.checks.settings import CheckSettings
from workbench.families import find_model


def run(dataset: Path, config: Path, job: jobs.Job) -> None:
    """Check the whole dataset and replace its findings. Raises ConfigError, DataError, CannotWrite, jobs.Stop."""
    settings = CheckSettings.load(config)
    clips, info = read_clips(dataset), read_info(dataset)
    family, model = find_model(settings.model)
    found: list[Finding] = []
    if settings.pictures:
        shape = frame_plan.shape_for(model, settings.frames, settings.height, settings.width, settings.fps)
        found += picture_checks.check_pictures(clips, _measured(dataset, clips, job), settings)
        found += picture_checks.check_plans(clips, shape, model.title)
    if settings.captions:
        job.beat("captions", 0, len(clips))
        found += caption_checks.check_captions(clips, info, settings.fewest_words)
        too_long, tokens = caption_checks.check_tokens(clips, info, family, model)
        found += too_long
        caption_checks.write_tokens(dataset, tokens)
    write_report(dataset, time.time(), model.id, clips, found)
    counts = {severity.value: sum(f.severity == severity for f in found) for severity in Severity}
    job.outcome = {"clips": len(clips), "findings": counts}
    job.beat("check", len(clips), len(clips))


def _measured(dataset: Path, clips: list[Clip], job: jobs.Job) -> dict[str, measures.Measures]:
    """File name -> measures, with the job's progress; a folder of another tool's has no sha256 in its records."""
    began = time.monotonic()

    def on_progress(done: int, total: int) -> None:
        seconds = (time.monotonic() - began) / done if done else None
        job.beat("pictures", done, total, step_seconds=seconds)
        if job.take("stop") is not None:
            raise jobs.Stop(f"stopped after {done} of {total} clips: start it again to go on")

    hashed = [c if c.sha256 else c.changed(sha256=file_sha256(dataset / c.file_name)) for c in clips]
    known = measures.measure_all(dataset, hashed, on_progress)
    return {clip.file_name: known[clip.sha256] for clip in hashed}
