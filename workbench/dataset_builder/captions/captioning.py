"""Captions by a captioner, as a job: which clips it is asked about, and what failures come to.

A clip that fails is asked about again, then named and passed over; when nobody answers at all, the job ends and can be
continued. Not covered: a question (asking), several processes (sharing), how answers are kept (answers), edits of many
captions (editing).
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from workbench import jobs
from workbench.captioners import find_captioner
from workbench.captioners.base import Captioner, CaptionFailed
from workbench.clips.records import Clip, read_clips
from workbench.dataset_builder.captions.answers import Answers, written_by_hand
from workbench.dataset_builder.captions.asking import Asker
from workbench.dataset_builder.captions.editing import chosen
from workbench.dataset_builder.captions.settings import CaptionSettings
from workbench.dataset_builder.captions.sharing import caption_together
from workbench.errors import DataError
from workbench.workspace import Workspace

LOG = "captions.jsonl"


def check(dataset: Path, settings: CaptionSettings) -> None:
    """Raises ConfigError for what would fail for certain: no such captioner, package, model, key or clip."""
    find_captioner(settings.captioner)(settings, _workspace(dataset)).check()
    wanted(read_clips(dataset), settings)


def run(dataset: Path, config: Path, job: jobs.Job) -> None:
    """Caption the clips that the settings ask for; killed or stopped, it goes on where it was.

    job.outcome gets counts (captioned, failed, kept: written by hand meanwhile) and failed (file name -> why).
    Raises ConfigError, DataError when no clip could be captioned, CannotWrite, jobs.Stop, and what a captioner raises.
    """
    settings = CaptionSettings.load(config)
    captioner = find_captioner(settings.captioner)(settings, _workspace(dataset))
    request = settings.model_dump(mode="json", exclude={"processes"})  # how many ask changes no answer
    answers = Answers(dataset, job.folder / LOG, request, captioner.model_name)
    waiting = [clip for clip in wanted(read_clips(dataset), settings) if clip.file_name not in answers.texts]
    if waiting and settings.processes > 1:
        caption_together(dataset, settings, job, answers, waiting)
    elif waiting:
        _Work(dataset, settings, captioner, job, answers).caption(waiting)
    job.outcome = answers.outcome
    answers.forget()
    if answers.failed and not answers.texts:
        name, reason = next(iter(answers.failed.items()))
        raise DataError(f"none of the {len(answers.failed)} clips got a caption: {name}: {reason}")


def _workspace(dataset: Path) -> Workspace:
    return Workspace(dataset.resolve().parent.parent)


def wanted(clips: Sequence[Clip], settings: CaptionSettings) -> list[Clip]:
    """The clips that the settings ask captions for. Raises ConfigError for a chosen clip that is not there."""
    found = chosen(clips, settings.chosen if settings.which == "chosen" else None)
    return [
        clip
        for clip in found
        if not (settings.which == "missing" and clip.text.strip())
        and (settings.overwrite_hand or not written_by_hand(clip))
    ]


class _Work:
    """The loop over the clips, and its progress."""

    def __init__(
        self, dataset: Path, settings: CaptionSettings, captioner: Captioner, job: jobs.Job, answers: Answers
    ) -> None:
        self._dataset, self._settings, self._captioner = dataset, settings, captioner
        self._job, self._answers = job, answers
        self._asker = Asker(dataset, settings, captioner, self._wait)
        self._before = self._total = answers.count
        self._began = time.monotonic()

    def caption(self, waiting: Sequence[Clip]) -> None:
        self._total += len(waiting)
        self._job.beat("load", self._before, self._total, message=f"opening {self._captioner.model_name}")
        with contextlib.closing(self._captioner):
            self._captioner.open()
            self._began = time.monotonic()
            try:
                for clip in waiting:
                    self._tell()
                    self._stop_if_requested()
                    self._one(clip)
            finally:
                self._answers.write_down()
                self._tell()

    def _one(self, clip: Clip) -> None:
        name = clip.source or clip.file_name
        try:
            text = self._asker.ask(clip)
        except CaptionFailed as error:
            self._answers.fail(clip, str(error))
            sys.stdout.write(f"{name}: no caption: {error}\n")
        else:
            self._answers.add(clip, text)
            sys.stdout.write(f"{name}: {text}\n")

    def _wait(self, seconds: float, reason: str) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            self._tell(f"asking again in {left:.0f} s: {reason}")
            self._stop_if_requested()
            time.sleep(min(left, 0.2))

    def _stop_if_requested(self) -> None:
        if self._job.take("stop") is not None:
            raise jobs.Stop(f"stopped after {self._answers.count} of {self._total} clips: start it again to go on")

    def _tell(self, message: str = "") -> None:
        failed, count = self._answers.failed, self._answers.count
        if failed and not message:
            message = f"{len(failed)} clips got no caption, the last one because {list(failed.values())[-1]}"
        made = count - self._before
        seconds = (time.monotonic() - self._began) / made if made else None
        self._job.beat("caption", count, self._total, step_seconds=seconds, message=message)
        self._job.outcome = self._answers.outcome
