"""A LoRA on some of the blocks: which layers it has, what is refused, and that everything else goes on as before."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch

from tests.driving import create, go
from workbench.dataset_builder import Dataset
from workbench.errors import ConfigError
from workbench.families import find_model
from workbench.families.model import Model
from workbench.fit.gpus import HERE, gpu_of
from workbench.fit.memory import sizes
from workbench.runs.checks import check, initial_lora
from workbench.runs.settings import TrainSettings, chosen_blocks
from workbench.trainer import lora
from workbench.workspace import Workspace


def test_ranges_are_read_as_people_write_them() -> None:
    assert chosen_blocks("", 30) is None
    assert chosen_blocks("0-2, 7,  9 - 10", 30) == {0, 1, 2, 7, 9, 10}


@pytest.mark.parametrize(
    ("text", "said"),
    [("5-30", "has the blocks 0 to 29: use at most 29"), ("3-1", "write numbers and ranges"), ("all", "write numbers")],
)
def test_what_names_no_block_is_refused(text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as refused:
        chosen_blocks(text, 30)
    assert list(refused.value.problems) == ["blocks"]


@pytest.mark.parametrize("targets", ["attention", "attention+feed-forward", "all-linear", r".*attn1\.to_[qv]"])
def test_only_the_chosen_blocks_get_a_lora(toy_model: Model, targets: str) -> None:
    family, model = find_model(toy_model.source)
    transformer = family.load_transformer(Path(model.source), torch.device("cpu"), torch.float32)
    settings = TrainSettings(dataset="x", model=toy_model.source, rank=2, targets=targets, blocks="1")
    trained = lora.attach(family, transformer, settings, seed=0)
    numbers = {match[1] for name, _ in trained if (match := re.search(r"blocks\.(\d+)\.", name))}
    assert numbers == {"1"}
    assert all("blocks." in name for name, _ in trained), "nor do layers around the blocks"
    estimated = sizes(settings, model, family.facts(model), gpu_of(HERE))
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
    with pytest.raises(ConfigError, match="blocks is none, one has 0"):
        initial_lora(workspace, run.settings.changed(blocks="", start_from="one"))
