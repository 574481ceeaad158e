"""Learning from a masked part of each clip: the loss inside, the base model outside, refusals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.driving import create, go, session
from tests.masked import add_masks, right_half
from workbench.clips.records import Clip
from workbench.dataset_builder import Dataset
from workbench.errors import ConfigError, DataError, ResumeRefused
from workbench.families import default_model, families, find_model
from workbench.families.model import Model
from workbench.families.model_inputs import Given
from workbench.fit.estimate import estimate_from_facts
from workbench.fit.gpus import GpuModel
from workbench.runs.analysis.curves import curves_of
from workbench.runs.data import load_data, read_mask
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.runs.snapshot import metric_facts
from workbench.runs.view import main_charts
from workbench.trainer.evaluation import levels_by_mask
from workbench.trainer.loop import preview, train_step
from workbench.trainer.losses import base_prediction, clip_losses
from workbench.workspace import Workspace

CPU = torch.device("cpu")
MASKED = {"loss_mask": "inside", "outside_weight": 0.5}


# ---- which pixels and frames a cell stands for


@pytest.mark.parametrize("family", [one for one in families() if one.name != "phenaki"], ids=lambda one: one.name)
def test_a_cell_has_the_mean_of_exactly_its_pixels_and_frames(family: Any, tmp_path: Path) -> None:
    for variant in family.toys:
        model = family.toy(tmp_path / variant, variant)
        folder = Path(model.source)
        frames, height, width = model.frames, model.height, model.width
        _, temporal, spatial = family.compression(family_config(folder))
        mask = torch.rand(2, 1, frames, height, width, generator=torch.Generator().manual_seed(1))
        cells = family.mask_cells(folder, mask)
        shape = family.latents_shape(folder, frames, height, width)
        one_channel = tuple(1 if axis == family.channel_axis - 1 else size for axis, size in enumerate(shape))
        assert tuple(cells.shape) == (2, *one_channel)
        own = cells.movedim(family.frame_axis, 1).flatten(2).view(2, shape[family.frame_axis - 1], *cells.shape[-2:])
        count = (frames - 1) // temporal + 1
        in_front = own.shape[1] - count  # CogVideoX 1.5 puts copies of the first frame there
        for number in range(own.shape[1]):
            index = max(0, number - in_front)
            first, last = (0, 1) if index == 0 else (temporal * (index - 1) + 1, temporal * index + 1)
            for row, column in ((0, 0), (own.shape[2] - 1, own.shape[3] - 1)):
                part = mask[:, 0, first:last, row * spatial :, column * spatial :][..., :spatial, :spatial]
                torch.testing.assert_close(own[:, number, row, column], part.flatten(1).mean(1))


def family_config(folder: Path) -> Any:
    from workbench.families.model_files import config

    return config(folder, "vae")


def test_a_trained_vae_keeps_a_frame_where_the_mask_puts_it() -> None:
    """Changing one frame changes most the latent frame that the mask assigns to it."""
    family, model = find_model(default_model())
    vae = family.load_vae(Path(model.source), CPU, torch.float32)
    video = torch.full((1, 3, 9, 40, 40), -0.3)
    before = family.encode_video(vae, video)["mean"]
    for frame in range(9):
        changed, mask = video.clone(), torch.zeros(1, 1, 9, 40, 40)
        changed[:, 1, frame, 10:30, 10:30], mask[:, :, frame] = 0.9, 1.0
        moved = (family.encode_video(vae, changed)["mean"] - before).square().mean((0, 2, 3, 4))
        marked = family.mask_cells(Path(model.source), mask).amax((0, 2, 3, 4))
        assert marked.nonzero().flatten().tolist() == [int(moved.argmax())]


# ---- the loss


@pytest.mark.parametrize("floor", [0.0, 0.25])
def test_it_is_the_plain_formula(workspace: Workspace, dataset: Dataset, toy_model: Model, floor: float) -> None:
    add_masks(dataset)
    run = create(workspace, toy_model.source, batch_size=3, mask_floor=floor, horizontal_flip=0.5, **MASKED)
    made = go(run, 3)
    batch = made.inputs.batch(4, 0)
    with torch.no_grad():
        losses, outside, _ = clip_losses(made, batch)
        predicted = made.family.predict(made.transformer, made.schedule, batch.inputs).double()
    inputs, base = batch.inputs, base_prediction(made, batch.inputs).double()
    target = made.schedule.target(inputs.latents, inputs.noise, inputs.timesteps).double()
    assert batch.mask is not None
    assert outside is not None
    assert 0 < float(batch.mask.mean()) < 1
    for row, mask in enumerate(batch.mask.double()):
        mask = mask.expand_as(target[row])
        weight = floor + (1 - floor) * mask
        inside = (weight * (predicted[row] - target[row]) ** 2).sum() / weight.sum()
        rest = ((1 - mask) * (predicted[row] - base[row]) ** 2).sum() / (1 - mask).sum()
        assert float(losses[row]) == pytest.approx(float(inside), rel=1e-6)
        assert float(outside[row]) == pytest.approx(float(rest), rel=1e-6, abs=1e-12)
    made.close()
    first, _, third = run.metrics
    assert first["outside_loss"] == 0  # a LoRA begins as the base model
    assert third["outside_loss"] > 0


def test_known_frames_count_nowhere_and_nothing_left_is_no_error() -> None:
    family = next(one for one in families() if one.name == "wan")
    target, predicted = torch.zeros(2, 3, 4, 2, 2), torch.ones(2, 3, 4, 2, 2)
    predicted[:, :, 0] = 100.0
    given = Given(known=torch.zeros(2, 3, 1, 2, 2))
    weights = torch.zeros(2, 1, 4, 2, 2)
    weights[0, :, :2] = 1.0
    weights[1, :, 0] = 1.0
    assert family.error(predicted, target, given, weights).tolist() == [1.0, 0.0]
    assert family.error(predicted, target, None, torch.ones(2, 1, 4, 2, 2)).tolist() == pytest.approx(
        family.error(predicted, target).tolist()
    )


def test_without_masks_no_bit_changes(workspace: Workspace, dataset: Dataset, toy_model: Model) -> None:
    plain = create(workspace, toy_model.source)
    go(plain, 3).close()
    add_masks(dataset)
    masks_unused = create(workspace, toy_model.source)
    go(masks_unused, 3).close()
    keys = ("loss", "samples", "grad_norm")
    assert [{key: line[key] for key in keys} for line in plain.metrics] == [
        {key: line[key] for key in keys} for line in masks_unused.metrics
    ]
    assert "outside_loss" not in masks_unused.metrics[-1]
    assert all("mask" not in item for item in load_data(workspace, masks_unused.settings).lock())


# ---- masks of a run


def test_a_mask_has_its_clips_frames_crop_and_flip(workspace: Workspace, dataset: Dataset, toy_model: Model) -> None:
    add_masks(dataset)
    run = create(workspace, toy_model.source, horizontal_flip=0.5, frame_sampling="start", skip_start=3, **MASKED)
    made = session(run)
    item = made.data.train[0]
    expected = right_half(item.plan.clip)[list(item.plan.indices)]
    found = read_mask(item)
    assert found.shape == (made.shape.frames, made.shape.height, made.shape.width)
    small = expected.reshape(len(expected), found.shape[1], 4, found.shape[2], 4).mean((2, 4))
    assert np.abs(found - small).max() < 0.1
    straight, flipped = (made.inputs._masks([item], [flip]) for flip in (False, True))
    assert straight is not None
    assert flipped is not None
    torch.testing.assert_close(straight.flip(-1), flipped)
    made.close()


def test_outside_is_the_opposite_and_soft_edges_are_soft(
    workspace: Workspace, dataset: Dataset, toy_model: Model
) -> None:
    add_masks(dataset)
    found = []
    for values in ({"loss_mask": "inside"}, {"loss_mask": "outside"}, {"loss_mask": "inside", "mask_soften": 2.0}):
        made = session(create(workspace, toy_model.source, **values))
        found.append(made.inputs._masks(made.data.train[:1], [False]))
        made.close()
    inside, outside, soft = found
    torch.testing.assert_close(inside + outside, torch.ones_like(inside))
    assert ((soft > 0) & (soft < 1)).sum() > ((inside > 0) & (inside < 1)).sum()


def test_clips_without_a_mask_are_named_or_learned_as_a_whole(
    workspace: Workspace, dataset: Dataset, toy_model: Model
) -> None:
    with pytest.raises(DataError, match="loss_mask is inside, but no clip of dataset squares has a mask"):
        create(workspace, toy_model.source, **MASKED)
    add_masks(dataset, lambda clip: None if clip.source.startswith("0") else right_half(clip))
    values = {**MASKED, "held_out": 0, "batch_size": 6, "mask_floor": 0.1}
    with pytest.raises(DataError, match=r"1 clip has no mask \(0.mp4\): add one to each, or set unmasked_clips"):
        create(workspace, toy_model.source, **values)
    made = session(create(workspace, toy_model.source, unmasked_clips="whole", **values))
    batch = made.inputs.batch(1, 0)
    row = [item.name for item in batch.items].index("0.mp4")
    assert batch.mask is not None
    assert torch.equal(batch.mask[row], torch.ones_like(batch.mask[row]))
    with torch.no_grad():
        losses, *_ = clip_losses(made, batch)
        plain = made.family.loss(made.transformer, made.schedule, batch.inputs)
    torch.testing.assert_close(losses[row], plain[row])
    assert float(losses[row - 1]) != float(plain[row - 1])
    made.close()


def test_an_empty_mask_is_named_before_the_run_starts_and_by_the_run(
    workspace: Workspace, dataset: Dataset, toy_model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(clip: Clip) -> np.ndarray:  # the first clip's mask is white only in frames that the run does not use
        mask = right_half(clip)
        return mask * (np.arange(clip.frames) >= clip.frames - 1)[:, None, None] if clip.source[0] == "0" else mask

    add_masks(dataset, late)
    sentence = "the mask of 0.mp4 marks nothing in the frames that the run uses: correct the mask, or remove"
    with pytest.raises(DataError, match=sentence):
        create(workspace, toy_model.source, held_out=0, **MASKED)
    monkeypatch.setattr("workbench.runs.checks.FRAMES_LOOKED_AT", 0)  # as for very many clips
    run = create(workspace, toy_model.source, held_out=0, **MASKED)
    with pytest.raises(DataError, match=sentence):
        session(run)
    add_masks(dataset, lambda clip: np.ones((clip.frames, clip.height, clip.width), np.float32))
    monkeypatch.setattr("workbench.runs.checks.FRAMES_LOOKED_AT", 10_000)
    with pytest.raises(DataError, match="marks everything in the frames"):
        create(workspace, toy_model.source, loss_mask="outside")


def test_a_run_does_not_go_on_with_another_mask(workspace: Workspace, dataset: Dataset, toy_model: Model) -> None:
    add_masks(dataset)
    made = go(create(workspace, toy_model.source, **MASKED), 2)
    made.save()
    made.metrics.close()
    add_masks(dataset, lambda clip: right_half(clip)[:, ::-1, ::-1])
    with pytest.raises(ResumeRefused, match=r"different masks for \d.mp4, .* fork the run"):
        session(Run(made.run))


def test_refusals(workspace: Workspace, dataset: Dataset, toy_model: Model, tmp_path: Path) -> None:
    add_masks(dataset)
    with pytest.raises(ConfigError, match=r"outside_weight is 0\.5, .* but method changes its weights"):
        create(workspace, toy_model.source, method="full", **MASKED)
    phenaki = next(one for one in families() if one.name == "phenaki")
    toy = phenaki.toy(tmp_path / "phenaki", phenaki.toys[0])
    with pytest.raises(ConfigError, match="loss_mask is inside, a setting that"):
        create(workspace, str(toy.source), loss_mask="inside")


# ---- a run with masks


def test_held_out_loss_has_two_numbers_and_a_view_shows_both(
    workspace: Workspace, dataset: Dataset, toy_model: Model
) -> None:
    add_masks(dataset)
    run = create(workspace, toy_model.source, held_out=2, **MASKED)
    made = session(run)
    made.evaluate()
    for _ in range(3):
        train_step(made)
    made.evaluate()
    made.close()
    first, last = (line for line in run.metrics if "held_out_loss" in line)
    assert first["held_out_loss"] == pytest.approx(sum(first["held_out_bands"]) / 5)
    assert first["held_out_outside"] != first["held_out_loss"]
    assert last["held_out_loss"] != first["held_out_loss"]
    curves = curves_of(run)
    names = [one["name"] for one in main_charts(curves, None)[0]["lines"]]
    assert names[-2:] == ["held-out", "held-out, outside the masks"]
    facts = {fact.key: fact.value for fact in metric_facts(curves)}
    assert "→" in facts["held_out_outside"]
    assert len(curves.to_json()["loss, held-out clips outside their masks"]) == 2


def test_the_visible_effect_is_measured_inside_and_outside_of_the_masks(
    workspace: Workspace, dataset: Dataset, toy_model: Model
) -> None:
    video, other = torch.zeros(1, 2, 2, 3), torch.tensor([[[0.2, 0.1], [0.0, 0.0]]])[..., None].expand(1, 2, 2, 3)
    mask = torch.tensor([[[1.0, 0.5], [0.0, 0.0]]])
    inside, outside = levels_by_mask(video, other, mask)
    assert (inside, outside) == (pytest.approx(255 * 0.25 / 1.5), pytest.approx(255 * 0.05 / 2.5))
    assert levels_by_mask(video, other, torch.ones(1, 2, 2))[1] is None

    add_masks(dataset)
    values = {"preview_every": 2, "preview_steps": 1, "preview_prompts": ["a ring"], "steps": 4}
    run = create(workspace, toy_model.source, held_out=2, **MASKED, **values)
    made = session(run)
    for _ in range(2):
        train_step(made)
    preview(made)
    preview(made)  # nothing is measured twice
    made.save()
    made.close()
    (line,) = (one for one in run.metrics if "visible_inside" in one)
    assert line["step"] == 2
    assert line["visible_inside"] > 0
    assert line["visible_outside"] > 0
    curves = curves_of(run)
    assert main_charts(curves, None)[-1]["title"] == "Visible effect on masked clips"
    facts = {fact.key: fact.value for fact in metric_facts(curves)}
    assert "levels of 255" in facts["visible_inside"]
    assert "levels of 255" in facts["visible_outside"]
    again = session(run)
    preview(again)
    again.close()
    assert len([one for one in run.metrics if "visible_inside" in one]) == 1


def families_with_masks() -> list[Any]:
    return [one for one in families() if one.name != "phenaki"]


@pytest.mark.parametrize("family", families_with_masks(), ids=lambda family: family.name)
def test_each_family_learns_with_masks(workspace: Workspace, dataset: Dataset, family: Any, tmp_path: Path) -> None:
    add_masks(dataset)
    name = "a14b" if "a14b" in family.toys else family.toys[-1]
    toy = family.toy(tmp_path / "toy", name)
    values = {"expert": "low noise"} if name == "a14b" else {}
    run: Run = create(workspace, str(toy.source), **MASKED, **values)
    go(run, 3).close()
    assert run.metrics[-1]["outside_loss"] > 0


def test_the_fit_counts_one_more_pass_forwards() -> None:
    family, model = find_model("cogvideox-2b")
    gpu, known = GpuModel("a large GPU", "cuda", 200.0, 394.0), family.facts_of(model, None)
    settings = TrainSettings().changed(model="cogvideox-2b")
    plain, unheld, held = (
        estimate_from_facts(settings.changed(**values), model, known, gpu)
        for values in ({}, {"loss_mask": "inside"}, MASKED)
    )
    assert unheld.times.step == plain.times.step
    assert 1.2 < held.times.step / plain.times.step < 1.5
    assert held.peak.gb == plain.peak.gb
