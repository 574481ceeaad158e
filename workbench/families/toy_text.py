"""A tokenizer of a few words and letters, and small random text encoders for it, for the families' miniatures."""

from __future__ import annotations

from typing import Any

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
