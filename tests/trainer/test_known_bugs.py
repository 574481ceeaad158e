"""Bugs that other CogVideoX trainers have, by the numbers under which we keep them; each is tried on ours.

What concerns a model's tensors is in tests/families (B11, B12, B20, B23, B24, B29 to B32, B36, B39, B41), batches of
several shapes in test_data.py (B37), frames of long clips in test_frame_plan.py (B4).
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.driving import create, go, session
from workbench.dataset_builder import Dataset
from workbench.families import find_model
from workbench.families.model import Model
from workbench.trainer.encoder import Cache, Encoder
from workbench.trainer.loop import preview, train_step
from workbench.workspace import Workspace

CPU = torch.device("cpu")


def dtypes(transformer: Any) -> tuple[set[torch.dtype], set[torch.dtype]]:
    """(of the base, of the LoRA)."""
    named = list(transformer.named_parameters())
    return {p.dtype for name, p in named if ".lora_" not in name}, {p.dtype for name, p in named if ".lora_" in name}


def test_b1_b27_the_base_stays_in_its_format_and_the_lora_in_float32_also_after_a_preview(
    workspace: Workspace, dataset: Dataset, toy_model: Model
) -> None:
    made = go(create(workspace, toy_model.source, precision="bf16", preview_steps=1), 1)
    want = ({torch.bfloat16}, {torch.float32})
    assert dtypes(made.bare_transformer) == want
    preview(made, ["a"])
    assert dtypes(made.bare_transformer) == want
    train_step(made)


def test_b2_clips_of_the_same_name_never_share_an_entry_and_edits_are_seen(
    workspace: Workspace, dataset: Dataset, toy_model: Model
) -> None:
    first = session(create(workspace, toy_model.source, held_out=0))
    items = first.data.train
    assert len({first.encoder.clip_key(item) for item in items}) == 6
    one, other = items[0].path, items[1].path
    shutil.copy(other, one)
    second = session(create(workspace, toy_model.source, held_out=0))
    assert first.encoder.clip_key(items[0]) != second.encoder.clip_key(second.data.train[0])


def test_b3_a_caption_is_encoded_again_for_another_text_encoder(
    workspace: Workspace, toy_model: Model, tmp_path: Path
) -> None:
    family, model = find_model(toy_model.source)
    keys = []
    for variant in family.toys[:2]:
        folder = tmp_path / variant
        family.toy(folder, variant)
        described = family.describe_folder(folder)
        assert described is not None
        encoder = Encoder(family, described, folder, Cache(workspace.cache), CPU, "fp32")
        keys.append(encoder.caption_key("a"))
    assert keys[0] != keys[1]


def test_b6_b33_a_step_is_an_adjustment_whatever_is_accumulated(
    workspace: Workspace, dataset: Dataset, toy_model: Model
) -> None:
    """Metrics, previews and the learning rate count adjustments; gradients are clipped when all are there."""
    values = {"gradient_accumulation": 3, "lr_schedule": "linear", "max_grad_norm": 1e-3, "steps": 4, "warmup_steps": 0}
    made = go(create(workspace, toy_model.source, **values), 0)
    start = [parameter.detach().clone() for parameter in made.trainable.parameters]
    lengths = []
    original = made.accelerator.clip_grad_norm_

    def watched(parameters: Any, longest: float) -> Any:
        found = original(parameters, longest)
        lengths.append(float(torch.stack([p.grad.norm() for p in parameters if p.grad is not None]).norm()))
        return found

    made.accelerator.clip_grad_norm_ = watched
    while made.step < 4:
        train_step(made)
    assert len(lengths) == 4
    assert lengths == pytest.approx([1e-3] * 4, rel=1e-3)
    assert any(not torch.equal(a, b) for a, b in zip(start, made.trainable.parameters, strict=True))


def test_b19_saving_takes_nothing_from_the_model(workspace: Workspace, dataset: Dataset, toy_model: Model) -> None:
    made = go(create(workspace, toy_model.source), 1)
    before = {name: value.clone() for name, value in made.bare_transformer.state_dict().items()}
    made.save()
    after = made.bare_transformer.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)
