"""The settings of one sample, and of asking for several at once; one declaration each."""

from __future__ import annotations

import secrets
from typing import Literal

from pydantic import field_validator, model_validator

from workbench.families import default_model
from workbench.families.guidance import Curve, curve_of
from workbench.families.names import fold, legal_part, revision_field, variant_field
from workbench.settings import Settings, field

WHAT, HOW, SHAPE, SPEED = "What", "Guidance", "Shape", "Speed"
SEEDS = 2**31

Speed = Literal["exact", "fast", "frugal"]


class SampleSettings(Settings):
    """Everything that makes a sample; stored as JSON beside the mp4 and inside it."""

    model: str = field(
        default_model(), title="Model", section=WHAT, source="models",
        help="The video model: a known name, a folder with its weights in diffusers' layout, or OWNER/NAME of a model "
        "on the Hub in that layout.",
        path=True,
    )  # fmt: skip
    revision: str = revision_field(WHAT)
    variant: str = variant_field(WHAT)
    prompt: str = field("", title="Prompt", section=WHAT, lines=3, help="What the video shows.")
    negative_prompt: str = field(
        "", title="Negative prompt", section=WHAT, lines=2, advanced=True,
        help="What the video should not show; the guidance pushes away from it.",
    )  # fmt: skip
    image: str = field(
        "", title="First frame", section=WHAT,
        help="A picture's file (PNG, JPEG, WebP or BMP) that the video begins with, for image-to-video models. It is "
        "scaled and cropped to the video's size.",
        path=True,
    )  # fmt: skip
    video: str = field(
        "", title="Video to change", section=WHAT, advanced=True,
        help="A video's file: the new video keeps its shapes and movements and follows the prompt in the rest. "
        "For text-to-video models.",
        path=True,
    )  # fmt: skip
    strength: float = field(
        0.8, title="Strength of the change", section=WHAT, low=0.05, high=1.0, advanced=True,
        help="How far the video may move away from the one it changes: 1 keeps nothing of it.",
    )  # fmt: skip
    continue_from: str = field(
        "", title="Continue a video", section=WHAT, advanced=True,
        help="A video's file: the new video begins with its last frames and goes on from there.",
        path=True,
    )  # fmt: skip
    loras: tuple[str, ...] = field(
        (), title="LoRAs", section=WHAT, source="loras", lines=2,
        help="Any number of LoRAs, each a run's name, a .safetensors file or OWNER/NAME on the Hub, with =SCALE behind "
        "it if not 1: ring=0.8",
        path=True,
    )  # fmt: skip
    force_loras: bool = field(
        False, title="Use LoRAs that do not fit", section=WHAT, advanced=True,
        help="Load a LoRA although most of it belongs to another model; what does not fit is left out.",
    )  # fmt: skip
    guidance_scale: float | None = field(
        None, title="Guidance scale", section=HOW, low=0.0, high=50.0,
        help="How closely the video follows the prompt. Empty: the model's own value. 1 turns guidance off.",
    )  # fmt: skip
    dynamic_guidance: Curve = field(
        "off", title="Dynamic guidance", section=HOW, advanced=True,
        help="stock: as the authors' sampler (SAT's DynamicCFG) and diffusers' use_dynamic_cfg compute it: the scale "
        "jumps between 1 and 1 more than the one above from step to step. cosine: it rises evenly between the two, "
        "which neither of them does.",
    )  # fmt: skip
    guidance_from: float = field(
        0.0, title="Guidance from", section=HOW, low=0.0, high=1.0, advanced=True,
        help="Part of the denoising steps after which guidance begins; before, the prompt alone decides.",
    )  # fmt: skip
    guidance_until: float = field(
        1.0, title="Guidance until", section=HOW, low=0.0, high=1.0, advanced=True,
        help="Part of the denoising steps after which guidance ends. A step without guidance takes half the time.",
    )  # fmt: skip
    guidance_rescale: float = field(
        0.0, title="Guidance rescale", section=HOW, low=0.0, high=1.0, advanced=True,
        help="Take back what guidance adds to contrast: 0 nothing, 0.7 is usual with a high scale, 1 all of it.",
    )  # fmt: skip
    zero_star: bool = field(
        False, title="CFG-Zero*", section=HOW, advanced=True,
        help="Fit the negative prompt's prediction to the prompt's before guidance pushes them apart "
        "(arXiv 2503.18886). Its other half, zeros in the first step, is for flow models alone.",
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
    seed: int | None = field(
        0, title="Seed", section=HOW, low=0, high=SEEDS - 1,
        help="The same seed and settings give the same video. Empty: another one each time; the video says which.",
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
    fps: float | None = field(
        None, title="Frames per second", section=SHAPE, low=1.0, high=120.0, advanced=True,
        help="How fast the video plays; nothing is drawn differently. Empty: what the model was made for.",
    )  # fmt: skip
    device: Literal["auto", "cuda", "cpu"] = field(
        "auto", title="Device", section=SHAPE, advanced=True,
        help="auto takes the NVIDIA GPU if there is one, else the processor.",
    )  # fmt: skip
    speed: Speed = field(
        "exact", title="Speed", section=SPEED,
        help="exact: as diffusers draws. fast: some steps are guessed: 0.63 to 0.72 of the time, much the same video "
        "(39 dB or more; with DPM now and then another one). frugal: weights in 8 bits (45 dB or more), parts in turn, "
        "for a GPU that is too small; slower.",
    )  # fmt: skip
    attention: Literal["auto", "cudnn", "flash", "efficient", "flash-attn", "math", "stock"] = field(
        "auto", title="Attention", section=SPEED, advanced=True,
        help="The kernel that computes attention. auto takes the fastest that this GPU has.",
    )  # fmt: skip

    _legal_part = field_validator("revision", "variant")(legal_part)
    _fold = model_validator(mode="after")(fold)
    _read_curve = field_validator("dynamic_guidance", mode="before")(curve_of)

    def settled(self) -> SampleSettings:
        """The same with a seed drawn where it was left open."""
        return self if self.seed is not None else self.changed(seed=secrets.randbelow(SEEDS))


class BatchSettings(Settings):
    """How many samples one press of a button asks for."""

    each_line: bool = field(
        False, title="A prompt a line", section=WHAT, advanced=True,
        help="Every line of the prompt is a prompt of its own. A line may end with @@ and a first frame of its own: "
        "a ship leaves the harbour@@ship.png",
    )  # fmt: skip
    videos: int = field(
        1, title="Videos", section=WHAT, low=1, high=100, advanced=True,
        help="How many of each prompt: seeds count up from the seed, or all are drawn anew where it is empty.",
    )  # fmt: skip


def expand(settings: SampleSettings, batch: BatchSettings) -> list[SampleSettings]:
    """One sample's settings for every prompt and seed, seeds first; no seed is left open."""
    lines = [line for line in settings.prompt.splitlines() if line.strip()] if batch.each_line else []
    found = []
    for one in [_of_line(settings, line) for line in lines] or [settings]:
        for number in range(batch.videos):
            seed = None if settings.seed is None else (settings.seed + number) % SEEDS
            found.append(one.changed(seed=seed).settled())
    return found


def _of_line(settings: SampleSettings, line: str) -> SampleSettings:
    """The settings of a line: PROMPT, or PROMPT@@PICTURE as in SAT's lists."""
    prompt, mark, image = line.partition("@@")
    return settings.changed(prompt=prompt.strip(), **({"image": image.strip()} if mark else {}))
