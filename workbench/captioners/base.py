"""The contract of a captioner: whatever looks at a clip's frames and says in words what they show. One file each.

A captioner is made in the caption job's process, opened once, asked clip after clip, and closed; what it holds (memory,
the GPU) is free when it is closed. It raises `CaptionFailed` for what is wrong with one clip, `NoAnswer` when it cannot
be asked just now, and another error of workbench.errors for what would be wrong with every clip.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from importlib.util import find_spec
from typing import TYPE_CHECKING, ClassVar, Self

from workbench.errors import ConfigError, ModelUnavailable
from workbench.paths import extra_command
from workbench.vision.local_models import KnownModel

if TYPE_CHECKING:
    from workbench.captioners.settings import CaptionerSettings
    from workbench.clips.media import Pixels
    from workbench.workspace import Workspace

SENTENCE_END = re.compile(r"[.!?…。！？][\"'”’)]*(?=\s|$)")


class CaptionFailed(Exception):
    """This clip got no caption, the next one may; the text says why. again: whether asking once more may help."""

    def __init__(self, sentence: str, again: bool = False) -> None:
        super().__init__(sentence)
        self.again = again


class NoAnswer(ModelUnavailable):
    """Nobody answers just now. It is asked again; when that does not help the job ends, to be continued later.

    wait: seconds it asks to be left alone, None when it does not say
    """

    def __init__(self, sentence: str, wait: float | None = None) -> None:
        super().__init__(sentence)
        self.wait = wait


class Captioner(ABC):
    """Frames in, words out.

    id:      its file's name, which is also what a clip's `caption_by` says
    title:   for people, in words
    needs:   memory, download and what else, in a sentence
    extra:   the extra of this package that brings what it imports; "" when it needs none
    imports: the packages that the extra brings
    reads:   the settings it reads, by name, besides those that every captioner shares
    choices: models it offers by name
    """

    id: ClassVar[str]
    title: ClassVar[str]
    needs: ClassVar[str]
    extra: ClassVar[str] = ""
    imports: ClassVar[tuple[str, ...]] = ()
    reads: ClassVar[tuple[str, ...]]
    choices: ClassVar[tuple[KnownModel, ...]] = ()

    @abstractmethod
    def __init__(self, settings: CaptionerSettings, workspace: Workspace) -> None:
        """Take note of the settings; nothing is loaded or asked yet. Raises ConfigError for one that is missing."""

    def check(self) -> None:
        """Say what would fail for certain, in the process that starts the task; loads and asks nothing.

        Raises ConfigError.
        """
        if missing := [name for name in self.imports if find_spec(name) is None]:
            raise ConfigError(
                f"captioner is {self.id!r}, which needs {missing[0]}: install the extra: {extra_command(self.extra)}"
            )

    @property
    @abstractmethod
    def model_name(self) -> str:
        """Which model answers, for the history."""

    @abstractmethod
    def open(self) -> None:
        """Load what it needs. Raises ConfigError, ModelUnavailable, DeviceBusy, OutOfMemory."""

    @abstractmethod
    def caption(self, frames: Pixels, fps: float, instruction: str) -> str:
        """What the frames show, in words, as the model says it.

        frames: uint8 [F, H, W, 3], F >= 1 (one frame is a picture); fps: of these very frames, as they were picked
        Raises CaptionFailed, NoAnswer, or another error of workbench.errors, which ends the job at once.
        """

    @abstractmethod
    def close(self) -> None:
        """Give back what it holds; harmless when it was never opened."""

    def __enter__(self) -> Self:
        try:
            self.open()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


def whole_sentences(text: str) -> str:
    """A text that was cut off, back to its last whole sentence; as it is when it has none."""
    ends = [match.end() for match in SENTENCE_END.finditer(text)]
    return text[: ends[-1]] if ends else text
