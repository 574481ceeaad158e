"""How good are the tiny models? The VAE's reconstructions, prompts not seen in training, first frames followed.

Each report is a dictionary of shares (0 to 1) and of PSNR in dB; tiny_check.py is the judge.
"""

from __future__ import annotations

import random
from dataclasses import replace

import tiny_check
import tiny_models
import tiny_world
import torch
from diffusers import AutoencoderKLCogVideoX
from torch import Tensor


def psnr(pictures: Tensor, truth: Tensor) -> float:
    """Mean over N of the PSNR in dB of pictures or clips [N, ...] in [-1, 1]."""
    error = (pictures - truth).square().flatten(1).mean(1)
    return float((10 * torch.log10(4 / error)).mean())


def held_out(count: int, small: bool = False) -> list[tiny_world.Spec]:
    """The first of the combinations that are never trained on; small: with small shapes."""
    return [replace(spec, small=small) for spec in tiny_world.held_out()[:count]]


def vae_accuracy(vae: AutoencoderKLCogVideoX, count: int = 64) -> dict[str, float]:
    """PSNR (dB) and the check's accuracy on reconstructions of held-out, of new and of small clips."""
    report: dict[str, float] = {}
    rng = random.Random(4711)
    new = tiny_world.balanced_choice(tiny_world.combinations(tiny_world.NEW_SHAPES), count, seed=1)
    for name, specs in (("known", held_out(count)), ("new", new), ("small", held_out(count, small=True))):
        clips = torch.stack([tiny_world.draw(spec, rng) for spec in specs])
        again = tiny_models.reconstruct(vae, clips)
        report[f"{name} PSNR"] = psnr(again, clips)
        report |= {f"{name} {part}": share for part, share in tiny_check.accuracy(again, specs).items()}
    return report


def prompt_accuracy(
    pipeline: tiny_models.Pipeline,
    count: int,
    steps: int = tiny_models.SAMPLING_STEPS,
    guidance: float = tiny_models.GUIDANCE,
    seed: int = 0,
    small: bool = False,
) -> dict[str, float]:
    """The check's accuracy on clips sampled for held-out captions; small: for those of small shapes."""
    specs = held_out(count, small)
    captions = [spec.caption() for spec in specs]
    return tiny_check.accuracy(tiny_models.sample(pipeline, captions, steps, guidance, seed), specs)


def image_accuracy(
    pipeline: tiny_models.Pipeline,
    count: int,
    captioned: bool = True,
    steps: int = tiny_models.SAMPLING_STEPS,
    guidance: float = tiny_models.IMAGE_GUIDANCE,
    seed: int = 0,
) -> dict[str, float]:
    """The same of the image-to-video pipeline, from first frames of held-out clips, and how well these are kept.

    "first frame PSNR" is that of the sampled clips' first frames against the given ones, "first frame PSNR, VAE" that
    of the clips' first frames through the VAE and back: no sample can keep more.
    captioned: False leaves the captions empty, which tells how much the image alone gives away
    """
    specs, rng = held_out(count), random.Random(4711)
    clips = torch.stack([tiny_world.draw(spec, rng) for spec in specs])
    images = ((clips[:, :, 0] + 1) * 127.5).round() / 127.5 - 1  # as a picture file holds them
    captions = [spec.caption() if captioned else "" for spec in specs]
    drawn = tiny_models.sample(pipeline, captions, steps, guidance, seed, images=images)
    return tiny_check.accuracy(drawn, specs) | {
        "first frame PSNR": psnr(drawn[:, :, 0], images),
        "first frame PSNR, VAE": psnr(tiny_models.reconstruct(pipeline.vae, clips)[:, :, 0], images),
    }


def describe(report: dict[str, float]) -> str:
    """One line of a report."""
    return ", ".join(f"{key} {value:.3g}" for key, value in report.items())
