"""In bf16 a clip equals the stock pipeline's bit for bit where both round in the same places; elsewhere it is as close
to the fp32 result."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.families.stock import distance, our_latents, their_latents
from workbench.families import families
from workbench.families.base import Family

BF16, FP32 = torch.bfloat16, torch.float32
GUIDED = ("sincos", "text", "text-0.9.5", "a14b")
# One of each kind at every change, the others before a release.
USUAL = ("cogvideox-sincos", "cogvideox-image-1.5", "ltx-text-0.9.5", "mochi-text", "wan-text", "wan-a14b", "wan-vace")
# The toys of 13B differ from those of 0.9.5 in their configs, not in what they compute.
CASES = [
    pytest.param(
        *(family, toy, scale),
        marks=[] if f"{family.name}-{toy}" in USUAL else [pytest.mark.release],
        id=f"{family.name}-{toy}-{scale:g}",
    )
    for family in families()
    if family.has_pipeline
    for toy in family.toys
    for scale in (1.0, 3.0)
    if "13b" not in toy and (scale == 1 or toy in GUIDED)
]
# Batched guidance gives LTX-Video's layers a different memory layout, which bf16 rounds differently. The others start
# from a picture, whose latents we keep in float32, or have a timestep per token.
ALIKE = {
    1.0: ("cogvideox-sincos", "cogvideox-rotary", "cogvideox-rotary-1.5", "ltx-text", "ltx-text-0.9.5"),
    3.0: ("cogvideox-sincos",),
}
WITH_FLOAT32_STEPS = ("wan-text", "wan-a14b")  # diffusers guides and steps with bf16 predictions, the authors do not


@pytest.mark.parametrize(("family", "toy", "scale"), CASES)
def test_latents_are_the_stock_pipelines_in_bf16(family: Family, toy: str, scale: float, tmp_path: Path) -> None:
    model, name = family.toy(tmp_path / "toy", toy), f"{family.name}-{toy}"
    ours, theirs = our_latents(family, model, BF16, scale), their_latents(family, model, BF16, scale)
    if name in WITH_FLOAT32_STEPS:
        assert torch.equal(ours, their_latents(family, model, BF16, scale, float32_steps=True))
    if name in ALIKE[scale]:
        assert torch.equal(ours, theirs)
    else:
        exact = their_latents(family, model, FP32, scale)
        print(name, scale, f"ours {distance(ours, exact):.4f}, stock {distance(theirs, exact):.4f} from fp32")
        # CPUs round bf16 products differently (up to 1.28 times the distance); latents kept in bf16 gave 3 times.
        assert distance(ours, exact) < 2 * distance(theirs, exact)
