"""A Phenaki of random weights, to be trained from scratch: its settings, and its folder."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from workbench.errors import ConfigError
from workbench.families.model_files import config, index
from workbench.settings import Settings, field

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


def create(folder: Path, new: NewModelSettings, text: Path, made_for: Mapping[str, int], seed: int) -> None:
    """Write the model into a folder.

    Args:
        text: the folder of a model whose text encoder is copied
        made_for: frames, height, width and fps

    Raises:
        ConfigError: sizes that do not go together, or a model without a T5 encoder
    """
    import torch

    from workbench.families.phenaki import files
    from workbench.families.phenaki.tokenizer import PhenakiTokenizer
    from workbench.families.phenaki.transformer import PhenakiTransformer

    levels = _levels(new.code_levels)
    for name in ("model_width", "tokenizer_width"):
        _check_width(name, getattr(new, name), new.model_heads)
    kind = index(text).get("text_encoder", ("", ""))[1]
    if kind != "T5EncoderModel":
        sentence = (
            f"text_encoder is {new.text_encoder}, whose encoder is a {kind or 'missing one'}: choose one with a T5"
        )
        raise ConfigError(sentence, {"text_encoder": sentence})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        tokenizer = PhenakiTokenizer(
            new.tokenizer_width,
            new.model_heads,
            new.tokenizer_layers,
            new.tokenizer_layers,
            new.patch,
            new.patch_frames,
            levels,
        )
        transformer = PhenakiTransformer(
            levels,
            new.model_width,
            new.model_heads,
            new.model_layers,
            config(text, "text_encoder")["d_model"],
            new.critic,
            new.critic_layers,
            new.text_tokens or text_tokens_of(text),
        )
    files.write(folder, tokenizer, transformer, text, dict(made_for))


def text_tokens_of(text: Path) -> int:
    """How many tokens of a caption the model in a folder reads. Raises ConfigError."""
    from workbench.families import find_model
    from workbench.families.diffusers_family import DiffusersFamily

    family, _ = find_model(str(text))
    assert isinstance(family, DiffusersFamily)
    return family.caption_length(text)


def _levels(text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isdecimal() and 2 <= int(part) <= 64 for part in parts) or len(parts) > 8:
        sentence = f"code_levels is {text[:40]!r}: write 1 to 8 numbers from 2 to 64 with commas between, as in 8,5,5,5"
        raise ConfigError(sentence, {"code_levels": sentence})
    return tuple(map(int, parts))


def _check_width(name: str, width: int, heads: int) -> None:
    if width % WIDTH_MULTIPLE or width % heads:
        sentence = f"{name} is {width}, must be a multiple of {WIDTH_MULTIPLE} and of model_heads, {heads}"
        raise ConfigError(f"{sentence}: use {_nearest(width, heads)}", {name: sentence})


def _nearest(width: int, heads: int) -> int:
    import math

    step = math.lcm(WIDTH_MULTIPLE, heads)
    return max(step, round(width / step) * step)
