"""Decoding latents to a video with the memory that is left: in tiles where the whole is too much, else on the CPU.

A clip whose denoising took minutes is never lost to the last step. Tiles change the picture slightly where they meet;
the record says that they were used. Not covered: which VAE (the family), making room beforehand (offload_plan).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal

from workbench.families.base import Family

if TYPE_CHECKING:
    import torch

DecodingMethod = Literal["whole", "tiles", "processor"]
METHODS: tuple[DecodingMethod, ...] = ("whole", "tiles", "processor")


def decode(
    family: Family, vae: Any, latents: torch.Tensor, make_room: Callable[[], None], begin: DecodingMethod = "whole"
) -> tuple[torch.Tensor, DecodingMethod]:
    """Clips [1, 3, F, H, W] in [-1, 1] on the processor, and the method used. The VAE is on its device, and stays
    there.

    make_room: called once memory has run out, before the next method is tried
    """
    import torch

    device = next(vae.parameters()).device  # its own `device` walks through all modules: 1 ms
    for method in METHODS[METHODS.index(begin) :]:
        target = torch.device("cpu") if method == "processor" else device
        with contextlib.suppress(torch.OutOfMemoryError), _tiles(vae, method != "whole"), _moved(vae, device, target):
            return family.decode(vae, latents.to(target)).cpu(), method
        make_room()  # here, where nothing holds what the attempt has left behind
    raise torch.OutOfMemoryError("the video's latents cannot be decoded, even on the processor")


@contextlib.contextmanager
def _moved(vae: Any, home: torch.device, target: torch.device) -> Iterator[None]:
    """The VAE on the target device, then back; `to` is not called where it is there already, which takes 6 ms."""
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
