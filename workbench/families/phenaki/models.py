"""Phenaki's built-in model, LoRA layer names, and settings of new models.

A model's folder is in diffusers' layout, with our own classes. Nothing was published, so its recipes are measured here:
see docs/phenaki.md.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from workbench.families import lora_writing
from workbench.families.lora_names import ATTENTION, FEED_FORWARD, LayerNames
from workbench.families.model import TINY_PROMPTS, Frames, Model
from workbench.families.model_files import INDEX
from workbench.paths import ASSETS
from workbench.settings import Settings, field

# ---- the built-in model, and model folders

TOYS = ("self", "token", "none")  # the kinds of critics
SCHEDULER = "MaskGit"  # stands for a scheduler in settings
TEXT_TOKENS = 16  # tokens per caption, in models whose config does not say
GUIDANCE = 3.0  # as in Phenaki
TEMPERATURE = 0.9  # in the first sampling step; falls linearly
IN_BLOCK = {f"{attention}.{name}": f"{attention}.{name}" for attention in ("attn1", "attn2") for name in ATTENTION}
IN_BLOCK |= {name: name for name in FEED_FORWARD}
OUTSIDE = {name: name for name in ("proj_out", "critic_out")}
READERS = "this workbench, diffusers or finetrainers"
NAMES = LayerNames("Phenaki", "transformer_blocks", IN_BLOCK, OUTSIDE, READERS, more_parts=("critic_blocks",))
FORMATS = (
    lora_writing.LoraFormat(
        "diffusers",
        "diffusers",
        "diffusers' layout: rank and alpha in the file's metadata.",
        lora_writing.diffusers,
        ("this workbench",),
        "this workbench",
    ),
)

PIPELINE = "PhenakiPipeline"
OWN = "workbench.families.phenaki"
PARTS = {
    "tokenizer": ["transformers", "T5Tokenizer"],
    "text_encoder": ["transformers", "T5EncoderModel"],
    "vae": [f"{OWN}.tokenizer", "PhenakiTokenizer"],
    "transformer": [f"{OWN}.transformer", "PhenakiTransformer"],
}
TINY = Model(
    id="tiny-phenaki",
    title="Tiny Phenaki (built in)",
    family="phenaki",
    source=str(ASSETS / "tiny-phenaki"),
    revision=None,
    task="text-to-video",
    frames=9,
    fps=8,
    height=40,
    width=40,
    frame_rule=Frames(2, 17),
    size_multiple=8,
    steps=18,
    guidance_scale=1.5,
    scheduler=SCHEDULER,
    license="Apache-2.0",
    local=True,
    embedded=True,
    preservation_prompts=TINY_PROMPTS,
    recipes="tiny-phenaki",
)
MODELS = tuple(model for model in (TINY,) if (Path(model.source) / INDEX).is_file())


# ---- training from scratch

WIDTH_MULTIPLE = 8  # positions use half of the width for time, a quarter for each side, each as sines and cosines


class NewModelSettings(Settings):
    """Sizes of a new Phenaki model."""

    SECTION = "New model"

    text_encoder: str = field("tiny-cogvideox", title="Text encoder", source="models", path=True, advanced=True)
    """A model whose T5 text encoder to use, such as cogvideox-2b. It is copied and not trained. The built-in model's
    knows about 290 words about moving shapes, and spells out all others."""

    text_tokens: int | None = field(None, title="Text tokens", low=2, high=512, unit="tokens", advanced=True)
    """Tokens read per caption. Empty: as many as the text encoder's model reads."""

    model_width: int = field(512, title="Width", low=16, high=8192, advanced=True)
    """Width of the transformer: a multiple of 8 and of the number of heads."""

    model_layers: int = field(6, title="Layers", low=1, high=100, advanced=True)
    """Number of blocks in the transformer."""

    model_heads: int = field(8, title="Heads", low=1, high=128, advanced=True)
    """Number of attention heads in the transformer and the tokenizer."""

    critic: Literal["self", "token", "none"] = field("self", title="Critic", advanced=True)
    """What decides which codes to fill in again while sampling. self: a layer on the transformer. token: a second
    transformer. none: the transformer's probabilities."""

    critic_layers: int = field(6, title="Critic layers", low=1, high=100, advanced=True)
    """Number of blocks in a token critic."""

    tokenizer_width: int = field(512, title="Tokenizer width", low=16, high=8192, advanced=True)
    """Width of the tokenizer: a multiple of 8 and of the number of heads."""

    tokenizer_layers: int = field(4, title="Tokenizer layers", low=1, high=100, advanced=True)
    """Number of spatial blocks, and of temporal blocks, in the tokenizer's encoder and in its decoder."""

    patch: int = field(8, title="Patch", low=2, high=64, unit="pixels", advanced=True)
    """Pixels per side of the square that a code stands for. Height and width must be multiples of it."""

    patch_frames: int = field(2, title="Patch frames", low=1, high=16, unit="frames", advanced=True)
    """Frames per code. The first frame has codes of its own, so clips have one frame more than a multiple of this."""

    code_levels: str = field("8,5,5,5", title="Code levels", advanced=True)
    """Number of values in each dimension of a code: 8,5,5,5 makes 1,000 codes."""
