"""Bugs that other CogVideoX trainers have, by the numbers under which we keep them; each is tried on ours.

What concerns a model's tensors is in tests/families (B11, B12, B20, B23, B24, B29 to B32, B36, B39, B41), batches of
several shapes in test_batches.py (B37), frames of long clips in test_frame_plan.py (B4).
"""

from __future__ import annotations

import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.drawing import MakeClip
from tests.driving import create, go, session
from tests.shell import Shell
from workbench.clips import media
from workbench.dataset_builder import Dataset
from workbench.errors import ConfigError
from workbench.families import find_model, models
from workbench.families.model import Model
from workbench.runs import checkpoints
from workbench.runs.settings import TrainSettings
from workbench.trainer import encoder
from workbench.trainer.encoder import Cache, Encoder, read_video
from workbench.trainer.loop import train_step
from workbench.trainer.previews import preview
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


def test_b33_the_learning_rate_falls_over_the_steps_of_the_run(
    workspace: Workspace, dataset: Dataset, toy_model: Model
) -> None:
    values = {"gradient_accumulation": 3, "lr_schedule": "linear", "steps": 4, "warmup_steps": 0}
    run = create(workspace, toy_model.source, **values)
    go(run, 4)
    assert [line["lr"] for line in run.metrics] == pytest.approx([0.01, 0.0075, 0.005, 0.0025])
    assert [line["step"] for line in run.metrics] == [1, 2, 3, 4]
    assert all(len(line["samples"]) == 3 for line in run.metrics)


def test_b7_the_old_checkpoint_goes_after_the_new_one_is_there_and_the_order_goes_on(
    workspace: Workspace, dataset: Dataset, toy_model: Model
) -> None:
    run = create(workspace, toy_model.source, keep_checkpoints=1)
    made = go(run, 2)
    made.save()
    seen: list[list[int]] = []
    publish = checkpoints.publish

    def watched(*given: Any) -> Path:
        found = publish(*given)
        seen.append(checkpoints.steps(run.folder))
        return found

    checkpoints.publish = watched
    try:
        train_step(made)
        made.save()
    finally:
        checkpoints.publish = publish
    assert seen == [[2, 3]]
    assert run.checkpoints == [3]
    again = session(run)
    assert [item.sha256 for item in again.inputs.batch(4, 0).items] == [
        item.sha256 for item in made.inputs.batch(4, 0).items
    ]


def test_b8_b35_without_a_tracker_there_is_none_and_previews_are_kept_all_the_same(
    workspace: Workspace, dataset: Dataset, toy_model: Model
) -> None:
    run = create(workspace, toy_model.source, preview_steps=1)
    assert run.settings.tracker == "none"
    made = go(run, 1)
    preview(made, ["a red square"])
    assert not made.accelerator.trackers
    assert [preview.prompt for preview in run.previews] == ["a red square"]


def test_b9_a_switch_turned_off_is_off(shell: Shell, workspace: Workspace, dataset: Dataset) -> None:
    assert TrainSettings().changed(exact=False).exact is False
    with pytest.raises(ConfigError, match="true or false"):
        TrainSettings().changed(exact="False")


@pytest.mark.parametrize("model", models(), ids=lambda model: model.id)
def test_b10_every_known_model_has_its_sizes_checked(model: Model) -> None:
    with pytest.raises(ConfigError, match="height"):
        model.check_shape(model.frames, model.height + 1, model.width)
    with pytest.raises(ConfigError, match="frames"):
        model.check_shape(model.frames + 1, model.height, model.width)


def test_b14_weights_work_for_batches_of_any_size(workspace: Workspace, dataset: Dataset, toy_model: Model) -> None:
    run = create(workspace, toy_model.source, loss_weighting="min-snr", batch_size=5)
    go(run, 2)
    assert all(math.isfinite(line["loss"]) for line in run.metrics)


def test_b17_b18_b40_the_format_comes_from_the_weights_not_from_a_name(toy_model: Model, tmp_path: Path) -> None:
    family, _ = find_model(toy_model.source)
    for name in ("my-5b-model", "my-2b-model"):
        shutil.copytree(toy_model.source, tmp_path / name)
        assert family.stored_dtype(tmp_path / name) == "float32"


def test_b19_saving_takes_nothing_from_the_model(workspace: Workspace, dataset: Dataset, toy_model: Model) -> None:
    made = go(create(workspace, toy_model.source), 1)
    before = {name: value.clone() for name, value in made.bare_transformer.state_dict().items()}
    made.save()
    after = made.bare_transformer.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_b20_previews_have_the_frames_that_are_trained(
    workspace: Workspace, dataset: Dataset, toy_model: Model
) -> None:
    run = create(workspace, toy_model.source, frames=17, preview_steps=1)
    preview(go(run, 0), ["a"])
    assert media.probe(run.previews[0].video).frames == 17


def test_b21_what_is_kept_in_memory_is_bounded(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(encoder, "MEMORY_BYTES", 1000)
    entries = Cache(tmp_path)
    for number in range(10):
        entries.put(f"entry{number}", {"x": torch.full((100,), float(number))})
    assert all(entries.get(f"entry{number}")["x"][0] == number for number in (*range(10), 0, 5))
    assert entries._bytes <= 1000


def test_b22_pixels_stay_in_range_and_one_frame_keeps_its_axis(
    workspace: Workspace, dataset: Dataset, make_clip: MakeClip, toy_model: Model
) -> None:
    item = session(create(workspace, toy_model.source, held_out=0)).data.train[0]
    video = read_video(item)
    assert video.shape[:3] == (1, 3, 9)
    assert float(video.abs().max()) <= 1.0
    assert read_video(item, first_only=True).shape[:3] == (1, 3, 1)


def test_b34_every_timestep_is_drawn(workspace: Workspace, dataset: Dataset, toy_model: Model) -> None:
    made = session(create(workspace, toy_model.source, batch_size=200))
    seen = {int(t) for step in range(1, 60) for t in made.inputs.batch(step, 0).inputs.timesteps}
    assert seen == set(range(1000))
