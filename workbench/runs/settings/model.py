"""Which model is trained, what of it, and what it is shown beside the caption."""

from __future__ import annotations

from typing import Literal

from pydantic import field_validator, model_validator

from workbench.families import default_model
from workbench.families.names import fold, legal_part
from workbench.settings import Settings, field

MODEL = "Model"


class ModelSettings(Settings):
    """The part of TrainSettings about the model."""

    model: str = field(default_model(), title="Model", section=MODEL, source="models", path=True)
    """The video model to fine-tune: a known name, a folder with its weights in diffusers' layout, or OWNER/NAME of a
    model on the Hub in that layout."""

    revision: str = field("", title="Revision", section=MODEL, advanced=True)
    """Of a model on the Hub: a branch, a tag or a commit. It becomes part of the model's name, as the commit that it
    stands for when the work begins. Empty: the pinned commit of a known model, else the newest."""

    variant: str = field("", title="Variant", section=MODEL, advanced=True)
    """Of a model on the Hub: which of its sets of weights is read, such as fp16, where it has several. It becomes part
    of the model's name. Empty: the weights without a variant."""

    method: Literal["lora", "full"] = field("lora", title="What is trained", section=MODEL, advanced=True)
    """lora: small matrices beside the model's weights, a small file. full: all weights of the transformer; needs about
    five times the memory and gives a model of its own."""

    start_from: str | None = field(
        None, title="Continue from a LoRA", section=MODEL, source="exported_runs", advanced=True, path=True
    )
    """A run's name or a .safetensors file, of this or another trainer: training goes on from its weights instead of
    from nothing."""

    condition: Literal["first frame", "low resolution"] = field(
        "first frame", title="Image condition", section=MODEL, advanced=True
    )
    """What an image-to-video model gets beside the caption: the clip's first frame, or the whole clip scaled down
    and up again (which teaches it to sharpen)."""

    condition_frames: Literal["first", "every"] = field(
        "first", title="Where the first frame stands", section=MODEL, advanced=True
    )
    """first: beside the first latent frame, zeros beside the others, as the published models expect it. every: beside
    every latent frame, as SAT's noised_image_all_concat does."""

    low_resolution_scale: float = field(
        4.0, title="Low-resolution factor", section=MODEL, low=1.0, high=32.0, advanced=True
    )
    """How many times smaller the low-resolution condition is than the clip."""

    image_latent_scale: Literal["pipeline", "raw"] = field(
        "pipeline", title="Scale of the first frame", section=MODEL, advanced=True
    )
    """How the first frame's latents are scaled. pipeline: as diffusers' pipeline does, so that the LoRA fits it. raw:
    not at all, as SAT samples. Training and previews always use the same."""

    _legal_part = field_validator("revision", "variant")(legal_part)
    _fold = model_validator(mode="after")(fold)
