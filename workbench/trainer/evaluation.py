"""The held-out loss: clips that are not trained on, always with the same noise at the same timesteps.

The training loss jumps with every draw of noise and timestep; this one moves only when the model does. Not covered:
bands of timesteps, what the LoRA does to other prompts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from workbench.families.base import Family
from workbench.trainer.data import Item, seed_for

if TYPE_CHECKING:
    import torch

QUANTILES = (0.1, 0.3, 0.5, 0.7, 0.9)  # of the timesteps


def held_out_loss(
    family: Family,
    transformer: Any,
    schedule: Any,
    items: Sequence[Item],
    load: Callable[[Item], tuple[Any, Any]],
    shape: tuple[int, ...],
    seed: int,
    device: torch.device,
) -> float:
    """Mean loss over clips and timesteps. `load(item)` gives the clip's moments and caption embedding on the device."""
    import torch

    total = 0.0
    transformer.eval()
    for item in items:
        moments, text = load(item)
        # Seeded by the clip, so that the figure does not move when the clips' order does.
        generator = torch.Generator().manual_seed(seed_for(seed, f"held-out {item.sha256}"))
        for quantile in QUANTILES:
            posterior, noise = (torch.randn(1, *shape, generator=generator).to(device) for _ in range(2))
            timesteps = torch.tensor([int(quantile * family.timesteps)], device=device)
            with torch.no_grad():
                latents = family.draw_latents(moments, posterior)
                total += family.loss(transformer, schedule, latents, text, noise, timesteps).item()
    return total / (len(items) * len(QUANTILES))
