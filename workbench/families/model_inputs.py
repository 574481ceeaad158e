"""What a transformer is given in training and sampling: captions read by a text encoder, pictures, and whole batches.

How a family makes them: see `base.Family`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import ModelUnavailable

if TYPE_CHECKING:
    import torch

Tensors = Mapping[str, "torch.Tensor"]


@dataclass(frozen=True)
class CaptionTokens:
    """How much of one caption the text encoder reads.

    count, limit: tokens it has and tokens that are read, the closing one included
    cut:          the end of the caption that is never read, as it is written; "" when all is read
    """

    count: int
    limit: int
    cut: str


@dataclass(frozen=True)
class Given:
    """What a model is shown beside the caption; each may be missing.

    beside: [B, ...], shaped as the latents but for its channels, which are joined to theirs
    known:  clean latents of the first frames, [B, ...], shaped as the latents but for the number of frames: they stand
            in the noisy latents' place at timestep 0, and the loss does not count them
    kept:   [B] bool: the clips that keep their known frames; None: all
    where:  bool, shaped as the latents but for one channel: which of them are known, where those are not the first
            frames; `known` has all frames then
    tokens: more for the transformer, batch first; only the family knows the keys
    first:  when sampling, the noise [1, ...] that the clip begins as, where the stock pipeline draws it before what the
            picture needs
    """

    beside: torch.Tensor | None = None
    known: torch.Tensor | None = None
    kept: torch.Tensor | None = None
    tokens: Tensors = field(default_factory=dict)
    first: torch.Tensor | None = None
    where: torch.Tensor | None = None

    def to(self, device: torch.device, dtype: torch.dtype | None = None) -> Given:
        # Whole numbers among the tokens, such as positions, stay what they are.
        moved = self._each(lambda tensor: tensor.to(device, dtype if tensor.is_floating_point() else None))
        first = None if self.first is None else self.first.to(device, dtype)
        kept, where = (None if one is None else one.to(device) for one in (self.kept, self.where))
        return replace(moved, kept=kept, where=where, first=first)

    def rows(self, indices: torch.Tensor) -> Given:
        """Of some clips of the batch."""
        return self._each(lambda tensor: tensor[indices])

    def repeated(self, count: int) -> Given:
        """Of one clip, for a batch of so many."""
        return self._each(lambda tensor: tensor.expand(count, *tensor.shape[1:]))

    def _each(self, change: Callable[[torch.Tensor], torch.Tensor]) -> Given:
        """With every tensor changed, but without `first`."""
        beside, known, kept, where = (
            one if one is None else change(one) for one in (self.beside, self.known, self.kept, self.where)
        )
        return Given(beside, known, kept, {name: change(tensor) for name, tensor in self.tokens.items()}, where=where)

    def times_of_tokens(self, timesteps: torch.Tensor, frames: int, tokens: int) -> torch.Tensor:
        """A timestep for each token [B, frames * tokens], of those of the clips [B]: 0 where all of a token's latents
        [B, C, f, h, w] are known. tokens: of a latent frame"""
        import torch

        assert self.known is not None
        found = timesteps.view(-1, 1, 1).repeat(1, frames, tokens)
        if self.where is not None:
            cells = self.where[:, 0]
            patch = math.isqrt(cells[0, 0].numel() // tokens)
            unknown = torch.nn.functional.max_pool2d((~cells).to(torch.float32), patch)
            return (found * unknown.flatten(2)).flatten(1)
        known = found[:, : self.known.shape[2]]
        if self.kept is None:
            known.zero_()
        else:
            known.masked_fill_(self.kept.to(known.device).view(-1, 1, 1), 0)
        return found.flatten(1)


@dataclass(frozen=True)
class CallInputs:
    """What a transformer is called with once, all tensors in its dtype but the timesteps.

    latents: noisy [B, ...], known frames in their place already;  timesteps: [B];  fps: of the clips
    """

    latents: torch.Tensor
    text: Tensors
    timesteps: torch.Tensor
    given: Given | None = None
    fps: float = 8.0


@dataclass(frozen=True)
class ModelInputs:
    """A batch as `Family.loss` takes it, all of it on the device.

    latents, noise: [B, ...];  timesteps: [B], of the model's noise schedule;  fps: of the clips
    """

    latents: torch.Tensor
    text: Tensors
    noise: torch.Tensor
    timesteps: torch.Tensor
    given: Given | None = None
    fps: float = 8.0

    def rows(self, indices: torch.Tensor) -> ModelInputs:
        """Of some clips of the batch, by their indices [N]."""
        return ModelInputs(
            latents=self.latents[indices],
            text={name: tensor[indices] for name, tensor in self.text.items()},
            noise=self.noise[indices],
            timesteps=self.timesteps[indices],
            given=None if self.given is None else self.given.rows(indices),
            fps=self.fps,
        )


# ---- captions


@dataclass(frozen=True)
class PromptEncoder:
    """Tokenizer and encoder, with the number of tokens that the transformer is given."""

    tokenizer: Any
    model: Any
    max_length: int

    def to(self, device: torch.device) -> PromptEncoder:
        self.model.to(device)
        return self

    def tokens(self, captions: Sequence[str]) -> Any:
        """Captions padded and cut to `max_length`, with their `attention_mask`, on the encoder's device."""
        return self.tokenizer(
            list(captions), padding="max_length", max_length=self.max_length, truncation=True, return_tensors="pt"
        ).to(self.model.device)


def load_tokenizer(source: Path, kind: str = "AutoTokenizer") -> Any:
    """The tokenizer of a folder. Raises ModelUnavailable for one that knows no words.

    kind: its class in transformers, for folders that do not say it
    """
    import transformers

    try:
        tokenizer = getattr(transformers, kind).from_pretrained(source)
    except (ImportError, OSError, ValueError) as error:
        hint = "pip install 'sentencepiece>=0.2.0,<0.2.2' 'protobuf>=5', or download the model again"
        raise ModelUnavailable(f"{source} cannot be read: {hint} ({str(error)[:120]})") from error
    ids = tokenizer("a video", add_special_tokens=False).input_ids
    if not ids or all(token == tokenizer.unk_token_id for token in ids):
        raise ModelUnavailable(f"{source} knows no plain words, so it did not load rightly: download the model again")
    return tokenizer


def counted(tokenizer: Any, captions: Sequence[str], limit: int) -> list[CaptionTokens]:
    """How many of each caption's tokens are read, of at most `limit`, and what is cut."""
    found, tokens = tokenizer(list(captions), return_offsets_mapping=True, verbose=False), []
    for text, ids, offsets in zip(captions, found.input_ids, found.offset_mapping, strict=True):
        # Truncation keeps the closing token, so the last offset is not the caption's.
        cut = text[offsets[limit - 2][1] :].strip() if len(ids) > limit else ""
        tokens.append(CaptionTokens(len(ids), limit, cut))
    return tokens


# ---- a miniature of both, for tests

WORDS = ("a", "the", "video", "red", "blue", "circle", "square", "moves", "left", "right", "on", "background", "sks")
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789.,-"
SIZES = {"d_model": 32, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 4, "pad_token_id": 0, "eos_token_id": 1}


def tokenizer() -> Any:
    from transformers import T5Tokenizer

    vocabulary = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("\u2581", -6.0)]
    vocabulary += [(f"\u2581{word}", -2.0) for word in WORDS] + [(letter, -8.0) for letter in LETTERS]
    return T5Tokenizer(vocab=vocabulary, extra_ids=0)


def t5_parts() -> tuple[Any, Any]:
    """(tokenizer, T5 encoder)"""
    from transformers import T5Config, T5EncoderModel

    words = tokenizer()
    return words, T5EncoderModel(T5Config(vocab_size=len(words), **SIZES))


def umt5_parts() -> tuple[Any, Any]:
    """(tokenizer, UMT5 encoder)"""
    from transformers import UMT5Config, UMT5EncoderModel

    words = tokenizer()
    return words, UMT5EncoderModel(UMT5Config(vocab_size=len(words), **SIZES))
