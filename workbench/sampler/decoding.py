"""Decode latents in the memory that is left (whole, in tiles, or on the CPU), and render latent previews.

Running out of memory in the last step must not cost a clip that took minutes to denoise. Tiles change the picture
slightly at their seams, so the record names the method.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal

from workbench.families.base import Family

if TYPE_CHECKING:
    import numpy as np
    import torch

DecodingMethod = Literal["whole", "tiles", "processor"]
METHODS: tuple[DecodingMethod, ...] = ("whole", "tiles", "processor")
SQUARES = 8  # per row and column of the calibration picture
LATENTS = 4  # a square's side
RIDGE = 1e-3
SMALLEST = 160  # minimum width of a preview in pixels


def decode(
    family: Family,
    vae: Any,
    latents: torch.Tensor,
    make_room: Callable[[], None],
    begin: DecodingMethod = "whole",
    noise: torch.Generator | None = None,
) -> tuple[torch.Tensor, DecodingMethod]:
    """Decode latents with the first method from `begin` on that fits in memory.

    Returns the video [1, 3, F, H, W] in [-1, 1] on the CPU, and the method. The VAE ends on the device it is on.

    Args:
        make_room: Called after memory ran out, before the next method.
        noise: A CPU generator for decoders that draw noise. Each method gets it in the same state.
    """
    import torch

    device = next(vae.parameters()).device  # vae.device walks through all modules, which takes 1 ms
    for method in METHODS[METHODS.index(begin) :]:
        target = torch.device("cpu") if method == "processor" else device
        with contextlib.suppress(torch.OutOfMemoryError), _tiles(vae, method != "whole"), _moved(vae, device, target):
            fresh = torch.Generator().set_state(noise.get_state()) if noise is not None else None
            return family.decode(vae, latents.to(target), fresh).cpu(), method
        make_room()  # only here is nothing left that holds the failed attempt's memory
    raise torch.OutOfMemoryError("the video's latents cannot be decoded, even on the CPU")


@contextlib.contextmanager
def _moved(vae: Any, home: torch.device, target: torch.device) -> Iterator[None]:
    """Move the VAE to the target device and back, without calling `to`, which takes 6 ms, if it is there already."""
    if home == target:
        yield
        return
    vae.to(target)
    try:
        yield
    finally:
        vae.to(home)


@contextlib.contextmanager
def _tiles(vae: Any, wanted: bool) -> Iterator[None]:
    if not wanted:
        yield
        return
    vae.enable_tiling()
    vae.enable_slicing()
    try:
        yield
    finally:
        vae.disable_tiling()
        vae.disable_slicing()


class LatentPreviewer:
    """Renders latents as small pictures without the VAE's decoder.

    Colors are nearly linear in latents. The linear map is fitted once per VAE, by least squares on an encoded picture
    of colored squares, which takes one pass of the encoder over one small frame.
    """

    def __init__(self, family: Family, vae: Any, spatial: int) -> None:
        """Fit the map. spatial: the VAE's spatial compression, in pixels per latent"""
        import torch

        side = SQUARES * LATENTS
        generator = torch.Generator().manual_seed(0)
        colors = torch.rand(3, SQUARES, SQUARES, generator=generator) * 2 - 1
        grid = colors.repeat_interleave(LATENTS, 1).repeat_interleave(LATENTS, 2)
        clip = grid.repeat_interleave(spatial, 1).repeat_interleave(spatial, 2)[None, :, None]
        self._frame_axis = family.frame_axis
        moments = family.encode_video(vae, clip)
        none = torch.zeros_like(family.posterior_noise(moments, generator, torch.float32))
        latents = family.sample_latents(moments, none).select(self._frame_axis, 0)[0].float().cpu()  # [C, side, side]
        inside = torch.zeros(side, side, dtype=torch.bool)
        for offset in range(LATENTS // 4, LATENTS - LATENTS // 4):
            for other in range(LATENTS // 4, LATENTS - LATENTS // 4):
                inside[offset::LATENTS, other::LATENTS] = True  # at their borders the squares' colors mix
        inputs = torch.cat([latents[:, inside], torch.ones(1, int(inside.sum()))]).T.double()
        targets = grid[:, inside].T.double()
        square = inputs.T @ inputs + RIDGE * len(inputs) * torch.eye(inputs.shape[1])
        self._matrix = torch.linalg.solve(square, inputs.T @ targets).float()  # [C + 1, 3]

    def frames(self, latents: torch.Tensor) -> np.ndarray:
        """Render latents [1, ...] as uint8 [f, h, w, 3]."""
        values = latents.movedim(self._frame_axis, 1)[0].float().cpu().permute(0, 2, 3, 1)
        colors = values @ self._matrix[:-1] + self._matrix[-1]
        pixels: np.ndarray = ((colors.clamp(-1, 1) + 1) * 127.5).byte().numpy()
        return pixels

    def webp(self, latents: torch.Tensor, seconds: float) -> bytes:
        """Render latents as a looping WebP animation of `seconds` length."""
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
