"""A miniature of an LTX family and a clip, for tests of conditioning."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import torch
from PIL import Image

from workbench.families.conditioning import Conditioning
from workbench.families.denoising import DenoiseInputs, Guidance
from workbench.families.ltx_conditioning import InContextFamily
from workbench.families.model_inputs import Given

CPU, FPS, SIZE, FRAMES = torch.device("cpu"), 24.0, 64, 33


class LtxCase:
    """A miniature, its parts, and a clip."""

    family: ClassVar[InContextFamily]
    steps: ClassVar[int]  # of generated videos

    def __init__(self, folder: Path, variant: str) -> None:
        self.folder, self.model = folder, self.family.toy(folder, variant)
        self.transformer = self.family.load_transformer(folder, CPU, torch.float32)
        self.vae = self.family.load_vae(folder, CPU, torch.float32)
        self.encoder = self.family.load_text_encoder(folder, CPU, torch.float32)
        draw = torch.Generator().manual_seed(0)
        self.pixels = torch.randint(0, 256, (FRAMES, SIZE, SIZE, 3), generator=draw, dtype=torch.uint8)
        self.video = (self.pixels.permute(3, 0, 1, 2).float() / 127.5 - 1)[None]
        self.shape = self.family.latents_shape(folder, FRAMES, SIZE, SIZE)
        self.noise = torch.randn(1, *self.shape, generator=draw)
        self.clean = self.family.encode_video(self.vae, self.video)["mean"]
        self.text = self.family.encode_text(self.encoder, ["a red circle"])

    def pictures(self, start: int, count: int) -> list[Image.Image]:
        return [Image.fromarray(frame.numpy()) for frame in self.pixels[start : start + count]]

    def told(self, told: Conditioning) -> Given:
        tensors = self.family.encode_conditioning(self.vae, None, told)
        return self.family.conditioning(tensors, self.shape, torch.Generator().manual_seed(3), torch.float32)

    def generated(self, told: Conditioning, scale: float = 3.0) -> torch.Tensor:
        noise = torch.Generator().manual_seed(1)
        tensors = self.family.encode_conditioning(self.vae, None, told)
        given = self.family.conditioning_to_sample(self.folder, tensors, self.shape, noise, torch.float32)
        negative, guidance = self.family.encode_text(self.encoder, ["the video"]), Guidance(scale)
        inputs = DenoiseInputs(
            self.folder, self.text, negative, self.shape, self.steps, guidance, noise, fps=FPS, given=given
        )
        return self.family.denoise(self.transformer, inputs)
