"""Latent previews: how a video looks while it is denoised, as a small moving picture without the VAE's decoder.

Colours are nearly linear in latents. The line is fitted once for each VAE, by least squares, on an encoded picture of
coloured squares. Not covered: predicting the clean latents (the family's denoising).
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

from workbench.families.base import Family

if TYPE_CHECKING:
    import numpy as np
    import torch

SQUARES = 8  # in a row and in a column of the picture that is encoded
LATENTS = 4  # a square's side
RIDGE = 1e-3
SMALLEST = 160  # pixels of width at least


class LatentPreviewer:
    """Makes pictures of latents. Fitting takes one pass of the VAE's encoder over one small frame."""

    def __init__(self, family: Family, vae: Any, spatial: int) -> None:
        """spatial: pixels that one latent stands for, in a row."""
        import torch

        side = SQUARES * LATENTS
        generator = torch.Generator().manual_seed(0)
        colours = torch.rand(3, SQUARES, SQUARES, generator=generator) * 2 - 1
        grid = colours.repeat_interleave(LATENTS, 1).repeat_interleave(LATENTS, 2)
        clip = grid.repeat_interleave(spatial, 1).repeat_interleave(spatial, 2)[None, :, None]
        mean = family.encode_video(vae, clip)["mean"][0, 0].float().cpu()  # [C, side, side]
        inside = torch.zeros(side, side, dtype=torch.bool)
        for offset in range(LATENTS // 4, LATENTS - LATENTS // 4):
            for other in range(LATENTS // 4, LATENTS - LATENTS // 4):
                inside[offset::LATENTS, other::LATENTS] = True  # squares' borders are mixtures
        inputs = torch.cat([mean[:, inside], torch.ones(1, int(inside.sum()))]).T.double()
        targets = grid[:, inside].T.double()
        square = inputs.T @ inputs + RIDGE * len(inputs) * torch.eye(inputs.shape[1])
        self._matrix = torch.linalg.solve(square, inputs.T @ targets).float()  # [C + 1, 3]

    def frames(self, latents: torch.Tensor) -> np.ndarray:
        """uint8 [f, h, w, 3] of latents [1, f, C, h, w]."""
        values = latents[0].float().cpu().permute(0, 2, 3, 1)
        colours = values @ self._matrix[:-1] + self._matrix[-1]
        pixels: np.ndarray = ((colours.clamp(-1, 1) + 1) * 127.5).byte().numpy()
        return pixels

    def webp(self, latents: torch.Tensor, seconds: float) -> bytes:
        """An animated WebP of them, of that length, in a loop."""
        from PIL import Image

        frames = self.frames(latents)
        height, width = frames.shape[1:3]
        times = max(1, -(-SMALLEST // width))
        pictures = [
            Image.fromarray(one).resize((width * times, height * times), Image.Resampling.BICUBIC) for one in frames
        ]
        data = io.BytesIO()
        pictures[0].save(
            data,
            "WEBP",
            save_all=True,
            append_images=pictures[1:],
            loop=0,
            quality=70,
            method=0,
            duration=max(20, round(1000 * seconds / len(pictures))),
        )
        return data.getvalue()
