"""A model's sizes as the fit check takes them, against the model itself."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

from workbench.families import find_model
from workbench.families.cogvideox.facts import TRANSFORMERS, _values, facts
from workbench.families.cogvideox.toys import TOYS


@pytest.mark.parametrize("name", TRANSFORMERS)
def test_published_sizes_are_those_of_the_class(name: str) -> None:
    from diffusers import CogVideoXTransformer3DModel

    with torch.device("meta"):
        made = CogVideoXTransformer3DModel(**TRANSFORMERS[name])
    assert sum(value.numel() for value in made.state_dict().values()) == _values(TRANSFORMERS[name])
    family, model = find_model(name)
    found = facts(model, None, family.lora_targets)
    layers = {key: each for key, each in made.named_modules() if isinstance(each, nn.Linear | nn.Conv2d)}
    assert {key: linear.values for key, linear in found.named()} == {
        key: each.weight.numel() for key, each in layers.items()
    }


def test_tokens_are_those_of_the_cost_model() -> None:
    shapes = {"cogvideox-2b": (49, 480, 720), "cogvideox-5b": (49, 480, 720), "cogvideox1.5-5b": (81, 768, 1360)}
    tokens = {}
    for name, shape in shapes.items():
        family, model = find_model(name)
        tokens[name] = facts(model, None, family.lora_targets).tokens(*shape)
    assert tokens == {"cogvideox-2b": 17_776, "cogvideox-5b": 17_776, "cogvideox1.5-5b": 45_106}


@pytest.mark.parametrize("variant", TOYS)
def test_a_folder_s_sizes_are_those_of_its_weights(tmp_path: Path, variant: str) -> None:
    family, _ = find_model("tiny-cogvideox")
    model = family.toy(tmp_path / variant, variant)
    found = family.facts(model)
    folder, cpu = Path(model.source), torch.device("cpu")
    transformer = family.load_transformer(folder, cpu, torch.float32)
    vae, text = family.load_vae(folder, cpu, torch.float32), family.load_text_encoder(folder, cpu, torch.float32)
    assert found.on_disk
    assert found.values == sum(value.numel() for value in transformer.state_dict().values())
    assert found.vae.values == sum(value.numel() for value in vae.state_dict().values())
    assert found.text_encoder_values == sum(value.numel() for value in text.model.parameters())
    assert found.latents(9, 16, 16) == family.latents_shape(folder, 9, 16, 16)
    layers = {name for name, each in transformer.named_modules() if isinstance(each, nn.Linear | nn.Conv2d)}
    assert {name for name, _ in found.named()} == layers
