"""Captions by a captioner, as a job: which clips it is asked about, and what failures come to.

A clip that fails is asked about again, then named and passed over; when nobody answers at all, the job ends and can be
continued. Not covered: a question (asking), several processes (sharing), how answers are kept (answers), edits of many
captions (editing).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from pathlib import Path

from workbench import jobs
from workbench.captioners.base import Captioner
from workbench.clips.records import Clip, clips_named, read_clips
from workbench.dataset_builder.captions.answers import Answers, written_by_hand
from workbench.dataset_builder.captions.asking import Asker, captioner_of
from workbench.dataset_builder.captions.settings import CaptionSettings
from workbench.dataset_builder.captions.sharing import caption_together
from workbench.errors import ConfigError, DataError

LOG = "captions.jsonl"


def check(dataset: Path, settings: CaptionSettings) -> None:
    """Raises ConfigError for what would fail for certain: no such captioner, package, model, key or clip."""
    captioner_of(dataset, settings).check()
    wanted(read_clips(dataset), settings)


def run(dataset: Path, config: Path, job: jobs.Job) -> None:
    """Caption the clips that the settings ask for; killed or stopped, it goes on where it was.

    job.outcome gets counts (captioned, failed, kept: written by hand meanwhile) and failed (file name -> why).
    Raises ConfigError, DataError when no clip could be captioned, CannotWrite, jobs.Stop, and what a captioner raises.
    """
    settings = CaptionSettings.load(config)
    captioner = captioner_of(dataset, settings)
    request = settings.model_dump(mode="json", exclude={"processes"})  # how many ask changes no answer
    answers = Answers(dataset, job.folder / LOG, request, captioner.model_name)
    waiting = [clip for clip in wanted(read_clips(dataset), settings) if clip.file_name not in answers.texts]
    if waiting and settings.processes > 1:
        caption_together(dataset, settings, job, answers, waiting)
    elif waiting:
        _caption(dataset, settings, captioner, job, answers, waiting)
    job.outcome = answers.outcome
    answers.forget()
    if answers.failed and not answers.texts:
        reason = next(iter(answers.failed.values()))
        raise DataError(f"none of the {len(answers.failed)} clips got a caption: {reason}")


def wanted(clips: Sequence[Clip], settings: CaptionSettings) -> list[Clip]:
    """The clips that the settings ask captions for. Raises ConfigError for a chosen clip that is not there, or none."""
    if settings.which == "chosen" and not settings.chosen:
        raise ConfigError("which is chosen, but no clip is: name some, on the page mark them under Clips")
    found = clips_named(clips, settings.chosen if settings.which == "chosen" else None)
    return [
        clip
        for clip in found
        if not (settings.which == "missing" and clip.text.strip())
        and (settings.overwrite_hand or not written_by_hand(clip))
    ]


def _caption(
    dataset: Path, settings: CaptionSettings, captioner: Captioner, job: jobs.Job, answers: Answers, waiting: list[Clip]
) -> None:
    """Ask about one clip after the other, in this process."""
    before = answers.count
    total, began = before + len(waiting), time.monotonic()

    def report(message: str = "") -> None:
        if answers.failed and not message:
            reason = list(answers.failed.values())[-1]
            message = f"{len(answers.failed)} clips got no caption, the last one: {reason}"
        made = answers.count - before
        seconds = (time.monotonic() - began) / made if made else None
        job.beat("caption", answers.count, total, step_seconds=seconds, message=message)
        job.outcome = answers.outcome

    def stop_if_requested() -> None:
        job.check_stop(f"stopped after {answers.count} of {total} clips: start it again to go on")

    def pause(seconds: float, reason: str) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            report(f"asking again in {left:.0f} s: {reason}")
            stop_if_requested()
            time.sleep(min(left, 0.2))

    job.beat("load", before, total, message=f"opening {captioner.model_name}")
    asker = Asker(dataset, settings, captioner, pause)
    with contextlib.closing(captioner):
        captioner.open()
        began = time.monotonic()
        try:
            for clip in waiting:
                report()
                stop_if_requested()
                answers.take(asker.answer(clip))
        finally:
            answers.write_down()
            report()
