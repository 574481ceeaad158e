"""The settings of one sample, one declaration each."""

from __future__ import annotations

from typing import Literal

from workbench.families import default_model
from workbench.settings import Settings, field

WHAT, HOW, SHAPE = "What", "Guidance", "Shape"


class SampleSettings(Settings):
    """Everything that makes a sample; stored as JSON beside the mp4 and inside it."""

    model: str = field(
        default_model(), title="Model", section=WHAT, source="models",
        help="The video model: a known name, or a folder with its weights in diffusers' layout.",
    )  # fmt: skip
    prompt: str = field("", title="Prompt", section=WHAT, lines=3, help="What the video shows.")
    negative_prompt: str = field(
        "", title="Negative prompt", section=WHAT, lines=2, advanced=True,
        help="What the video should not show; the guidance pushes away from it.",
    )  # fmt: skip
    image: str = field(
        "", title="First frame", section=WHAT,
        help="A picture's file (PNG, JPEG, WebP or BMP) that the video begins with, for image-to-video models. It is "
        "scaled and cropped to the video's size.",
    )  # fmt: skip
    continue_from: str = field(
        "", title="Continue a video", section=WHAT, advanced=True,
        help="A video's file: the new video begins with its last frames and goes on from there.",
    )  # fmt: skip
    loras: tuple[str, ...] = field(
        (), title="LoRAs", section=WHAT, source="loras", lines=2,
        help="Any number of LoRAs, each a run's name or a .safetensors file, with =SCALE behind it if not 1: ring=0.8",
    )  # fmt: skip
    guidance_scale: float | None = field(
        None, title="Guidance scale", section=HOW, low=0.0, high=50.0,
        help="How closely the video follows the prompt. Empty: the model's own value. 1 turns guidance off.",
    )  # fmt: skip
    dynamic_guidance: bool = field(
        False, title="Dynamic guidance", section=HOW, advanced=True,
        help="Vary the guidance scale over the denoising steps, as some models' own demos do.",
    )  # fmt: skip
    image_scale: Literal["pipeline", "raw"] = field(
        "pipeline", title="Scale of the first frame", section=HOW, advanced=True,
        help="pipeline: as diffusers does. raw: unscaled, for LoRAs that were trained so.",
    )  # fmt: skip
    steps: int | None = field(
        None, title="Denoising steps", section=HOW, low=1, high=1000, unit="steps",
        help="More is finer and slower. Empty: the model's own number.",
    )  # fmt: skip
    scheduler: Literal["model", "DDIM", "DPM"] = field(
        "model", title="Scheduler", section=HOW, advanced=True,
        help="How noise is removed. model: what the model was published with.",
    )  # fmt: skip
    seed: int = field(
        0, title="Seed", section=HOW, low=0, high=2**31 - 1,
        help="The same seed and settings give the same video.",
    )  # fmt: skip
    frames: int | None = field(
        None, title="Frames", section=SHAPE, low=1, high=1000, unit="frames", advanced=True,
        help="Length of the video. Empty: what the model was made for.",
    )  # fmt: skip
    height: int | None = field(
        None, title="Height", section=SHAPE, low=16, high=4096, unit="pixels", advanced=True,
        help="Empty: what the model was made for.",
    )  # fmt: skip
    width: int | None = field(
        None, title="Width", section=SHAPE, low=16, high=4096, unit="pixels", advanced=True,
        help="Empty: what the model was made for.",
    )  # fmt: skip
    device: Literal["auto", "cuda", "cpu"] = field(
        "auto", title="Device", section=SHAPE, advanced=True,
        help="auto takes the NVIDIA GPU if there is one, else the processor.",
    )  # fmt: skip
