"""What is trained and how it leaves: every kind of LoRA, weights beside it, everything; and other trainers' LoRAs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from workbench.errors import ConfigError
from workbench.families import find_model
from workbench.families.lora_files import plain_name
from workbench.families.model import Model
from workbench.families.model_inputs import ModelInputs
from workbench.runs.settings import TrainSettings
from workbench.trainer import lora
from workbench.trainer.trainable import LORA, Trainable, continue_from

CPU = torch.device("cpu")


class Toy:
    """The random miniature with one fixed input."""

    def __init__(self, model: Model) -> None:
        self.family, self.model = find_model(model.source)
        self.folder = Path(model.source)
        shape = self.family.latents_shape(self.folder, model.frames, model.height, model.width)
        generator = torch.Generator().manual_seed(0)
        text = self.family.encode_text(self.family.load_text_encoder(self.folder, CPU, torch.float32), ["a"])
        self.inputs: dict[str, Any] = {
            "schedule": self.family.noise_schedule(self.folder, CPU),
            "inputs": ModelInputs(
                latents=torch.randn(1, *shape, generator=generator),
                text=text,
                noise=torch.randn(1, *shape, generator=generator),
                timesteps=torch.tensor([500]),
            ),
        }

    def transformer(self) -> Any:
        return self.family.load_transformer(self.folder, CPU, torch.float32)

    def trained(self, seed: int = 0, **values: Any) -> Trainable:
        """Something trained for two steps."""
        found = Trainable(self.family, self.transformer(), TrainSettings().changed(dataset="x", rank=2, **values), seed)
        optimizer = torch.optim.AdamW(found.parameters, lr=0.02)
        for _ in range(2):
            self.family.loss(found.transformer, **self.inputs).mean().backward()
            optimizer.step()
            optimizer.zero_grad()
        return found

    def output(self, transformer: Any) -> torch.Tensor:
        return lora.output(self.family, transformer, self.inputs)


@pytest.fixture(scope="module")
def toy(toy_model: Model) -> Toy:
    return Toy(toy_model)


KINDS: list[dict[str, Any]] = [
    {}, {"dora": True}, {"rslora": True, "alpha": 3.0}, {"lora_init": "gaussian"}, {"lora_init": "orthogonal"},
    {"targets": "attention+feed-forward", "dora": True, "rslora": True},
    {"train_also": ["patch_embed", "norm_final"]}, {"method": "full"},
]  # fmt: skip


@pytest.mark.parametrize("values", KINDS, ids=lambda values: " ".join(f"{k}={v}" for k, v in values.items()) or "plain")
def test_each_kind_comes_back_from_a_checkpoint_and_its_export_is_what_was_trained(
    toy: Toy, values: dict[str, Any], tmp_path: Path
) -> None:
    found = toy.trained(**values)
    want = toy.output(found.transformer)
    found.write(tmp_path, {"run": "test"})
    again = Trainable(toy.family, toy.transformer(), TrainSettings().changed(dataset="x", rank=2, **values), seed=9)
    again.load(tmp_path)
    assert torch.equal(toy.output(again.transformer), want)
    assert all(torch.equal(a, b) for a, b in zip(found.parameters, again.parameters, strict=True))
    exported = again.export(tmp_path / "run", {})
    assert again.prove(toy.folder, exported, toy.inputs) > 0


def test_dora_leaves_layers_alone_that_have_a_row_of_no_length(toy: Toy) -> None:
    """The built-in model's last modulation of the text is such a layer: dividing by its length gave no numbers."""
    transformer, settings = toy.transformer(), TrainSettings().changed(dataset="x", rank=2, targets="all-linear")
    transformer.transformer_blocks[-1].norm1.linear.weight.data[0] = 0
    found = Trainable(toy.family, transformer, settings.changed(dora=True), seed=9)
    last = f"transformer_blocks.{len(transformer.transformer_blocks) - 1}.norm"
    assert not [name for name in found.names if f"{last}1.linear" in name]
    assert [name for name in found.names if f"{last}2.linear" in name]
    assert toy.output(transformer).isfinite().all()


def test_only_what_is_named_is_trained(toy: Toy) -> None:
    found = toy.trained(train_also=["norm_final"])
    beside = {plain_name(name) for name in found.names if ".lora_" not in name}
    assert beside == {"norm_final.weight", "norm_final.bias"}
    touched = {name for name, p in found.transformer.named_parameters() if p.requires_grad}
    assert touched == set(found.names)
    assert f"{sum(p.numel() for p in found.parameters):,} values" in found.summary
    with pytest.raises(ConfigError, match=r"train_also has 'nothing'.*patch_embed"):
        toy.trained(train_also=["nothing"])


def test_a_lora_goes_on_as_strong_as_it_was(toy: Toy, tmp_path: Path) -> None:
    first = toy.trained(alpha=4.0)
    first.write(tmp_path, {})
    settings = TrainSettings().changed(dataset="x", rank=2, alpha=1.0)
    second = Trainable(toy.family, toy.transformer(), settings, seed=5)
    summary = continue_from(toy.family, second.transformer, settings, tmp_path / LORA)
    torch.testing.assert_close(toy.output(second.transformer), toy.output(first.transformer), rtol=1e-5, atol=1e-6)
    assert "rank 2" in summary


@pytest.mark.parametrize(
    ("values", "match"),
    [({"rank": 4}, "set rank to 2"), ({"targets": "attention+feed-forward"}, "set targets"), ({"dora": True}, "dora")],
)
def test_a_lora_of_another_build_says_what_to_set(toy: Toy, values: dict[str, Any], match: str, tmp_path: Path) -> None:
    toy.trained().write(tmp_path, {})
    settings = TrainSettings().changed(**{"dataset": "x", "rank": 2, **values})
    other = Trainable(toy.family, toy.transformer(), settings, seed=5)
    with pytest.raises(ConfigError, match=match):
        continue_from(toy.family, other.transformer, settings, tmp_path / LORA)


def test_a_lora_without_a_note_of_its_alpha_is_taken_as_the_stock_loader_takes_it(toy: Toy, tmp_path: Path) -> None:
    first = toy.trained(alpha=2.0)  # alpha = rank: scale 1
    first.write(tmp_path, {})
    save_file(load_file(tmp_path / LORA), tmp_path / "bare.safetensors")
    settings = TrainSettings().changed(dataset="x", rank=2, alpha=8.0)
    second = Trainable(toy.family, toy.transformer(), settings, seed=5)
    continue_from(toy.family, second.transformer, settings, tmp_path / "bare.safetensors")
    torch.testing.assert_close(toy.output(second.transformer), toy.output(first.transformer), rtol=1e-5, atol=1e-6)
