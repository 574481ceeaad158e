"""Inputs of the transformer in training and sampling: encoded captions, conditioning, and batches of both."""

from __future__ import annotations

import html
import math
import re
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
    """How much of one caption the text encoder reads."""

    count: int  # the caption's tokens, with the closing one
    limit: int  # the most tokens that are read
    cut: str  # the end of the caption that is cut off; "" if all of it is read


@dataclass(frozen=True)
class Given:
    """Conditioning of a model beside the caption. Any part may be missing."""

    beside: torch.Tensor | None = None  # [B, ...], concatenated to the noisy latents' channels
    # Clean latents [B, ...] that replace the noisy ones, at timestep 0 and without loss: the first frames', or all
    # frames' if `where` is set
    known: torch.Tensor | None = None
    kept: torch.Tensor | None = None  # [B] bool, True for clips that keep their known frames; None for all
    # Other inputs of the transformer, [B, ...]. Only the family knows the keys.
    tokens: Tensors = field(default_factory=dict)
    # The initial noise [1, ...] of a sample, if the stock pipeline draws it before the conditioning's
    first: torch.Tensor | None = None
    # Bool, shaped as the latents with one channel: which latents are known, if not the first frames
    where: torch.Tensor | None = None

    def to(self, device: torch.device, dtype: torch.dtype | None = None) -> Given:
        """Move all tensors to a device, and floating-point ones to a dtype."""
        moved = self._each(lambda tensor: tensor.to(device, dtype if tensor.is_floating_point() else None))
        first = None if self.first is None else self.first.to(device, dtype)
        kept, where = (None if one is None else one.to(device) for one in (self.kept, self.where))
        return replace(moved, kept=kept, where=where, first=first)

    def rows(self, indices: torch.Tensor) -> Given:
        """Return the conditioning of some clips of the batch, by their indices [N]."""
        return self._each(lambda tensor: tensor[indices])

    def repeated(self, count: int) -> Given:
        """Expand the conditioning of one clip to a batch."""
        return self._each(lambda tensor: tensor.expand(count, *tensor.shape[1:]))

    def _each(self, change: Callable[[torch.Tensor], torch.Tensor]) -> Given:
        """Apply a function to every tensor. The result has no `first`."""
        beside, known, kept, where = (
            one if one is None else change(one) for one in (self.beside, self.known, self.kept, self.where)
        )
        return Given(beside, known, kept, {name: change(tensor) for name, tensor in self.tokens.items()}, where=where)

    def times_of_tokens(self, timesteps: torch.Tensor, frames: int, tokens: int) -> torch.Tensor:
        """Return a timestep for each token, [B, frames * tokens]: the clip's, or 0 if all of its latents are known.

        Args:
            timesteps: Of the clips, [B].
            frames: Latent frames. Latents are [B, C, f, h, w].
            tokens: Tokens of one latent frame.
        """
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
    """Inputs of one transformer call. All tensors but the timesteps have its dtype."""

    latents: torch.Tensor  # noisy [B, ...], with known frames filled in
    text: Tensors
    timesteps: torch.Tensor  # [B]
    given: Given | None = None
    fps: float = 8.0  # frame rate of the clips
    conditioning_scale: float = 1.0  # factor on a side branch's output, for models that have one


# Values of the setting `sound`: in the last two, one stream is given, at timestep 0 and without loss.
ALONE, SOUND_FOR_PICTURE, PICTURE_FOR_SOUND = "sound", "sound for picture", "picture for sound"
SOUND_ONLY = (ALONE, SOUND_FOR_PICTURE)  # the run has no loss but the sound's
GIVEN_STREAM = (SOUND_FOR_PICTURE, PICTURE_FOR_SOUND)


@dataclass(frozen=True)
class SoundInputs:
    """The sound of a batch: the second stream of a model that makes picture and sound. Noise and time are its own."""

    latents: torch.Tensor  # clean [B, tokens, channels]
    noise: torch.Tensor  # [B, tokens, channels]
    timesteps: torch.Tensor  # [B], from the noise schedule for this number of tokens; 0 for a given sound
    learned: str = "picture+sound"  # the run's setting `sound`. With "sound", neither stream attends to the other.

    @classmethod
    def given(cls, latents: torch.Tensor) -> SoundInputs:
        """Return sounds that a picture is made for: clean, at timestep 0."""
        return cls(latents, latents.new_zeros(latents.shape), latents.new_zeros(len(latents)), PICTURE_FOR_SOUND)

    def rows(self, indices: torch.Tensor) -> SoundInputs:
        """Return some clips of the batch, by their indices [N]."""
        return SoundInputs(self.latents[indices], self.noise[indices], self.timesteps[indices], self.learned)


@dataclass(frozen=True)
class ModelInputs:
    """A batch for `Family.loss`, on the transformer's device."""

    latents: torch.Tensor  # clean [B, ...]
    text: Tensors
    noise: torch.Tensor  # [B, ...]
    timesteps: torch.Tensor  # [B], from the model's noise schedule
    given: Given | None = None
    fps: float = 8.0  # frame rate of the clips
    # For `Family.losses`; None for clips without a sound, and for runs that do not learn it
    sound: SoundInputs | None = None

    def rows(self, indices: torch.Tensor) -> ModelInputs:
        """Return some clips of the batch, by their indices [N]."""
        return replace(
            self,
            latents=self.latents[indices],
            text={name: tensor[indices] for name, tensor in self.text.items()},
            noise=self.noise[indices],
            timesteps=self.timesteps[indices],
            given=self.given and self.given.rows(indices),
            sound=self.sound and self.sound.rows(indices),
        )


# ---- captions


def prompt_clean(caption: str) -> str:
    """Clean a caption as diffusers' function of this name does: repair its encoding, unescape HTML, join lines."""
    import ftfy

    return re.sub(r"\s+", " ", html.unescape(html.unescape(ftfy.fix_text(caption)))).strip()


@dataclass(frozen=True)
class PromptEncoder:
    """Tokenizer and text encoder, with the length that captions are padded and cut to."""

    tokenizer: Any
    model: Any
    max_length: int
    second: PromptEncoder | None = None  # of the model's second text encoder, if it has one

    def to(self, device: torch.device) -> PromptEncoder:
        self.model.to(device)
        if self.second is not None:
            self.second.to(device)
        return self

    def tokens(self, captions: Sequence[str]) -> Any:
        """Tokenize captions, padded and cut to `max_length`, on the encoder's device."""
        return self.tokenizer(
            list(captions), padding="max_length", max_length=self.max_length, truncation=True, return_tensors="pt"
        ).to(self.model.device)


def load_tokenizer(source: Path, kind: str = "AutoTokenizer") -> Any:
    """Load a tokenizer by its class in transformers, and check that it knows plain words. Raises ModelUnavailable."""
    import transformers

    try:
        tokenizer = getattr(transformers, kind).from_pretrained(source)
    except (ImportError, OSError, ValueError) as error:
        hint = "pip install 'sentencepiece>=0.2.0,<0.2.2' 'protobuf>=5', or download the model again"
        raise ModelUnavailable(f"{source} cannot be read: {hint} ({str(error)[:120]})") from error
    ids = tokenizer("a video", add_special_tokens=False).input_ids
    if not ids or all(token == tokenizer.unk_token_id for token in ids):
        raise ModelUnavailable(f"{source} does not know plain words, so it is damaged: download the model again")
    return tokenizer


def counted(tokenizer: Any, captions: Sequence[str], limit: int) -> list[CaptionTokens]:
    """Count each caption's tokens, and find what is cut off beyond `limit`."""
    found, tokens = tokenizer(list(captions), return_offsets_mapping=True, verbose=False), []
    for text, ids, offsets in zip(captions, found.input_ids, found.offset_mapping, strict=True):
        # The last of the tokens read is the closing one, so the caption's last is the one before it.
        cut = text[offsets[limit - 2][1] :].strip() if len(ids) > limit else ""
        tokens.append(CaptionTokens(len(ids), limit, cut))
    return tokens


# ---- miniatures of both, for tests

WORDS = ("a", "the", "video", "red", "blue", "circle", "square", "moves", "left", "right", "on", "background", "sks")
LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789.,-"
SIZES = {"d_model": 32, "d_kv": 8, "d_ff": 32, "num_layers": 1, "num_heads": 4, "pad_token_id": 0, "eos_token_id": 1}


def tokenizer() -> Any:
    from transformers import T5Tokenizer

    vocabulary = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("\u2581", -6.0)]
    vocabulary += [(f"\u2581{word}", -2.0) for word in WORDS] + [(letter, -8.0) for letter in LETTERS]
    return T5Tokenizer(vocab=vocabulary, extra_ids=0)


def t5_parts() -> tuple[Any, Any]:
    """Return (tokenizer, T5 encoder)."""
    from transformers import T5Config, T5EncoderModel

    words = tokenizer()
    return words, T5EncoderModel(T5Config(vocab_size=len(words), **SIZES))


def umt5_parts() -> tuple[Any, Any]:
    """Return (tokenizer, UMT5 encoder)."""
    from transformers import UMT5Config, UMT5EncoderModel

    words = tokenizer()
    return words, UMT5EncoderModel(UMT5Config(vocab_size=len(words), **SIZES))


def qwen_parts(more_words: Sequence[str] = ()) -> tuple[Any, Any]:
    """Return (tokenizer, Qwen2.5-VL). `more_words` are one token each, beside WORDS; other words are spelled."""
    from tokenizers.pre_tokenizers import ByteLevel
    from transformers import Qwen2_5_VLConfig, Qwen2_5_VLForConditionalGeneration, Qwen2Tokenizer

    pieces, merges = sorted(ByteLevel.alphabet()), []
    words = list(dict.fromkeys((*WORDS, *more_words)))
    for word in (*(f"\u0120{word}" for word in words), *words):  # after a space, and at the beginning
        for end in range(2, len(word) + 1):
            if word[:end] not in pieces:
                pieces.append(word[:end])
                merges.append((word[: end - 1], word[end - 1]))
    names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    vocabulary = {piece: number for number, piece in enumerate([*pieces, *names])}
    made = Qwen2Tokenizer(vocab=vocabulary, merges=merges, additional_special_tokens=names[1:])
    text: dict[str, Any] = {
        "hidden_size": 32,
        "intermediate_size": 32,
        "num_hidden_layers": 1,
        "vocab_size": len(vocabulary),
    }
    text |= {"num_attention_heads": 2, "num_key_value_heads": 2, "max_position_embeddings": 1024}
    text |= {"rope_parameters": {"rope_type": "default", "rope_theta": 1e6, "mrope_section": [2, 3, 3]}}
    text |= {f"{name}_token_id": made.eos_token_id for name in ("bos", "eos", "pad")}
    vision = {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": 32}
    return made, Qwen2_5_VLForConditionalGeneration(Qwen2_5_VLConfig(text_config=text, vision_config=vision))


def clip_parts() -> tuple[Any, Any]:
    """Return (tokenizer, CLIP text encoder). Every letter is a token."""
    from tokenizers.pre_tokenizers import ByteLevel
    from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

    letters = sorted(ByteLevel.alphabet())
    pieces = [*letters, *(f"{letter}</w>" for letter in letters), "<|startoftext|>", "<|endoftext|>"]
    made = CLIPTokenizer(vocab={piece: number for number, piece in enumerate(pieces)}, merges=[])
    sizes = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4}
    sizes |= {f"{name}_token_id": getattr(made, f"{name}_token_id") for name in ("bos", "eos", "pad")}
    return made, CLIPTextModel(CLIPTextConfig(vocab_size=len(pieces), projection_dim=32, **sizes))


def gemma_parts(newer: bool) -> tuple[Any, Any]:
    """Return (tokenizer that knows letters, Gemma 3 or, if `newer`, Gemma 4)."""
    import transformers

    words = ("<pad>", "<eos>", "<bos>", "<unk>", "<mask>", "\u2581", *LETTERS)
    tokenizer = transformers.GemmaTokenizer(
        vocab={word: number for number, word in enumerate(words)}, add_bos_token=True
    )
    heads = {"num_attention_heads": 2, "num_hidden_layers": 2, "intermediate_size": 16, "hidden_size": 16}
    text: dict[str, Any] = {
        **heads,
        "vocab_size": len(words),
        "num_key_value_heads": 1,
        "head_dim": 8,
        "sliding_window": 64,
    }
    if newer:
        text |= {"global_head_dim": 8, "layer_types": ["sliding_attention", "full_attention"]}
        vision = {"mm_embed_dim": 16, "mm_posemb_size": 16, "output_proj_dims": 16}
        made = transformers.Gemma4UnifiedConfig(
            text_config=text, vision_config=vision, audio_config={"audio_embed_dim": 16}
        )
        return tokenizer, transformers.Gemma4UnifiedForConditionalGeneration(made)
    vision = {**heads, "image_size": 28, "patch_size": 14}
    made = transformers.Gemma3Config(text_config=text, vision_config=vision, mm_tokens_per_image=4)
    return tokenizer, transformers.Gemma3ForConditionalGeneration(made)
