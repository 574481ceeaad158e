"""Caption clips with a captioner, as a job, in one process or several.

A clip that fails is retried, then reported and skipped. If the captioner does not answer at all, the job ends and can
be resumed. Answers are first written to `.caption/captions.jsonl`, one per line:

    {"settings": {...}, "model": NAME, "task": ID}    the first line: the request
    {"file_name": NAME, "text": CAPTION}              an answer
    {"written": [NAME, ...]}                          these are in the dataset's records

The dataset's records follow in batches of doubling size: the first captions appear at once, and at any time at least
half of all are in the records. All batches of a job form one growing entry in the history, so one undo reverts them
all. Each batch reads the records again, so captions that a person wrote in the meantime are kept.

Several processes, also on other machines with the same disk, share `.caption/shared/`:

    work.json           the settings, and the clips by shard
    shards/             who does which shard (workbench.jobs.shards)
    answers-WHO.jsonl   one worker's answers, one per line: {file_name, text} or {file_name, failed}

The job itself collects the answers, and alone writes the dataset's records. After a kill, a restart first collects the
workers' remaining answers.
"""

from __future__ import annotations

import functools
import json
import os
import re
import secrets
import shutil
import socket
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench import jobs
from workbench.captioners import find_captioner
from workbench.captioners.base import Captioner, CaptionFailed, NoAnswer
from workbench.captioners.keys import find_key, handed_over
from workbench.clips.records import Clip, clip_file, clips_named, read_clips, read_info
from workbench.dataset_builder import history
from workbench.dataset_builder.settings import CaptionSettings
from workbench.dataset_builder.sources.columns import clean_caption
from workbench.errors import ConfigError, DataError
from workbench.jobs import queue
from workbench.jobs.devices import Device, gpus_of
from workbench.jobs.shards import Shards, Workers, take_shards
from workbench.settings import parse
from workbench.workspace import Workspace, append_line, read_json, write_json, writing
from workbench.workspace.records import read_json_lines

if TYPE_CHECKING:
    from workbench.clips.media import Pixels

LOG = "captions.jsonl"


def check(dataset: Path, settings: CaptionSettings) -> None:
    """Raise ConfigError for certain failures: a captioner, package, model, key or clip that does not exist."""
    captioner_of(dataset, settings).check()
    wanted(read_clips(dataset), settings)


def devices(config: Path) -> list[Device]:
    """Return the GPUs for a captioner that runs on this machine. Raises ConfigError."""
    settings = CaptionSettings.load(config)
    return gpus_of(settings.device)[: settings.processes] if settings.captioner == "vision_language" else []


def run(dataset: Path, config: Path, job: jobs.Job) -> None:
    """Caption clips, resuming after a stop or kill.

    The outcome: counts (captioned, failed, and kept: written by hand in the meantime) and failed (file name -> why).
    Raises ConfigError, DataError if every clip failed, CannotWrite, jobs.Stop, and what a captioner raises.
    """
    settings = CaptionSettings.load(config)
    captioner = captioner_of(dataset, settings)
    request = settings.model_dump(mode="json", exclude={"processes"})  # which does not affect the answers
    answers = Answers(dataset, job.folder / LOG, request, captioner.model_name)
    waiting = [clip for clip in wanted(read_clips(dataset), settings) if clip.file_name not in answers.texts]
    held = devices(config) if waiting else []
    with queue.acquired(Workspace.of(job.folder.parent), held, job, f"caption of {dataset.name}"):
        if waiting and settings.processes > 1:
            caption_together(settings, job, answers, waiting, held)
        elif waiting:
            _caption(dataset, settings, captioner, job, answers, waiting)
    job.outcome = answers.outcome
    answers.forget()
    if answers.failed and not answers.texts:
        reason = next(iter(answers.failed.values()))
        raise DataError(f"none of the {len(answers.failed)} clips got a caption: {reason}")


def wanted(clips: Sequence[Clip], settings: CaptionSettings) -> list[Clip]:
    """Return the clips to caption. Raises ConfigError if a chosen clip does not exist, or none is chosen."""
    if settings.which == "chosen" and not settings.chosen:
        raise ConfigError("which is chosen, but no clip is: list some, or select them on the page under Clips")
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
        job.check_stop(f"stopped after {answers.count} of {total} clips: start it again to resume")

    def pause(seconds: float, reason: str) -> None:
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            report(f"retrying in {left:.0f} s: {reason}")
            stop_if_requested()
            time.sleep(min(left, 0.2))

    job.beat("load", before, total, message=f"loading {captioner.model_name}")
    trigger_word = read_info(dataset).trigger_word
    with captioner:
        began = time.monotonic()
        try:
            for clip in waiting:
                report()
                stop_if_requested()
                answers.take(ask(dataset, settings, captioner, trigger_word, pause, clip))
        finally:
            answers.write_down()
            report()


# ---- one question ----------------------------------------------------------------------------------------------------

LONGEST_WAIT = 300.0  # seconds between retries, whatever the service asks for
PLACEHOLDER = re.compile(r"\{(trigger|caption)\}")


def captioner_of(dataset: Path, settings: CaptionSettings) -> Captioner:
    """Create the captioner from the settings, without loading it. Raises ConfigError."""
    return find_captioner(settings.captioner)(settings, Workspace.of(dataset.resolve()))


def ask(
    dataset: Path,
    settings: CaptionSettings,
    captioner: Captioner,
    trigger_word: str,
    pause: Callable[[float, str], object],
    clip: Clip,
) -> dict[str, str]:
    """Ask a loaded captioner about a clip, with retries; return and log {file_name, text} or {file_name, failed}.

    pause: called with seconds and a reason before each retry; waits for that time. Raises what must end the job.
    """
    try:
        if clip.is_latents:
            raise CaptionFailed("it is latents, which have no picture to show: write its caption by hand")
        try:
            path = clip_file(dataset, clip.file_name)
            frames, fps = sample_frames(path, clip, settings.frames, settings.picture_side)
        except DataError as error:
            raise CaptionFailed(str(error)) from error
        question, text = instruction(settings.instruction, trigger_word, clip.text), ""
        for attempt in range(settings.retries + 1):
            try:
                text = tidy(captioner.caption(frames, fps, question))
                break
            except (CaptionFailed, NoAnswer) as error:
                if attempt == settings.retries or (isinstance(error, CaptionFailed) and not error.again):
                    raise
                seconds = error.wait if isinstance(error, NoAnswer) else None
                pause(min(LONGEST_WAIT, 2.0**attempt if seconds is None else seconds), str(error))
        words, answer = f"{clip.name}: {text}", {"text": text}
    except CaptionFailed as error:
        words = f"{clip.name}: no caption: {error}"
        answer = {"failed": words}
    print(words, flush=True)  # noqa: T201 - the job's log
    return {"file_name": clip.file_name, **answer}


def instruction(template: str, trigger: str, caption: str) -> str:
    """Fill in a template's placeholders, dropping lines with an empty one."""
    values = {"trigger": trigger.strip(), "caption": caption.strip()}
    lines = [
        PLACEHOLDER.sub(lambda found: values[found[1]], line)
        for line in template.splitlines()
        if all(values[name] for name in PLACEHOLDER.findall(line))
    ]
    return "\n".join(lines).strip()


def sample_frames(path: Path, clip: Clip, count: int, side: int) -> tuple[Pixels, float]:
    """Return at most `count` evenly spaced frames, [F, h, w, 3] of at most `side` pixels, and their frame rate.

    Raises DataError if the clip cannot be read.
    """
    from workbench.clips import media

    if not clip.frames or not clip.width:
        raise DataError("the dataset does not say its size and length: import it again")
    count = min(count, clip.frames)
    indices = [round(number * (clip.frames - 1) / max(1, count - 1)) for number in range(count)]
    scale = min(1.0, side / max(clip.width, clip.height))
    size = (max(1, round(clip.height * scale)), max(1, round(clip.width * scale)))
    frames = media.read_frames(path, indices, size)
    return frames, clip.fps * (count - 1) / (clip.frames - 1) if count > 1 else clip.fps


def tidy(text: str) -> str:
    """Clean an answer to a one-line caption without <think> blocks and enclosing quotes. Raises CaptionFailed."""
    clean = clean_caption(re.sub(r"<think>.*?(</think>|$)", "", text, flags=re.DOTALL))
    if quoted := re.fullmatch("\"([^\"]*)\"|“([^“”]*)”|'([^']*)'", clean):
        clean = "".join(text or "" for text in quoted.groups()).strip()
    if not clean:
        raise CaptionFailed("the captioner's answer is empty", again=True)
    return clean


# ---- the answers -----------------------------------------------------------------------------------------------------


def written_by_hand(clip: Clip) -> bool:
    """Whether a person wrote the clip's caption."""
    return clip.caption_by == "hand" and bool(clip.text.strip())


class Answers:
    """The answers of one job, which survive stops and kills.

    texts: file name -> caption.
    kept: file names of clips whose caption a person wrote in the meantime, which stays.
    failed: file name -> the clip's name, and why it has no caption.
    """

    def __init__(self, dataset: Path, path: Path, settings: dict[str, Any], model: str) -> None:
        self._dataset, self._path = dataset, path
        self._request: dict[str, Any] = {"settings": settings, "model": model, "task": secrets.token_hex(8)}
        self._pending: dict[str, str] = {}
        self.texts: dict[str, str] = {}
        self.kept: set[str] = set()
        self.failed: dict[str, str] = {}
        self._read()
        self.write_down()

    @property
    def count(self) -> int:
        """The number of clips that are done, with or without a caption."""
        return len(self.texts) + len(self.failed)

    @property
    def outcome(self) -> dict[str, Any]:
        """The job's result: counts, and why some clips got no caption."""
        counts = {"captioned": len(self.texts) - len(self.kept), "kept": len(self.kept), "failed": len(self.failed)}
        return {"counts": counts, "failed": dict(self.failed)}

    def take(self, answer: dict[str, str]) -> None:
        """Store an answer of `ask`; its caption reaches the records with this batch or the next.

        Failures are not stored, so that a later job asks again. Raises CannotWrite.
        """
        name = answer["file_name"]
        if "text" not in answer:
            self.failed[name] = answer["failed"]
            return
        self._append(answer)
        self.texts[name] = self._pending[name] = answer["text"]
        if 2 * len(self._pending) >= len(self.texts):
            self.write_down()

    def write_down(self) -> None:
        """Write pending answers to the records. Raises CannotWrite."""
        if self._pending:
            what, task = f"captions by {self._request['model']}", str(self._request.get("task", ""))
            history.edit(self._dataset, what, lambda clips: list(self._filled(clips)), task)
            self._append({"written": list(self._pending)})
            self._pending.clear()

    def forget(self) -> None:
        """Delete the answers at the end of the job. Raises CannotWrite."""
        with writing(self._path):
            self._path.unlink(missing_ok=True)

    def _filled(self, clips: Sequence[Clip]) -> Iterator[Clip]:
        """Yield the changed records, except those that a person has captioned in the meantime."""
        settings = self._request["settings"]
        for clip in clips:
            text = self._pending.get(clip.file_name)
            if text is None or text == clip.text:
                continue
            by_hand = written_by_hand(clip) and not settings["overwrite_hand"]
            if by_hand or (settings["which"] == "missing" and clip.text.strip()):
                self.kept.add(clip.file_name)
            else:
                yield clip.changed(text=text, caption_by=settings["captioner"])

    def _read(self) -> None:
        """Read an interrupted job's answers: all for the same request, else write only its pending ones."""
        lines = read_json_lines(self._path)
        if not lines or "settings" not in lines[0]:
            self.forget()
            self._append(self._request)
            return
        for line in lines[1:]:
            if "text" in line:
                self.texts[line["file_name"]] = self._pending[line["file_name"]] = line["text"]
            for name in line.get("written", ()):
                self._pending.pop(name, None)
        if all(lines[0].get(name) == self._request[name] for name in ("settings", "model")):
            self._request = lines[0]
            # Captions that were undone or edited since are requested again.
            now = {clip.file_name: clip.text for clip in read_clips(self._dataset)}
            self.texts = {
                name: text for name, text in self.texts.items() if name in self._pending or now.get(name) == text
            }
            return
        request, self._request = self._request, lines[0]
        self.write_down()
        self.forget()
        self._request, self.texts, self.kept = request, {}, set()
        self._append(request)

    def _append(self, line: dict[str, Any]) -> None:
        append_line(self._path, json.dumps(line, ensure_ascii=False))


# ---- several processes -----------------------------------------------------------------------------------------------

MODULE = "workbench.dataset_builder.captions.captioning"
FOLDER, WORK, ANSWERS = "shared", "work.json", "answers-"
LARGEST_SHARD = 16  # clips


def caption_together(
    settings: CaptionSettings,
    job: jobs.Job,
    answers: Answers,
    waiting: Sequence[Clip],
    devices: Sequence[Device] = (),
) -> None:
    """Caption the waiting clips with `settings.processes` workers, each on one of the devices.

    Raises jobs.Stop, ProcessFailed, CannotWrite.
    """
    folder = job.folder / FOLDER
    request = settings.model_dump(mode="json", exclude={"processes"})
    asked = {clip.file_name for clip in waiting}

    def collect() -> None:
        for line in answers_of(folder):
            if line.get("file_name") in asked - answers.texts.keys():
                answers.take(line)

    if (folder / WORK).exists() and read_json(folder / WORK)["settings"] == request:
        collect()
    already = answers.count
    names = [clip.file_name for clip in waiting if clip.file_name not in answers.texts]
    shutil.rmtree(folder, ignore_errors=True)
    size = max(1, min(LARGEST_SHARD, len(names) // (4 * settings.processes)))
    cut = [names[at : at + size] for at in range(0, len(names), size)]
    write_json(folder / WORK, {"settings": request, "shards": cut})

    def meanwhile() -> None:
        collect()
        job.outcome = answers.outcome

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


def answers_of(folder: Path) -> Iterator[dict[str, Any]]:
    """Yield the workers' answers so far."""
    for path in sorted(folder.glob(f"{ANSWERS}*.jsonl")):
        yield from read_json_lines(path)


def worker(job: Path) -> int:
    """Process shards until none is left; return the exit code."""
    folder, dataset = job / FOLDER, job.parent
    plan = read_json(folder / WORK)
    # A worker sees only its own GPU, so drop the index.
    device = str(plan["settings"]["device"]).partition(":")[0]
    settings = parse(CaptionSettings, {**plan["settings"], "device": device})
    clips = {clip.file_name: clip for clip in read_clips(dataset)}
    captioner = captioner_of(dataset, settings)
    trigger_word = read_info(dataset).trigger_word
    own = folder / f"{ANSWERS}{socket.gethostname()}-{os.getpid()}.jsonl"

    def answer(number: int) -> Iterator[int]:
        before = {line.get("file_name") for line in answers_of(folder)}
        for name in plan["shards"][number]:
            if name in clips and name not in before:
                found = ask(dataset, settings, captioner, trigger_word, lambda wait, _: time.sleep(wait), clips[name])
                append_line(own, json.dumps(found, ensure_ascii=False))
            yield 1

    return take_shards(Shards(folder, len(plan["shards"])), answer, captioner)


if __name__ == "__main__":
    sys.exit(worker(Path(sys.argv[1]).resolve()))
