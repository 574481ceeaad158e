"""Training Phenaki: exact resume, the same results at every memory level, verified exports.

The bugs of its package's own trainer (PhenakiTrainer of phenaki-pytorch 0.5.0) are tested, too.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from tests.driving import create, session
from tests.trainer.test_exact import assert_exact
from tests.trainer.test_memory_levels import gradients
from workbench.clips import media
from workbench.dataset_builder import Dataset
from workbench.families import find_model
from workbench.families.phenaki import FAMILY
from workbench.runs.recipes import suggest
from workbench.runs.run import Run
from workbench.trainer.loop import preview, preview_at_start, train_step, training_loop
from workbench.workspace import Workspace

SMALL = {"frames": 9, "height": 16, "width": 16}


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A model with its own critic."""
    return FAMILY.toy(tmp_path_factory.mktemp("models") / "phenaki", "token").source


@pytest.mark.parametrize(
    "values",
    [
        {"method": "full", "train_part": "generator", "ema_decay": 0.9, "gradient_accumulation": 2},
        {"method": "full", "train_part": "critic"},
        {"buckets": ["9x16x16", "1x16x16"], "train_part": "generator", "dropped_caption": "zeros"},
        {"preservation_weight": 0.5},
    ],
    ids=[
        "all weights of the generator",
        "all weights of the critic",
        "images among clips",
        "preserved",
    ],
)
def test_whatever_is_trained_ends_in_the_same_bytes_when_resumed(
    workspace: Workspace, dataset: Dataset, toy: str, values: dict[str, Any]
) -> None:
    assert_exact(workspace, toy, values if "buckets" in values else {**SMALL, **values})


def test_each_memory_level_computes_what_the_plain_model_does(workspace: Workspace, dataset: Dataset, toy: str) -> None:
    shared = {**SMALL, "batch_size": 2, "precision": "bf16"}
    loss, plain = gradients(session(create(workspace, toy, **shared)))
    for values in (
        {"gradient_checkpointing": "full"},
        {"gradient_checkpointing": "keep attention"},
        {"gradient_checkpointing": "offloaded"},
        {"gradient_checkpointing": "full", "blocks_to_swap": 2},
    ):
        found, ours = gradients(session(create(workspace, toy, **shared, **values)))
        assert found == loss, values
        assert all(torch.equal(ours[name], plain[name]) for name in plain), values


@pytest.mark.parametrize("values", [{"train_part": "critic"}, {"method": "full"}], ids=["LoRA of the critic", "full"])
def test_a_run_ends_with_weights_that_are_proved(
    workspace: Workspace, dataset: Dataset, toy: str, values: dict[str, Any]
) -> None:
    run = create(
        workspace,
        toy,
        steps=3,
        evaluate_every=2,
        preview_every=2,
        preview_steps=2,
        learning_rate=0.05,
        **SMALL,
        **values,
    )
    made = session(run)
    training_loop(made)
    assert made.job.outcome["change"] > 0
    assert {preview.step for preview in run.previews} == {0, 2, 3}


def test_the_built_in_models_recipe_trains_the_layer_that_names_the_codes(
    workspace: Workspace, dataset: Dataset
) -> None:
    recipe = suggest("style", find_model("tiny-phenaki")).settings
    run = create(workspace, "tiny-phenaki", **{**recipe, "steps": 2, "batch_size": 1})
    made = session(run)
    training_loop(made)
    assert made.job.outcome["change"] > 0
    assert run.lora is not None
    layers = {name.removeprefix("transformer.").partition(".lora_")[0] for name in load_file(run.lora)}
    assert {"proj_out", "transformer_blocks.0.attn2.to_out.0", "transformer_blocks.3.ff.net.2"} < layers
    assert len(layers) == 41  # ten in each of four blocks


# ---- what PhenakiTrainer gets wrong


def test_images_are_trained_and_each_prompt_of_a_list_is_previewed(
    workspace: Workspace, dataset: Dataset, toy: str
) -> None:
    """That trainer never reads the list of prompts, fails on images at the first sample, and stays in eval mode."""
    prompts = [
        "a red square",
        "a blue circle",
        "a green square",
    ]  # three: that trainer needs a square number
    values = {"preview_every": 1, "preview_steps": 2, "preview_prompts": prompts, "lora_dropout": 0.5}
    made = session(create(workspace, toy, steps=1, buckets=["1x16x16"], **values))
    preview_at_start(made)
    assert not made.bare_transformer.training
    train_step(made)
    assert made.bare_transformer.training
    preview(made)
    found = Run(made.run).previews
    assert {(one.step, one.prompt) for one in found} == {(step, text) for step in (0, 1) for text in prompts}
    assert {media.probe(one.video).frames for one in found} == {1}
    made.close()
