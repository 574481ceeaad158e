"""The Phenaki models: the built-in one, what LoRAs on it were trained with, those that people train, and a new one.

A model's folder is in diffusers' layout, with Phenaki's own classes. Nothing was published, so the recipes are
measured here: docs/phenaki.md has what the samples show.
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

# ---- the built-in model, and folders

TOYS = ("self", "token", "none")  # the critics
SCHEDULER = "MaskGit"  # its name where the others have a scheduler
TEXT_TOKENS = 16  # of a caption, in models whose config does not say it
GUIDANCE = 3.0  # as Phenaki samples
TEMPERATURE = 0.9  # of sampling's first step; it falls evenly
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


# ---- a model of random weights, to be trained from scratch

WIDTH_MULTIPLE = 8  # half of the width stands for time, a quarter for each side, each as sines and cosines


class NewModelSettings(Settings):
    """The sizes of a Phenaki that does not exist yet."""

    SECTION = "New model"

    text_encoder: str = field("tiny-cogvideox", title="Text encoder", source="models", path=True, advanced=True)
    """A model whose T5 encoder reads the captions, such as cogvideox-2b. It is copied and never trained. The built-in
    one knows about 290 words of moving shapes and spells all others."""

    text_tokens: int | None = field(None, title="Text tokens", low=2, high=512, unit="tokens", advanced=True)
    """How much of a caption is read. Empty: as much as the model with that encoder reads."""

    model_width: int = field(512, title="Width", low=16, high=8192, advanced=True)
    """Width of the transformer, a multiple of 8 and of its heads."""

    model_layers: int = field(6, title="Layers", low=1, high=100, advanced=True)
    """Blocks of the transformer."""

    model_heads: int = field(8, title="Heads", low=1, high=128, advanced=True)
    """Attention heads of transformer and tokenizer."""

    critic: Literal["self", "token", "none"] = field("self", title="Critic", advanced=True)
    """What decides which codes are filled in again while sampling. self: a layer on the transformer. token: a
    transformer of its own. none: the transformer's own probabilities."""

    critic_layers: int = field(6, title="Critic layers", low=1, high=100, advanced=True)
    """Blocks of a token critic."""

    tokenizer_width: int = field(512, title="Tokenizer width", low=16, high=8192, advanced=True)
    """Width of the tokenizer, a multiple of 8 and of the heads."""

    tokenizer_layers: int = field(4, title="Tokenizer layers", low=1, high=100, advanced=True)
    """Blocks of encoder and decoder, so many over space and so many over time."""

    patch: int = field(8, title="Patch", low=2, high=64, unit="pixels", advanced=True)
    """A code stands for a square of so many pixels: height and width are multiples of it."""

    patch_frames: int = field(2, title="Patch frames", low=1, high=16, unit="frames", advanced=True)
    """A code stands for so many frames, but one of the first frame: clips have 1 + so many times k frames."""

    code_levels: str = field("8,5,5,5", title="Code levels", advanced=True)
    """Values along each dimension of a code: 8,5,5,5 makes 1,000 codes."""
