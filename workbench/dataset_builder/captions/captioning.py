"""Captions by a captioner, as a job: which clips it is asked about, what it is shown and asked, what failures come to.

A clip that fails is asked about again, then named and passed over; when nobody answers at all, the job ends and can be
continued. Not covered: the models (captioners), how answers are kept (caption_answers), which frames training sees
(frame_plan), edits of many captions (caption_text).
"""

from __future__ import annotations

import contextlib
import re
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal
from urllib.parse import urlsplit

from pydantic import field_validator

from workbench import jobs
from workbench.captioners import find_captioner
from workbench.captioners.base import Captioner, CaptionFailed, NoAnswer
from workbench.clips.records import Clip, read_clips, read_info
from workbench.dataset_builder.captions.answers import Answers, written_by_hand
from workbench.dataset_builder.captions.editing import chosen
from workbench.dataset_builder.sources.layouts.base import clean_caption
from workbench.errors import DataError
from workbench.settings import Settings, field
from workbench.workspace import Workspace

if TYPE_CHECKING:
    from workbench.clips.media import Pixels

CAPTIONER, CLIPS, SERVER, ASKING = "Captioner", "Clips", "Server", "Asking"
LOG = "captions.jsonl"
LONGEST_WAIT = 300.0  # seconds; a service that wants more is better asked again another day
PLACEHOLDER = re.compile(r"\{(trigger|caption)\}")
INSTRUCTION = """\
Describe this video for training a text-to-video model, in three to five plain sentences: who or what is seen and how \
it looks, what happens in which order, the place and the light, how the camera moves.
Say only what can be seen. Begin with the subject itself, not with "the video shows". Answer with the description alone.
Call the main subject {trigger}.
What is known about it: {caption}"""


class CaptionSettings(Settings):
    """What `datasets/<slug>/.caption/config.json` holds."""

    captioner: str = field("vision_language", title="Captioner", section=CAPTIONER, source="captioners")
    """Who writes the captions: a model on this machine (vision_language), or a server that speaks OpenAI's protocol
    (endpoint)."""

    model: str = field(
        "Qwen/Qwen3-VL-4B-Instruct", title="Model", section=CAPTIONER, source="caption_models", path=True
    )
    """For vision_language: a known model, downloaded once, or a folder with one in transformers' layout."""

    device: Literal["auto", "cuda", "cpu"] = field("auto", title="Device", section=CAPTIONER, advanced=True)
    """For vision_language: where the model computes. auto takes the GPU where there is one."""

    base_url: str = field("", title="Address", section=SERVER)
    """For endpoint: where the server is, such as http://localhost:8000/v1. The clips' frames are sent there."""

    endpoint_model: str = field("", title="Model's name there", section=SERVER)
    """For endpoint: the name the server knows its model by."""

    key_variable: str = field("OPENAI_API_KEY", title="Key's variable", section=SERVER)
    """For endpoint: the environment variable that holds the key. The key itself is never a setting. It is sent to the
    host that WORKBENCH_KEY_HOSTS names for it alone (OPENAI_API_KEY: api.openai.com). Without it the system's keyring
    is asked: service video-lora-workbench, user the server's host. Most local servers need none."""

    timeout_seconds: float = field(
        120.0, title="Patience", section=SERVER, unit="seconds", low=0.1, high=3600, advanced=True
    )
    """For endpoint: how long one answer may take."""

    which: Literal["missing", "all", "chosen"] = field("missing", title="Which clips", section=CLIPS)
    """missing: clips without a caption. all: every clip. chosen: those named below. Captions written by hand stay in
    any case, unless the switch says otherwise."""

    chosen: tuple[str, ...] = field((), title="Chosen clips", section=CLIPS, lines=3)
    """File names or ids of the clips that chosen means."""

    overwrite_hand: bool = field(False, title="Write over hand-written captions", section=CLIPS, advanced=True)
    """Off: what a person wrote is never replaced, not even when it was written while the job runs."""

    instruction: str = field(INSTRUCTION, title="Instruction", section=ASKING, lines=6)
    """What the captioner is asked. {trigger} stands for the dataset's trigger word, {caption} for the caption the clip
    has; a line whose placeholder has nothing to stand for is left out."""

    frames: int = field(8, title="Frames", section=ASKING, unit="frames", low=1, high=64)
    """How many frames of each clip are shown, spread evenly from the first to the last."""

    picture_side: int = field(768, title="Longer side", section=ASKING, unit="pixels", low=64, high=4096, advanced=True)
    """Larger frames are reduced to this before they are shown: more pixels cost memory, time and money."""

    longest_answer: int = field(300, title="Longest answer", section=ASKING, unit="tokens", low=8, high=4096)
    """An answer that gets longer is cut back to its last whole sentence."""

    retries: int = field(2, title="Retries", section=ASKING, low=0, high=10, advanced=True)
    """How often the same is asked again when it fails: after 1, 2, 4 ... seconds, or as the server says."""

    processes: int = field(1, title="Processes", section=ASKING, low=1, high=256, advanced=True)
    """How many ask at once. With vision_language each has a GPU of its own, so no more than there are GPUs work; with
    endpoint each asks the server."""

    @field_validator("base_url")
    @classmethod
    def _checked_address(cls, text: str) -> str:
        if text:
            try:
                parts = urlsplit(text)
                right = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
            except ValueError:
                right = False
            if not right:
                raise ValueError(
                    f"base_url is {text[:120]!r}, must be an address: write it as http://localhost:8000/v1"
                )
            if "@" in parts.netloc:
                raise ValueError("base_url holds a name or a password: take it out, settings are kept in plain text")
        return text


def instruction(template: str, trigger: str, caption: str) -> str:
    """The template with its placeholders filled in; lines whose placeholder has no value are left out."""
    values = {"trigger": trigger.strip(), "caption": caption.strip()}
    lines = [
        PLACEHOLDER.sub(lambda found: values[found[1]], line)
        for line in template.splitlines()
        if all(values[name] for name in PLACEHOLDER.findall(line))
    ]
    return "\n".join(lines).strip()


def sample_frames(path: Path, clip: Clip, count: int, side: int) -> tuple[Pixels, float]:
    """At most `count` frames from the first to the last, uint8 [F, h, w, 3], no side longer than `side`; and their fps.

    Raises DataError when the clip cannot be read.
    """
    from workbench.clips import media

    if not clip.frames or not clip.width:
        raise DataError("the dataset does not say its size and length: import it")
    count = min(count, clip.frames)
    indices = [round(number * (clip.frames - 1) / max(1, count - 1)) for number in range(count)]
    scale = min(1.0, side / max(clip.width, clip.height))
    size = (max(1, round(clip.height * scale)), max(1, round(clip.width * scale)))
    frames = media.read_frames(path, indices, size)
    return frames, clip.fps * (count - 1) / (clip.frames - 1) if count > 1 else clip.fps


# ---- the job


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
    asked = settings.model_dump(mode="json", exclude={"processes"})  # how many ask changes no answer
    answers = Answers(dataset, job.folder / LOG, asked, captioner.model_name)
    waiting = [clip for clip in wanted(read_clips(dataset), settings) if clip.file_name not in answers.texts]
    if waiting and settings.processes > 1:
        from workbench.dataset_builder.captions.sharing import caption_together

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


class Asker:
    """Asks a captioner about clips of a dataset, again where it fails."""

    def __init__(
        self, dataset: Path, settings: CaptionSettings, captioner: Captioner, pause: Callable[[float, str], None]
    ) -> None:
        """pause: called with seconds and a reason before the same is asked again; returns after that time"""
        self._dataset, self._settings, self._captioner, self._pause = dataset, settings, captioner, pause
        self._trigger = read_info(dataset).trigger_word

    def ask(self, clip: Clip) -> str:
        """A clip's caption, clean. Raises CaptionFailed, or what ends the job."""
        settings = self._settings
        try:
            frames, fps = sample_frames(self._dataset / clip.file_name, clip, settings.frames, settings.picture_side)
        except DataError as error:
            raise CaptionFailed(str(error)) from error
        question = instruction(settings.instruction, self._trigger, clip.text)
        for attempt in range(settings.retries + 1):
            try:
                return tidy(self._captioner.caption(frames, fps, question))
            except (CaptionFailed, NoAnswer) as error:
                if attempt == settings.retries or (isinstance(error, CaptionFailed) and not error.again):
                    raise
                asked = error.wait if isinstance(error, NoAnswer) else None
                self._pause(min(LONGEST_WAIT, 2.0**attempt if asked is None else asked), str(error))
        raise AssertionError("the last attempt returns or raises")


class _Work:
    """The loop over the clips, and what it tells of itself."""

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
                    self._stop_if_asked()
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
            self._stop_if_asked()
            time.sleep(min(left, 0.2))

    def _stop_if_asked(self) -> None:
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


def tidy(text: str) -> str:
    """An answer as a caption: one clean line without thoughts said aloud or quotes around it. Raises CaptionFailed."""
    spoken = re.sub(r"<think>.*?(</think>|$)", "", text, flags=re.DOTALL)
    clean = clean_caption(spoken)
    if quoted := re.fullmatch("\"([^\"]*)\"|“([^“”]*)”|'([^']*)'", clean):
        clean = "".join(text or "" for text in quoted.groups()).strip()
    if not clean:
        raise CaptionFailed("the captioner answered with nothing", again=True)
    return clean
