"""One question to a captioner: the frames of a clip, the instruction, and asking again where it fails.

Not covered: the models (captioners), which clips are asked about, and in how many processes (captioning, sharing).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.captioners import find_captioner
from workbench.captioners.base import Captioner, CaptionFailed, NoAnswer
from workbench.clips.records import Clip, clip_file, read_info
from workbench.dataset_builder.captions.settings import CaptionSettings
from workbench.dataset_builder.sources.text import clean_caption
from workbench.errors import DataError
from workbench.workspace import Workspace

if TYPE_CHECKING:
    from workbench.clips.media import Pixels

LONGEST_WAIT = 300.0  # seconds; a service that wants more is better asked again another day
PLACEHOLDER = re.compile(r"\{(trigger|caption)\}")


def captioner_of(dataset: Path, settings: CaptionSettings) -> Captioner:
    """The captioner that the settings name, not opened. Raises ConfigError."""
    return find_captioner(settings.captioner)(settings, Workspace.of(dataset.resolve()))


class Asker:
    """Asks an open captioner about clips of a dataset, again where it fails."""

    def __init__(
        self, dataset: Path, settings: CaptionSettings, captioner: Captioner, pause: Callable[[float, str], object]
    ) -> None:
        """pause: called with seconds and a reason before the same is asked again; returns after that time"""
        self._dataset, self._settings, self._captioner, self._pause = dataset, settings, captioner, pause
        self._trigger = read_info(dataset).trigger_word

    def answer(self, clip: Clip) -> dict[str, str]:
        """{file_name, text}, or {file_name, failed} with name and reason; also in the log. Raises what ends the job."""
        try:
            answer = {"text": self._ask(clip)}
            words = f"{clip.name}: {answer['text']}"
        except CaptionFailed as error:
            words = f"{clip.name}: no caption: {error}"
            answer = {"failed": words}
        print(words, flush=True)  # noqa: T201 - the job's log
        return {"file_name": clip.file_name, **answer}

    def _ask(self, clip: Clip) -> str:
        """A clip's caption, clean. Raises CaptionFailed, or what ends the job."""
        settings = self._settings
        if clip.is_latents:
            raise CaptionFailed("it is latents, in which there is nothing to see: write its caption by hand")
        try:
            path = clip_file(self._dataset, clip.file_name)
            frames, fps = sample_frames(path, clip, settings.frames, settings.picture_side)
        except DataError as error:
            raise CaptionFailed(str(error)) from error
        question = instruction(settings.instruction, self._trigger, clip.text)
        for attempt in range(settings.retries + 1):
            try:
                return tidy(self._captioner.caption(frames, fps, question))
            except (CaptionFailed, NoAnswer) as error:
                if attempt == settings.retries or (isinstance(error, CaptionFailed) and not error.again):
                    raise
                seconds = error.wait if isinstance(error, NoAnswer) else None
                self._pause(min(LONGEST_WAIT, 2.0**attempt if seconds is None else seconds), str(error))
        raise AssertionError("the last attempt returns or raises")


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


def tidy(text: str) -> str:
    """An answer as a caption: one clean line without thoughts said aloud or quotes around it. Raises CaptionFailed."""
    spoken = re.sub(r"<think>.*?(</think>|$)", "", text, flags=re.DOTALL)
    clean = clean_caption(spoken)
    if quoted := re.fullmatch("\"([^\"]*)\"|“([^“”]*)”|'([^']*)'", clean):
        clean = "".join(text or "" for text in quoted.groups()).strip()
    if not clean:
        raise CaptionFailed("the captioner answered with nothing", again=True)
    return clean
