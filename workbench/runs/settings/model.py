"""Which model is trained, what of it, and what it is shown beside the caption."""

from __future__ import annotations

from typing import Literal

from pydantic import field_validator, model_validator

from workbench.families import default_model
from workbench.families.names import fold, legal_part, revision_field, variant_field
from workbench.settings import Settings, field

MODEL = "Model"


class ModelSettings(Settings):
    """The part of TrainSettings about the model."""

    model: str = field(
        default_model(), title="Model", section=MODEL, source="models",
        help="The video model to fine-tune: a known name, a folder with its weights in diffusers' layout, or "
        "OWNER/NAME of a model on the Hub in that layout.",
        path=True,
    )  # fmt: skip
    revision: str = revision_field(MODEL)
    variant: str = variant_field(MODEL)
    method: Literal["lora", "full"] = field(
        "lora", title="What is trained", section=MODEL, advanced=True,
        help="lora: small matrices beside the model's weights, a small file. full: all weights of the transformer; "
        "needs about five times the memory and gives a model of its own.",
    )  # fmt: skip
    start_from: str | None = field(
        None, title="Continue from a LoRA", section=MODEL, source="loras", advanced=True,
        help="A run's name or a .safetensors file, of this or another trainer: training goes on from its weights "
        "instead of from nothing.",
        path=True,
    )  # fmt: skip
    condition: Literal["first frame", "low resolution"] = field(
        "first frame", title="Image condition", section=MODEL, advanced=True,
        help="What an image-to-video model is shown beside the caption: the clip's first frame, or the whole clip "
        "scaled down and up again (which teaches it to sharpen).",
    )  # fmt: skip
    condition_frames: Literal["first", "every"] = field(
        "first", title="Where the first frame stands", section=MODEL, advanced=True,
        help="first: beside the first latent frame, zeros beside the others, as the published models expect it. "
        "every: beside every latent frame, as SAT's noised_image_all_concat does.",
    )  # fmt: skip
    low_resolution_scale: float = field(
        4.0, title="Low-resolution factor", section=MODEL, low=1.0, high=32.0, advanced=True,
        help="How many times smaller the low-resolution condition is than the clip.",
    )  # fmt: skip
    image_latent_scale: Literal["pipeline", "raw"] = field(
        "pipeline", title="Scale of the first frame", section=MODEL, advanced=True,
        help="How the first frame's latents are scaled. pipeline: as diffusers' pipeline does, so that the LoRA fits "
        "it. raw: not at all, as SAT samples. Training and previews always use the same.",
    )  # fmt: skip

    _legal_part = field_validator("revision", "variant")(legal_part)
    _fold = model_validator(mode="after")(fold)
