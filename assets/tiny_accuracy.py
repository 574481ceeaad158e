"""Measure the tiny models: reconstructions of the VAE, prompts not seen in training, and given first frames.

Each report is a dictionary of shares (0 to 1), measured with tiny_check.py, and PSNR in dB.
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
    """Return the mean PSNR in dB of N pictures or clips [N, ...] in [-1, 1]."""
    error = (pictures - truth).square().flatten(1).mean(1)
    return float((10 * torch.log10(4 / error)).mean())


def held_out(count: int, small: bool = False) -> list[tiny_world.Spec]:
    """Return the first combinations that are never trained on, optionally with small shapes."""
    return [replace(spec, small=small) for spec in tiny_world.held_out()[:count]]


def vae_accuracy(vae: AutoencoderKLCogVideoX, count: int = 64) -> dict[str, float]:
    """Return PSNR (dB) and check accuracy on reconstructions of held-out clips, new shapes and small shapes."""
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
    """Return the check accuracy on clips sampled from held-out captions, optionally with small shapes."""
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
    """Return the check accuracy of the image-to-video pipeline from first frames of held-out clips.

    The report also has "first frame PSNR", of the sampled first frames against the given ones, and its upper limit,
    "first frame PSNR, VAE", of their reconstructions.

    captioned: False leaves the captions empty, which shows how much the image alone reveals.
    """
    specs, rng = held_out(count), random.Random(4711)
    clips = torch.stack([tiny_world.draw(spec, rng) for spec in specs])
    images = ((clips[:, :, 0] + 1) * 127.5).round() / 127.5 - 1  # rounded to 8 bits, as in a picture file
    captions = [spec.caption() if captioned else "" for spec in specs]
    drawn = tiny_models.sample(pipeline, captions, steps, guidance, seed, images=images)
    return tiny_check.accuracy(drawn, specs) | {
        "first frame PSNR": psnr(drawn[:, :, 0], images),
        "first frame PSNR, VAE": psnr(tiny_models.reconstruct(pipeline.vae, clips)[:, :, 0], images),
    }


def describe(report: dict[str, float]) -> str:
    """Return a report as one line."""
    return ", ".join(f"{key} {value:.3g}" for key, value in report.items())
