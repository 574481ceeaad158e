"""The stock pipeline of a model's folder, which our results are held against."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def stock_pipeline(folder: Path, transformer: Any, vae: Any) -> Any:
    """Around these parts, as diffusers itself puts it together; it takes embeddings instead of a prompt."""
    from diffusers import DiffusionPipeline

    pipeline = DiffusionPipeline.from_pretrained(
        folder, transformer=transformer, vae=vae, text_encoder=None, tokenizer=None
    )
    pipeline.set_progress_bar_config(disable=True)
    return pipeline
