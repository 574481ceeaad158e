"""Captions by several processes, and by other machines that see the disk: `.caption/shared/`.

    work.json           the settings, and the clips by shard
    shards/             who does which (workbench.jobs.shards)
    answers-WHO.jsonl   a line an answer of one worker: {file_name, text} or {file_name, failed}

The job that was started collects the answers and is the only one that writes the dataset's records. What workers had
answered when it was killed is collected first when it is started again. Not covered: asking (asking), keeping
answers (answers).
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import shutil
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from workbench import jobs
from workbench.captioners.base import Captioner
from workbench.captioners.keys import find_key, handed_over
from workbench.clips.records import Clip, read_clips
from workbench.dataset_builder.captions.answers import Answers
from workbench.dataset_builder.captions.asking import Asker, captioner_of
from workbench.dataset_builder.captions.settings import CaptionSettings
from workbench.jobs.devices import gpus_of
from workbench.jobs.shards import Shards
from workbench.jobs.workers import Workers, take_shards
from workbench.settings import parse
from workbench.workspace import append_line, read_json, write_json
from workbench.workspace.records import json_lines, read_json_lines

MODULE = "workbench.dataset_builder.captions.sharing"
FOLDER, WORK, ANSWERS = "shared", "work.json", "answers-"
LARGEST_SHARD = 16  # clips


def caption_together(
    dataset: Path, settings: CaptionSettings, job: jobs.Job, answers: Answers, waiting: Sequence[Clip]
) -> None:
    """Caption the waiting clips by `settings.processes` workers.

    Raises jobs.Stop, ProcessFailed, CannotWrite.
    """
    folder = job.folder / FOLDER
    request = settings.model_dump(mode="json", exclude={"processes"})
    collector = _Collector(folder, answers, {clip.file_name for clip in waiting})
    if (folder / WORK).exists() and read_json(folder / WORK)["settings"] == request:
        collector.collect()
    already = answers.count
    names = [clip.file_name for clip in waiting if clip.file_name not in answers.texts]
    shutil.rmtree(folder, ignore_errors=True)
    size = max(1, min(LARGEST_SHARD, len(names) // (4 * settings.processes)))
    cut = [names[at : at + size] for at in range(0, len(names), size)]
    write_json(folder / WORK, {"settings": request, "shards": cut})

    def meanwhile() -> None:
        collector.collect()
        job.outcome = answers.outcome

    devices = []
    if settings.captioner == "vision_language":
        devices = gpus_of(settings.device)[: settings.processes]
    key = find_key(settings.key_variable, settings.base_url) if settings.captioner == "endpoint" else ""
    handing = functools.partial(handed_over, settings.key_variable, settings.base_url, key)
    count = min(len(devices) or settings.processes, max(1, len(cut)))
    try:
        shards = Shards(folder, len(cut))
        Workers(job, MODULE, count, devices, handing).run(shards, "caption", already + len(names), already, meanwhile)
    finally:
        meanwhile()
        answers.write_down()
    shutil.rmtree(folder, ignore_errors=True)


class _Collector:
    """Takes each answer once from the workers' files."""

    def __init__(self, folder: Path, answers: Answers, names: set[str]) -> None:
        self._folder, self._answers, self._names = folder, answers, names
        self._read: dict[Path, int] = {}

    def collect(self) -> None:
        """Take what is new. Raises CannotWrite."""
        for path in sorted(self._folder.glob(f"{ANSWERS}*.jsonl")):
            for line in self._lines(path):
                name = line.get("file_name", "")
                if name in self._names and name not in self._answers.texts:
                    self._answers.take(line)

    def _lines(self, path: Path) -> Iterator[dict[str, Any]]:
        with path.open("rb") as file:
            file.seek(self._read.get(path, 0))
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._read[path] = self._read.get(path, 0) + len(whole)
        return json_lines(whole)


def answered(folder: Path) -> set[str]:
    """The clips that some worker has answered for."""
    lines = (line for path in folder.glob(f"{ANSWERS}*.jsonl") for line in read_json_lines(path))
    return {str(line["file_name"]) for line in lines if "file_name" in line}


def worker(job: Path) -> int:
    """Take shards until none is left; the exit code."""
    folder, dataset = job / FOLDER, job.parent
    plan = read_json(folder / WORK)
    # A worker sees its own GPU alone, whatever number that has outside.
    device = str(plan["settings"]["device"]).partition(":")[0]
    settings = parse(CaptionSettings, {**plan["settings"], "device": device})
    clips = {clip.file_name: clip for clip in read_clips(dataset)}
    captioner = captioner_of(dataset, settings)
    asker = Asker(dataset, settings, captioner, lambda seconds, _: time.sleep(seconds))
    own = folder / f"{ANSWERS}{socket.gethostname()}-{os.getpid()}.jsonl"

    def answer(number: int) -> Iterator[int]:
        before = answered(folder)
        for name in plan["shards"][number]:
            if name in clips and name not in before:
                append_line(own, json.dumps(asker.answer(clips[name]), ensure_ascii=False))
            yield 1

    return take_shards(Shards(folder, len(plan["shards"])), answer, _opened(captioner))


@contextlib.contextmanager
def _opened(captioner: Captioner) -> Iterator[None]:
    with contextlib.closing(captioner):
        captioner.open()
        yield


if __name__ == "__main__":
    sys.exit(worker(Path(sys.argv[1]).resolve()))
