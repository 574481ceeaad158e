"""Guidance against diffusers' own guiders and formulas."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch

from workbench.families.denoising import Guidance
from workbench.runs.settings import TrainSettings
from workbench.sampler.settings import SampleSettings
from workbench.settings import specs

PROMPT, NEGATIVE = (torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(seed)) for seed in (1, 2))


@pytest.mark.parametrize("rescale", [0.0, 0.7, 1.0])
def test_it_equals_diffusers_guider(rescale: float) -> None:
    from diffusers.guiders import ClassifierFreeGuidance

    stock = ClassifierFreeGuidance(guidance_scale=5.0, guidance_rescale=rescale)
    stock.set_state(0, 10, torch.tensor(0))
    ours = Guidance(5.0, rescale=rescale).combine(PROMPT, NEGATIVE, 5.0)
    torch.testing.assert_close(ours, stock.forward(PROMPT, NEGATIVE).pred)


def test_zero_star_equals_diffusers_guider() -> None:
    from diffusers.guiders import ClassifierFreeZeroStarGuidance

    stock: Any = ClassifierFreeZeroStarGuidance(guidance_scale=5.0, zero_init_steps=0)
    stock.set_state(1, 10, torch.tensor(0))
    ours = Guidance(5.0, zero_star=True).combine(PROMPT, NEGATIVE, 5.0)
    torch.testing.assert_close(ours, stock.forward(PROMPT, NEGATIVE).pred)


def test_curves() -> None:
    cosine = [Guidance(6.0, "cosine").scale_at(step, 50, 999 - 20 * step) for step in range(50)]
    assert cosine == sorted(cosine)
    assert cosine[0] == 1.0
    assert 6.0 < cosine[-1] < 7.0
    assert Guidance(6.0).scale_at(3, 50, 900) == 6.0


@pytest.mark.parametrize("steps", [25, 50])
def test_stock_is_the_schedule_of_the_authors_samplers(steps: int) -> None:
    """SAT's `VideoDDIMSampler.denoise` calls `DynamicCFG(scale, exp=5, num_steps)` with `num_steps - timestep`."""
    from diffusers import CogVideoXDPMScheduler

    scheduler = CogVideoXDPMScheduler(timestep_spacing="trailing")
    scheduler.set_timesteps(steps)
    timesteps = np.linspace(999, 0, steps, endpoint=False).astype(int)  # SAT's ZeroSNRDDPMDiscretization
    assert np.abs(scheduler.timesteps.numpy() - timesteps).max() <= 1
    given = [steps - timestep for timestep in timesteps]  # "step_index" there: -949 first, not 0
    authors = [1 + 6.0 * (1 - math.cos(math.pi * (step / steps) ** 5)) / 2 for step in given]
    ours = [Guidance(6.0, "stock").scale_at(step, steps, int(at)) for step, at in enumerate(timesteps)]
    assert ours == pytest.approx(authors)
    turns = sum((b - a) * (c - b) < 0 for a, b, c in zip(ours, ours[1:], ours[2:], strict=False))
    assert turns > steps / 4, "it jumps"
    help_of = {spec.name: spec.help for spec in (*specs(SampleSettings), *specs(TrainSettings))}
    for name in ("dynamic_guidance", "preview_dynamic_guidance"):
        stock, cosine = (help_of[name].index(word) for word in ("stock:", "cosine:"))
        assert stock < help_of[name].index("jumps") < cosine, name


def test_when_it_guides() -> None:
    assert not Guidance(1.0).wanted
    assert [Guidance(3.0, begin=0.2, end=0.6).guides(step, 10) for step in range(10)] == [2 <= n < 6 for n in range(10)]
    assert all(Guidance(3.0).guides(step, 7) for step in range(7))
