"""The settings that captioners read: which one writes, and what a local model or a server needs to know."""

from __future__ import annotations

from urllib.parse import urlsplit

from pydantic import field_validator

from workbench.jobs.devices import DeviceChoice
from workbench.settings import Settings, field

WHO, SERVER = "Captioner", "Server"


class CaptionerSettings(Settings):
    """Which backend writes captions, and how it is reached."""

    captioner: str = field("vision_language", title="Captioner", section=WHO, source="captioners")
    """Who writes the captions: a model on this machine (vision_language), or a server that speaks OpenAI's protocol
    (endpoint)."""

    model: str = field("Qwen/Qwen3-VL-4B-Instruct", title="Model", section=WHO, source="caption_models", path=True)
    """For vision_language: a known model, downloaded once, or a folder with one in transformers' layout."""

    device: DeviceChoice = field("auto", title="Device", section=WHO, source="devices", advanced=True)
    """For vision_language: where the model computes. auto takes the GPU where there is one."""

    longest_answer: int = field(300, title="Longest answer", section=WHO, unit="tokens", low=8, high=4096)
    """An answer that gets longer is cut back to its last whole sentence."""

    base_url: str = field("", title="Address", section=SERVER)
    """For endpoint: where the server is, such as http://localhost:8000/v1. The clips' frames are sent there."""

    endpoint_model: str = field("", title="Remote model name", section=SERVER)
    """For endpoint: the name by which the server knows its model."""

    key_variable: str = field("OPENAI_API_KEY", title="API key variable", section=SERVER)
    """For endpoint: the environment variable that holds the key. The key itself is never a setting. It is sent to the
    host that WORKBENCH_KEY_HOSTS names for it alone (OPENAI_API_KEY: api.openai.com). Without it the system's keyring
    is asked: service video-lora-workbench, user the server's host. Most local servers need none."""

    timeout_seconds: float = field(
        120.0, title="Timeout", section=SERVER, unit="seconds", low=0.1, high=3600, advanced=True
    )
    """For endpoint: how long one answer may take."""

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
                raise ValueError("base_url holds a name or a password: remove it, settings are kept in plain text")
        return text
