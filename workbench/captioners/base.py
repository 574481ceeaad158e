"""The captioner interface and its settings: a captioner looks at a clip's frames and describes them in words.

The caption job creates a captioner, opens it once, asks it for one clip after another, and closes it, which frees its
memory and the GPU. A captioner raises `CaptionFailed` if one clip fails, `NoAnswer` if the service is unavailable right
now, and any other error from workbench.errors if every clip would fail.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from importlib.util import find_spec
from typing import TYPE_CHECKING, ClassVar, Self
from urllib.parse import urlsplit

from pydantic import field_validator

from workbench.errors import ConfigError, ModelUnavailable
from workbench.jobs.devices import DeviceChoice
from workbench.paths import extra_command
from workbench.settings import Settings, field
from workbench.vision.local_models import KnownModel

if TYPE_CHECKING:
    from workbench.clips.media import Pixels
    from workbench.workspace import Workspace

SENTENCE_END = re.compile(r"[.!?…。！？][\"'”’)]*(?=\s|$)")


WHO, SERVER = "Captioner", "Server"


class CaptionerSettings(Settings):
    """Which captioner to use and how to reach it."""

    captioner: str = field("vision_language", title="Captioner", section=WHO, source="captioners")
    """What writes the captions: a model on this machine (vision_language), or a server with an OpenAI-compatible API
    (endpoint)."""

    model: str = field("Qwen/Qwen3-VL-4B-Instruct", title="Model", section=WHO, source="caption_models", path=True)
    """For vision_language: a known model, downloaded once, or a folder with a model in transformers format."""

    device: DeviceChoice = field("auto", title="Device", section=WHO, source="devices", advanced=True)
    """For vision_language: where the model runs. auto uses a GPU if there is one."""

    longest_answer: int = field(300, title="Longest answer", section=WHO, unit="tokens", low=8, high=4096)
    """Longer captions are cut at the end of their last complete sentence."""

    base_url: str = field("", title="Address", section=SERVER)
    """For endpoint: the server's address, such as http://localhost:8000/v1. The clips' frames are sent there."""

    endpoint_model: str = field("", title="Remote model name", section=SERVER)
    """For endpoint: the model name that the server uses."""

    key_variable: str = field("OPENAI_API_KEY", title="API key variable", section=SERVER)
    """For endpoint: the environment variable that holds the API key. The key itself is never a setting. It is sent
    only to the host that WORKBENCH_KEY_HOSTS assigns to the variable (for OPENAI_API_KEY, api.openai.com). If the
    variable is not set, the key comes from the system's keyring: service video-lora-workbench, user the server's host.
    Most local servers need no key."""

    timeout_seconds: float = field(
        120.0, title="Timeout", section=SERVER, unit="seconds", low=0.1, high=3600, advanced=True
    )
    """For endpoint: how long to wait for one caption."""

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
                raise ValueError(
                    "base_url contains a user name or password: remove it, because settings are stored as plain text"
                )
        return text


class CaptionFailed(Exception):
    """This clip could not be captioned, but the next one may be.

    again: whether a retry may help.
    """

    def __init__(self, sentence: str, again: bool = False) -> None:
        super().__init__(sentence)
        self.again = again


class NoAnswer(ModelUnavailable):
    """The service is unavailable right now. The job retries, then stops so that it can be continued later.

    wait: seconds the service asks clients to wait, or None if it does not say.
    """

    def __init__(self, sentence: str, wait: float | None = None) -> None:
        super().__init__(sentence)
        self.wait = wait


class Captioner(ABC):
    """Frames in, words out."""

    id: ClassVar[str]  # the module's name, also stored as a clip's `caption_by`
    title: ClassVar[str]  # the name shown to users
    needs: ClassVar[str]  # memory, download and other requirements, in one sentence
    extra: ClassVar[str] = ""  # the extra of this package that installs its dependencies, or ""
    imports: ClassVar[tuple[str, ...]] = ()  # the packages that the extra installs
    reads: ClassVar[tuple[str, ...]]  # names of the settings it reads, besides those shared by all captioners
    choices: ClassVar[tuple[KnownModel, ...]] = ()  # models it offers by name

    @abstractmethod
    def __init__(self, settings: CaptionerSettings, workspace: Workspace) -> None:
        """Store the settings without loading anything. Raises ConfigError if one is missing."""

    def check(self) -> None:
        """Raise ConfigError for problems that can be found without loading a model or sending a request.

        Runs in the process that starts the job.
        """
        if missing := [name for name in self.imports if find_spec(name) is None]:
            raise ConfigError(
                f"captioner is {self.id!r}, which needs {missing[0]}: install the extra: {extra_command(self.extra)}"
            )

    @property
    @abstractmethod
    def model_name(self) -> str:
        """Name of the model, recorded in the dataset's history."""

    @abstractmethod
    def open(self) -> None:
        """Load the model or connect. Raises ConfigError, ModelUnavailable, DeviceBusy, OutOfMemory."""

    @abstractmethod
    def caption(self, frames: Pixels, fps: float, instruction: str) -> str:
        """Describe the frames in the model's own words.

        Args:
            frames: uint8 [F, H, W, 3]; F = 1 is a picture.
            fps: Rate of these sampled frames, not of the source video.

        Raises:
            CaptionFailed: This clip failed.
            NoAnswer: The service is unavailable right now.

        Any other error from workbench.errors ends the job at once.
        """

    @abstractmethod
    def close(self) -> None:
        """Free memory and connections. Safe to call if it was never opened."""

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
    """Trim truncated text to its last complete sentence, or return it unchanged if it has none."""
    ends = [match.end() for match in SENTENCE_END.finditer(text)]
    return text[: ends[-1]] if ends else text
