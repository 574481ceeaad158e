"""A tokenizer and a text encoder, and what they read of captions.

Not covered: what a transformer is given of the encoder's output (a family's `encode_text`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.errors import ModelUnavailable
from workbench.families.model_inputs import CaptionTokens

if TYPE_CHECKING:
    import torch


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


def load_tokenizer(folder: Path, kind: str = "AutoTokenizer") -> Any:
    """The tokenizer of a model's folder. Raises ModelUnavailable for one that knows no words.

    kind: its class in transformers, for folders that do not say it
    """
    import transformers

    source = folder / "tokenizer"
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
