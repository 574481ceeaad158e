"""Encode once: captions and clips become tensors in the cache, with one encoder in memory at a time.

Not covered: which clips and frames (data, frame_plan), drawing latents from what is stored (the family).
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from workbench.families.base import Family, Model
from workbench.trainer.cache import Cache, key_of, part_identity
from workbench.trainer.data import Item

if TYPE_CHECKING:
    import torch

Progress = Callable[[str, int, int, float], None]  # phase, done, total, seconds each
CAPTIONS_AT_ONCE = 8


class Encoder:
    """Fills the cache for one model and gives back its keys."""

    def __init__(
        self, family: Family, model: Model, folder: Path, cache: Cache, device: torch.device, dtype: torch.dtype
    ) -> None:
        self._family = family
        self._folder = folder
        self._cache = cache
        self._device = device
        self._dtype = dtype
        self._text = part_identity(model, folder, "text_encoder") + part_identity(model, folder, "tokenizer")
        self._vae = part_identity(model, folder, "vae")

    def caption_key(self, caption: str) -> str:
        return key_of({"text": caption, "encoder": self._text, "dtype": str(self._dtype)})

    def clip_key(self, item: Item) -> str:
        plan = item.plan
        return key_of(
            {
                "clip": item.sha256,
                "indices": plan.indices,
                "resize": plan.resize,
                "crop": plan.crop,
                "vae": self._vae,
                "dtype": str(self._dtype),
            }
        )

    def encode_captions(self, captions: Iterable[str], progress: Progress) -> None:
        """Embed every caption that is not in the cache yet; the text encoder is freed afterwards."""
        missing = sorted({caption for caption in captions if self.caption_key(caption) not in self._cache})
        if not missing:
            return
        progress("loading the text encoder", 0, len(missing), 0.0)
        encoder = self._family.load_text_encoder(self._folder, self._device, self._dtype)
        began = time.monotonic()
        for start in range(0, len(missing), CAPTIONS_AT_ONCE):
            part = missing[start : start + CAPTIONS_AT_ONCE]
            encoded = self._family.encode_text(encoder, part)
            for index, caption in enumerate(part):
                one = {name: tensor[index : index + 1] for name, tensor in encoded.items()}
                self._cache.put(self.caption_key(caption), one)
            done = start + len(part)
            progress("encoding captions", done, len(missing), (time.monotonic() - began) / done)
        del encoder
        free_memory()

    def encode_clips(self, items: Iterable[Item], progress: Progress) -> None:
        """Encode every clip that is not in the cache yet; the VAE is freed afterwards."""
        missing = list({self.clip_key(item): item for item in items if self.clip_key(item) not in self._cache}.items())
        if not missing:
            return
        progress("loading the video encoder", 0, len(missing), 0.0)
        vae = self._family.load_vae(self._folder, self._device, self._dtype)
        began = time.monotonic()
        for done, (key, item) in enumerate(missing, 1):
            self._cache.put(key, self._family.encode_video(vae, read_video(item)))
            progress("encoding clips", done, len(missing), (time.monotonic() - began) / done)
        del vae
        free_memory()


def read_video(item: Item) -> torch.Tensor:
    """The planned frames of a clip: [1, 3, F, H, W], float32 in [-1, 1]."""
    import torch

    from workbench.media import read_frames

    frames = torch.from_numpy(read_frames(item.path, item.plan.indices, item.plan.resize, item.plan.crop))
    return (frames.permute(3, 0, 1, 2).float() / 127.5 - 1.0).unsqueeze(0)


def free_memory() -> None:
    """Give memory of dropped modules back to the GPU."""
    import torch

    gc.collect()
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
