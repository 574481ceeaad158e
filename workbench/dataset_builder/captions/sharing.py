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
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from workbench import jobs
from workbench.captioners import find_captioner
from workbench.captioners.base import CaptionFailed
from workbench.captioners.keys import find_key, handed_over
from workbench.clips.records import Clip, read_clips
from workbench.dataset_builder.captions.answers import Answers
from workbench.dataset_builder.captions.asking import Asker
from workbench.dataset_builder.captions.settings import CaptionSettings
from workbench.errors import WorkbenchError, explain
from workbench.jobs.devices import gpus, pick_device
from workbench.jobs.shards import Overtaken, Shards, work
from workbench.jobs.workers import Workers, orphaned
from workbench.records import json_lines, read_json_lines
from workbench.settings import parse
from workbench.workspace import Workspace, append_line, read_json, write_json

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
    collector = _Collector(folder, answers, {clip.file_name: clip for clip in waiting})
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
    if settings.captioner == "vision_language" and pick_device(settings.device).kind == "cuda":
        devices = gpus()[: settings.processes]
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

    def __init__(self, folder: Path, answers: Answers, clips: dict[str, Clip]) -> None:
        self._folder, self._answers, self._clips = folder, answers, clips
        self._read: dict[Path, int] = {}

    def collect(self) -> None:
        """Take what is new. Raises CannotWrite."""
        for path in sorted(self._folder.glob(f"{ANSWERS}*.jsonl")):
            for line in self._lines(path):
                clip = self._clips.get(line.get("file_name", ""))
                if clip is None or clip.file_name in self._answers.texts:
                    continue
                if "text" in line:
                    self._answers.add(clip, line["text"])
                else:
                    self._answers.fail(clip, line["failed"])

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
    stopping = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: stopping.set())
    folder, dataset = job / FOLDER, job.parent
    plan = read_json(folder / WORK)
    settings = parse(CaptionSettings, plan["settings"])
    clips = {clip.file_name: clip for clip in read_clips(dataset)}
    captioner = find_captioner(settings.captioner)(settings, Workspace(dataset.resolve().parent.parent))
    asker = Asker(dataset, settings, captioner, lambda seconds, _: time.sleep(seconds))
    own = folder / f"{ANSWERS}{socket.gethostname()}-{os.getpid()}.jsonl"
    try:
        with contextlib.closing(captioner):
            captioner.open()
            for claim in work(Shards(folder, len(plan["shards"]))):
                with claim, contextlib.suppress(Overtaken):
                    before = answered(folder)
                    for name in plan["shards"][claim.number]:
                        if name in clips and name not in before:
                            _answer(asker, clips[name], own)
                        claim.piece()
                        if stopping.is_set() or orphaned():
                            return 0
                    claim.finish()
    except (WorkbenchError, RuntimeError, OSError) as error:
        code, sentence = explain(error)
        sys.stdout.write(f"{sentence}\n")
        return int(code)
    return 0


def _answer(asker: Asker, clip: Clip, own: Path) -> None:
    try:
        answer = {"file_name": clip.file_name, "text": asker.ask(clip)}
    except CaptionFailed as error:
        answer = {"file_name": clip.file_name, "failed": str(error)}
    append_line(own, json.dumps(answer, ensure_ascii=False))
    sys.stdout.write(f"{json.dumps(answer, ensure_ascii=False)}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(worker(Path(sys.argv[1]).resolve()))
