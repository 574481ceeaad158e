"""What is trained and how it leaves: every kind of LoRA, on all blocks or some; other trainers' LoRAs."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.driving import create, go
from workbench.dataset_builder import Dataset
from workbench.errors import ConfigError, DataError, WorkbenchError
from workbench.families import find_model
from workbench.families.lora_files import plain_name
from workbench.families.model import Model
from workbench.families.model_inputs import ModelInputs
from workbench.fit.gpus import HERE, gpu_of
from workbench.fit.memory import sizes
from workbench.runs.checks import check, initial_lora
from workbench.runs.settings import TrainSettings, chosen_blocks
from workbench.trainer import lora
from workbench.trainer.trainable import LORA, Trainable, continue_from
from workbench.workspace import Workspace

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


# ---- the exported file


def test_values_that_are_no_numbers_are_never_published(toy: Toy, tmp_path: Path) -> None:
    transformer = toy.transformer()
    trainable = lora.attach(toy.family, transformer, TrainSettings(dataset="x", rank=2), seed=0)
    trainable[0][1].data[0] = float("nan")
    with pytest.raises(DataError, match="not numbers"):
        lora.write(toy.family, transformer, tmp_path / "l.safetensors", {})
    assert not (tmp_path / "l.safetensors").exists()


def test_an_export_may_be_off_by_as_much_as_the_model_rounds() -> None:
    base = torch.ones(64)
    trained = base * 1.001
    lora.judged(trained, trained * 1.0005, base, "l", torch.float16)
    with pytest.raises(WorkbenchError, match="off by"):
        lora.judged(trained, trained * 1.0005, base, "l")
    with pytest.raises(WorkbenchError, match="off by"):
        lora.judged(trained, trained * 1.01, base, "l", torch.float16)


def test_a_lora_that_changes_nothing_is_said_to(toy: Toy, tmp_path: Path) -> None:
    transformer = toy.transformer()
    lora.attach(toy.family, transformer, TrainSettings(dataset="x", rank=2), seed=0)  # lora_B is zero
    lora.write(toy.family, transformer, tmp_path / "l.safetensors", {})
    with pytest.raises(WorkbenchError, match="changes nothing"):
        lora.prove(toy.family, toy.folder, transformer, tmp_path / "l.safetensors", toy.inputs)


# ---- a range of blocks


def test_ranges_are_read_as_people_write_them() -> None:
    assert chosen_blocks("", 30) is None
    assert chosen_blocks("0-2, 7,  9 - 10", 30) == {0, 1, 2, 7, 9, 10}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("5-30", "the model's blocks are 0 to 29: use at most 29"),
        ("3-1", "write numbers and ranges"),
        ("all", "write numbers"),
    ],
)
def test_what_names_no_block_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as refused:
        chosen_blocks(text, 30)
    assert list(refused.value.problems) == ["blocks"]


@pytest.mark.parametrize("targets", ["attention", "attention+feed-forward", "all-linear", r".*attn1\.to_[qv]"])
def test_only_the_chosen_blocks_get_a_lora(toy: Toy, targets: str) -> None:
    settings = TrainSettings(dataset="x", model=toy.model.source, rank=2, targets=targets, blocks="1")
    trained = lora.attach(toy.family, toy.transformer(), settings, seed=0)
    numbers = {match[1] for name, _ in trained if (match := re.search(r"blocks\.(\d+)\.", name))}
    assert numbers == {"1"}
    assert all("blocks." in name for name, _ in trained), "nor do layers around the blocks"
    estimated = sizes(settings, toy.model, toy.family.facts(toy.model), gpu_of(HERE))
    assert estimated.trained == sum(parameter.numel() for _, parameter in trained)


def test_a_run_on_one_block_resumes_and_is_refused_what_the_model_lacks(
    workspace: Workspace, dataset: Dataset, toy_model: Model
) -> None:
    run = create(workspace, toy_model.source, blocks="0", steps=2)
    made = go(run, 1)
    made.save()
    made.metrics.close()
    assert go(run, 2).step == 2
    with pytest.raises(ConfigError, match="blocks has 0-99"):
        check(workspace, run.settings.changed(blocks="0-99"))
    saved = run.folder / "checkpoints" / "step-00000001" / "lora.safetensors"
    (run.folder / "lora.safetensors").write_bytes(saved.read_bytes())
    with pytest.raises(ConfigError, match="blocks is none, but one has 0"):
        initial_lora(workspace, run.settings.changed(blocks="", start_from="one"))
