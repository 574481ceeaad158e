"""Given frames, masks and references of the LTX families, which take them as latents or as tokens of their own.

Conditioning is clean, at timestep 0 and without loss. Frames from the start of the clip replace latents. With a mask,
latents are known if all of their pixels are. Everything else becomes tokens beside the latents', with places of their
own: frames that start later, and the reference of an in-context LoRA. A reference has the clip's own places; if it is
smaller by a factor, its places in space are multiplied by the factor.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from workbench.errors import ConfigError
from workbench.families.base import Family
from workbench.families.conditioning import Conditioning
from workbench.families.model_inputs import Given, Tensors

if TYPE_CHECKING:
    import torch

TEMPORAL, SPATIAL = 8, 32  # frames and pixels per unit of position, whatever the VAE's compression
EXTRA, PLACES = "extra", "places"  # tokens beside the latents' [B, n, C], and their places, int64 [B, k, n]
LATER_TOKENS = 2  # latent frames that become tokens in a video out of step with the latents (num_prefix_latent_frames)
NO_CHANNELS = "has no channels for a control video: use it as the reference of an in-context LoRA"


def conditions(known: Sequence[int]) -> list[tuple[int, int]]:
    """Split known frames, in order, into pictures and videos of 8k + 1 frames: (first frame, number of frames) each.

    A video starts with the clip, or else ends with its run of known frames. The rest of the run becomes pictures.
    """
    found: list[tuple[int, int]] = []
    runs: list[list[int]] = []
    for frame in known:
        if runs and runs[-1][-1] == frame - 1:
            runs[-1].append(frame)
        else:
            runs.append([frame])
    for run in runs:
        count = (len(run) - 1) // TEMPORAL * TEMPORAL + 1
        start = run[0] if run[0] == 0 else run[-1] + 1 - count
        if run[0] > 0 and start % TEMPORAL:  # out of step with the latents, so only what becomes tokens
            count = min(count, TEMPORAL * (LATER_TOKENS - 1) + 1)
            start = run[-1] + 1 - count
        video = range(start, start + count)
        found += [(frame, 1) for frame in run if frame not in video] + [(start, count)]
    return sorted(found)


def known_latents(mask: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
    """Return which latents of (frames, height, width) have only known pixels, float32 [B, 1, f, h, w].

    `mask` is [B, 1, F, H, W], 1 for known pixels.
    """
    import torch
    from torch.nn.functional import adaptive_max_pool3d

    unknown = 1 - mask.float()
    parts = [adaptive_max_pool3d(unknown[:, :, :1], (1, *sizes[1:]))]
    if sizes[0] > 1:
        parts.append(adaptive_max_pool3d(unknown[:, :, 1:], (sizes[0] - 1, *sizes[1:])))
    return 1 - torch.cat(parts, dim=2)


def packed(latents: torch.Tensor) -> torch.Tensor:
    """Convert latents [B, C, f, h, w] to tokens [B, f * h * w, C]."""
    return latents.flatten(2).transpose(1, 2)


class InContextFamily(Family):
    """A family whose transformer takes tokens with places of their own."""

    # Latent frames of a later video that become tokens; the rest replaces latents. 0: all become tokens.
    later_tokens: ClassVar[int] = 0

    @abstractmethod
    def places(self, sizes: Sequence[int], device: torch.device, start: int | None, scale: float) -> torch.Tensor:
        """Return the places of latents of (frames, height, width), int64 [k, tokens].

        Args:
            start: Frame of the clip at which they start; None for a reference.
            scale: How many times smaller in space than the clip they are.
        """

    def encode_conditioning(self, vae: Any, image_encoder: Any, pixels: Conditioning) -> Tensors:
        """Return moments, each named after its source, and "mask" [B, 1, f, h, w], 1 for known latents.

        Sources are "frame 8" for a picture or video that starts at frame 8, "shown" for a mask's known part, and
        "reference".
        """
        if pixels.control is not None:
            raise ConfigError(f"{self.title} has no channels for a control video: use it as the reference")
        parts: dict[str, torch.Tensor] = {} if pixels.reference is None else {"reference": pixels.reference}
        if pixels.mask is not None and pixels.shown is not None:
            parts["shown"] = pixels.shown
        elif pixels.video is not None:
            for start, count in conditions(pixels.known):
                parts[f"frame {start}"] = pixels.video[:, :, start : start + count]
        found = {
            f"{name} {moment}": value
            for name, part in parts.items()
            for moment, value in self.encode_video(vae, part).items()
        }
        if pixels.mask is not None:
            found["mask"] = known_latents(pixels.mask, found["shown mean"].shape[2:])
        return found

    def conditioning(
        self, tensors: Tensors, latents_shape: tuple[int, ...], noise: torch.Generator, dtype: torch.dtype
    ) -> Given:
        return self.laid_out(tensors, latents_shape, noise, dtype)

    def laid_out(
        self,
        tensors: Mapping[str, torch.Tensor],
        latents_shape: tuple[int, ...],
        noise: torch.Generator,
        dtype: torch.dtype,
        redrawn: bool = False,
    ) -> Given:
        """Lay out encoded conditioning: in the latents and, as tokens, the reference, then other frames.

        If `redrawn`, draw and discard noise for each picture or video that starts later, as LTXConditionPipeline does
        at full strength.
        """
        import torch

        if not tensors:
            return Given()

        def sampled(name: str) -> torch.Tensor:
            moments = {moment: tensors[f"{name} {moment}"] for moment in ("mean", "std")}
            return self.sample_latents(moments, self.posterior_noise(moments, noise, dtype))

        like = next(iter(tensors.values()))
        count, device, sizes = len(like), like.device, latents_shape[1:]
        known = torch.zeros(count, *latents_shape, device=device)
        extra: list[tuple[torch.Tensor, torch.Tensor]] = []  # (latents that become tokens, their places)
        shown = torch.zeros(count, 1, *sizes, dtype=torch.bool, device=device)
        if "mask" in tensors:
            known, shown = sampled("shown"), tensors["mask"] > 0.5
        starts = sorted(int(name.split()[1]) for name in tensors if name.startswith("frame ") and "mean" in name)
        for start in starts:
            latents, at = sampled(f"frame {start}"), 0
            if start:
                most = self.later_tokens or latents.shape[2]
                head, latents = latents[:, :, :most], latents[:, :, most:]
                extra.append((head, self.places(head.shape[2:], device, start, 1.0)))
                at = start // TEMPORAL + most
                if redrawn:
                    torch.randn(head.shape, generator=noise)
            known[:, :, at : at + latents.shape[2]] = latents
            shown[:, :, at : at + latents.shape[2]] = True
        if "reference mean" in tensors:
            latents = sampled("reference")
            extra.insert(0, (latents, self.places(latents.shape[2:], device, None, sizes[-1] / latents.shape[-1])))
        tokens = {}
        if extra:
            tokens[EXTRA] = torch.cat([packed(latents) for latents, _ in extra], dim=1)
            tokens[PLACES] = torch.cat([place for _, place in extra], dim=1).expand(count, -1, -1)
        if not starts and "mask" not in tensors:  # a reference alone
            return Given(tokens=tokens)
        return Given(known=known, where=shown, tokens=tokens)
