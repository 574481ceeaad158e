"""From latents to a video, whatever memory is left: in tiles where the whole is too much, at last on the processor.

A clip whose denoising took minutes is never lost to the last step. Tiles change the picture slightly where they meet;
the record says that they were used. Not covered: which VAE (the family), making room beforehand (loadout).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Literal

from workbench.families.base import Family

if TYPE_CHECKING:
    import torch

How = Literal["whole", "tiles", "processor"]
WAYS: tuple[How, ...] = ("whole", "tiles", "processor")


def decode(
    family: Family, vae: Any, latents: torch.Tensor, make_room: Callable[[], None], begin: How = "whole"
) -> tuple[torch.Tensor, How]:
    """Clips [1, 3, F, H, W] in [-1, 1] on the processor, and how it went. The VAE is on its device, and stays there.

    make_room: called once memory has run out, before the next way is tried
    """
    import torch

    device = next(vae.parameters()).device  # its own `device` walks through all modules: 1 ms
    for how in WAYS[WAYS.index(begin) :]:
        place = torch.device("cpu") if how == "processor" else device
        with contextlib.suppress(torch.OutOfMemoryError), _tiles(vae, how != "whole"), _at(vae, device, place):
            return family.decode(vae, latents.to(place)).cpu(), how
        make_room()  # here, where nothing holds what the attempt has left behind
    raise torch.OutOfMemoryError("the video's latents cannot be decoded, even on the processor")


@contextlib.contextmanager
def _at(vae: Any, home: torch.device, place: torch.device) -> Iterator[None]:
    """The VAE at a place, and back at its home; it is not asked to move where it is already, which takes 6 ms."""
    if home == place:
        yield
        return
    vae.to(place)
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
