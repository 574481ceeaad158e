"""Every memory level on every miniature of HunyuanVideo 1.5, Kandinsky 5, LTX-Video, LTX-2 (with sound, too), Mochi and
Wan: gradients against those of the plain model.

CogVideoX's are compared in whole sessions (tests/trainer/test_memory_levels.py).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.families.stock import told_nothing
from workbench.families import families
from workbench.families.base import Family
from workbench.families.model_inputs import ModelInputs, SoundInputs
from workbench.runs.settings import TrainSettings
from workbench.trainer import lora
from workbench.trainer.trainable import apply_memory_levels

pytestmark = pytest.mark.long

CPU, HEARD = torch.device("cpu"), "with sound"
CASES = [
    (family, variant)
    for family in families()
    if family.name in ("hunyuan15", "kandinsky5", "ltx", "ltx2", "mochi", "wan")
    for variant in (*family.toys, *([f"{family.toys[2]} {HEARD}"] if family.name == "ltx2" else []))
]
# One of each kind at every change, the others before a release.
USUAL = {
    ("hunyuan15", "image"),
    ("kandinsky5", "image"),
    ("ltx", "text"),
    ("ltx", "image-0.9.5"),
    ("ltx2", "image-2.3"),
    ("ltx2", f"text-2.3 {HEARD}"),
    ("wan", "image-2.1"),
    ("wan", "5b-image"),
    ("wan", "a14b"),
    ("wan", "vace"),
}
# "full" and "offloaded" without swapped blocks are in tests/trainer/test_memory_levels.py.
EQUAL: dict[str, dict[str, Any]] = {
    "keep attention": {"gradient_checkpointing": "keep attention"},
    "full, all blocks swapped": {"gradient_checkpointing": "full", "blocks_to_swap": 2},
    "offloaded, one block swapped": {"gradient_checkpointing": "offloaded", "blocks_to_swap": 1},
}
ROUNDED = {"int8": 0.99, "fp8": 0.98, "nf4": 0.85}  # the least cosine of all gradients
Gradients = dict[str, torch.Tensor]


class Variant:
    """A miniature with one batch, whose second clip is not shown its first frame where the model takes one."""

    def __init__(self, family: Family, folder: Path, variant: str) -> None:
        self.learned = {"sound": "picture+sound"} if variant.endswith(HEARD) else {}
        self.family, model = family, family.toy(folder, variant.removesuffix(f" {HEARD}"))
        self.folder = Path(model.source)
        shape = family.latents_shape(self.folder, model.frames, model.height, model.width)
        random = torch.Generator().manual_seed(0)
        latents, noise = (torch.randn(2, *shape, generator=random) for _ in range(2))
        encoder = family.load_text_encoder(self.folder, CPU, torch.float32)
        text, given = family.encode_text(encoder, ["a red circle", "a blue square"]), told_nothing(family, model, 2)
        if model.task == "image-to-video":
            vae = family.load_vae(self.folder, CPU, torch.float32)
            pictures = torch.rand(2, 3, model.height, model.width, generator=random) * 2 - 1
            looks = family.load_image_encoder(self.folder, CPU, torch.float32)
            image = family.encode_image(vae, looks, pictures, model.frames, "pipeline")
            first = torch.randn(2, *family.one_frame(shape), generator=random)
            given = family.given(image, first, shape, kept=torch.tensor([True, False]))
        self.schedule = family.noise_schedule(self.folder, CPU)
        times = self.schedule.timesteps(torch.tensor([0.2, 0.8]), shape)
        self.inputs = ModelInputs(latents, text, noise, times, given, model.fps)
        if self.learned:
            sound = SoundInputs(*(torch.randn(2, 17, 4, generator=random) for _ in range(2)), times.flip(0))
            self.inputs = replace(self.inputs, sound=sound)
        self.loss, self.plain = self.gradients()

    def gradients(self, **values: Any) -> tuple[float, Gradients]:
        """Loss and gradients with these memory settings, of a LoRA that was moved away from zero."""
        settings = TrainSettings().changed(rank=2, targets="attention+feed-forward", **self.learned, **values)
        transformer = self.family.load_transformer(self.folder, CPU, torch.float32)
        self.family.use_attention(transformer, settings.attention, CPU)
        named = lora.attach(self.family, transformer, settings, 0)
        random = torch.Generator().manual_seed(5)
        for name, parameter in named:
            if "lora_B" in name:
                parameter.data = torch.randn(parameter.shape, generator=random) * 0.1
        apply_memory_levels(self.family, transformer, settings, CPU)
        each, heard = self.family.losses(transformer.train(), self.schedule, self.inputs)
        each = each if heard is None else each + heard
        each.mean().backward()
        found = {name: one.grad for name, one in transformer.named_parameters() if one.grad is not None}
        return each.mean().item(), found


def case(family: Family, variant: str) -> Any:
    marks = [] if (family.name, variant) in USUAL else [pytest.mark.release]
    return pytest.param((family, variant), marks=marks, id=f"{family.name} {variant}")


@pytest.fixture(scope="module", params=[case(*one) for one in CASES])
def variant(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Variant:
    family, name = request.param
    return Variant(family, tmp_path_factory.mktemp("toys") / name, name)


@pytest.mark.parametrize("level", EQUAL)
def test_levels_that_round_nothing_give_the_same_bits(variant: Variant, level: str) -> None:
    loss, found = variant.gradients(**EQUAL[level])
    assert loss == variant.loss
    assert found.keys() == variant.plain.keys()
    assert len(found) > 20
    assert all(torch.equal(found[name], variant.plain[name]) for name in found)


def test_the_stock_attention_is_equal_within_rounding(variant: Variant) -> None:
    loss, found = variant.gradients(attention="stock")
    assert loss == pytest.approx(variant.loss, rel=1e-6)
    assert cosine(found, variant.plain) > 1 - 1e-6


@pytest.mark.parametrize("kept", ROUNDED)
def test_weights_of_fewer_bits_keep_the_direction_and_go_with_the_other_levels(variant: Variant, kept: Any) -> None:
    loss, found = variant.gradients(base_model_precision=kept)
    assert loss == pytest.approx(variant.loss, rel=0.05)
    assert cosine(found, variant.plain) > ROUNDED[kept]
    both = variant.gradients(base_model_precision=kept, gradient_checkpointing="offloaded", blocks_to_swap=1)[1]
    assert all(torch.equal(both[name], found[name]) for name in found)


def cosine(one: Gradients, other: Gradients) -> float:
    joined = [torch.cat([gradient.flatten() for gradient in both.values()]) for both in (one, other)]
    return float(torch.cosine_similarity(*joined, dim=0))
