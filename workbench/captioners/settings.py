"""Settings of the captioners: which one to use, the local model, and the server."""

from __future__ import annotations

from urllib.parse import urlsplit

from pydantic import field_validator

from workbench.jobs.devices import DeviceChoice
from workbench.settings import Settings, field

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
