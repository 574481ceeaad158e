"""What diffusers' LTXConditionPipeline does otherwise than the pipelines of LTX-Video 0.9.0 and 0.9.1.

It is the pipeline of 0.9.5 (the example in its own documentation) and later. The Hub's folder of 0.9.5 still names
LTXPipeline: such folders are known by their autoencoder. Captions have 256 tokens, and the text encoder does not see
their padding. Latent frame k stands at (8 k - 7) / fps and the first one at 0: it is one frame where the other latents
are eight. The authors' code (causal_temporal_positioning in the model's config) and ComfyUI (causal_fix) place frames
in the same way; LTX-Video-Trainer places them at 8 k / fps for every model, which this does not follow, so that a model
is trained as it is used. Noise levels fall in a line, then in a curve. A first frame is shown with some noise, less at
every step. Not covered: given frames elsewhere, or at a strength below 1.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from workbench.families.denoising import FlowSteps, StepOptions
from workbench.families.model_files import config, index

if TYPE_CHECKING:
    from typing import Any

    import torch

    from workbench.families.model_inputs import Tensors

CONDITION = "LTXConditionPipeline"
NEWER_VAE = "LTXVideo095DownBlock3D"
TEXT_TOKENS = 256
FIRST_FRAME_NOISE = 0.15  # the pipeline's image_cond_noise_scale, times the square of the share of noise
TEMPORAL, SPATIAL = 8, 32  # frames and pixels in a row that a position stands for, whatever the VAE's own


def is_condition(folder: Path) -> bool:
    """Whether this is the pipeline of a model's folder: one that names it, or has 0.9.5's autoencoder."""
    return names_condition(folder) or NEWER_VAE in config(folder, "vae").get("down_block_types", ())


def names_condition(folder: Path) -> bool:
    """Whether the folder itself names this pipeline."""
    return bool(index(folder).get("_class_name") == CONDITION)


def for_condition(text: Tensors) -> bool:
    """Whether captions were encoded for it: each batch says by their length which positions it needs."""
    return bool(text["mask"].shape[1] == TEXT_TOKENS)


def coordinates(latents: torch.Tensor, fps: float) -> torch.Tensor:
    """Seconds and pixels [B, 3, tokens] at which the latents [B, C, f, h, w] begin, float32."""
    import torch

    frames, height, width = (torch.arange(size, device=latents.device).float() for size in latents.shape[2:])
    times = (TEMPORAL * frames + 1 - TEMPORAL).clamp(min=0) * (1.0 / fps)
    grid = torch.meshgrid(times, SPATIAL * height, SPATIAL * width, indexing="ij")
    return torch.stack(grid).flatten(1).expand(len(latents), -1, -1)


class ConditionSteps(FlowSteps):
    """Its noise levels, and the noise that is put on a first frame at every step."""

    def __init__(self, scheduler: Any, options: StepOptions) -> None:
        from diffusers.pipelines.ltx.pipeline_ltx_condition import linear_quadratic_schedule

        shares = linear_quadratic_schedule(options.steps).numpy()
        super().__init__(scheduler, None, options.device, sigmas=shares, timesteps=1000 * shares)
        self._shape = options.latents_shape

    def known_at(self, known: torch.Tensor, index: int, noise: torch.Generator) -> torch.Tensor:
        import torch

        channels, *sizes = self._shape
        tokens = torch.randn(1, *sizes, channels, generator=noise, dtype=known.dtype)
        share = self.timesteps[index].item() / 1000
        first = tokens.movedim(-1, 1)[:, :, : known.shape[2]].to(known.device)
        return known + FIRST_FRAME_NOISE * first * share**2
