"""An interrupted run ends with the same bits as an uninterrupted one, whatever its settings.

The session runs in this process, so that many settings can be tested quickly; tests/trainer/test_trainer.py kills real
processes.
"""

from __future__ import annotations

import gc
import shutil
from typing import Any

import pytest
import torch
from PIL import Image

from tests.driving import create, go, session
from tests.masked import add_masks
from workbench.clips.records import file_sha256, read_clips, write_clips
from workbench.dataset_builder import Dataset
from workbench.errors import ResumeRefused
from workbench.families import families, find_model
from workbench.families.model import Model
from workbench.runs import checkpoints
from workbench.runs.run import Run
from workbench.trainer.batch_inputs import FirstFrames
from workbench.workspace import Workspace

pytestmark = pytest.mark.long

STEPS, BREAK = 5, 2

# test_optimizers.py resumes every optimizer; here are the two whose state is unlike the others'.
CASES: dict[str, dict[str, Any]] = {
    "8-bit": {"optimizer": "adamw-8bit", "optimizer_options": ["min_8bit_size=1"]},
    "schedule-free": {"optimizer": "schedule-free"},
    "EMA, cosine, accumulation, other trained weights, dropout": {
        "ema_decay": 0.9,
        "lr_schedule": "cosine",
        "gradient_accumulation": 2,
        "train_also": ["norm_final"],
        "lora_dropout": 0.3,
    },
    "shapes, flipped, min-SNR": {
        "buckets": ["9x16x16", "9x24x16", "1x16x16"],
        "horizontal_flip": 0.5,
        "loss_weighting": "min-snr",
        "picture_share": 0.4,
        "batch_size": 2,
    },
    "everything trained, restarts": {"method": "full", "lr_schedule": "cosine_with_restarts", "lr_cycles": 2.0},
    "regularization dataset, checkpointing": {
        "regularization_dataset": "squares",
        "batch_size": 3,
        "gradient_checkpointing": "full",
    },
    "regularization towards the base model, output preservation": {
        "regularization_dataset": "squares",
        "regularization_target": "base model",
        "regularization_share": 0.5,
        "batch_size": 3,
        "preservation_weight": 0.5,
        "lora_dropout": 0.3,
    },
    "windows, random crop": {"frame_sampling": "windows", "crop": "random", "fps": 16.0},
}
PICTURES: dict[str, dict[str, Any]] = {
    "first frame": {"image_dropout": 0.3, "batch_size": 2},
    "first frame everywhere, flipped": {
        "condition_frames": "every",
        "horizontal_flip": 0.5,
        "image_latent_scale": "raw",
    },
    "low resolution": {"condition": "low resolution", "image_dropout": 0.3},
}


def made_and_saved(run: Run, until: int) -> list[dict[str, Any]]:
    """Train up to step `until` and save; return the metrics."""
    made = go(run, until)
    made.save()
    made.metrics.close()
    del made
    gc.collect()
    return [{key: line[key] for key in ("step", "loss", "samples")} for line in run.metrics if "loss" in line]


def digests(run: Run, step: int) -> dict[str, str]:
    folder = checkpoints.folder_of(run.folder, step)
    return {path.name: file_sha256(path) for path in folder.glob("*.safetensors")}


def assert_exact(workspace: Workspace, model: str, values: dict[str, Any], again: bool = False) -> None:
    """Compare a run that was interrupted with one that was not; `again` also starts the latter again at its end."""
    whole = create(workspace, model, steps=STEPS, rank=4, **values)
    want, told = made_and_saved(whole, STEPS), digests(whole, STEPS)
    assert "optimizer.safetensors" in told
    if again:  # which changes nothing
        assert made_and_saved(whole, STEPS) == want
        assert digests(whole, STEPS) == told
    shutil.rmtree(whole.folder)
    broken = create(workspace, model, steps=STEPS, rank=4, loader_threads=2, **values)
    made_and_saved(broken, BREAK)
    assert made_and_saved(broken, STEPS) == want
    assert digests(broken, STEPS) == told


@pytest.fixture
def mixed(dataset: Dataset) -> Dataset:
    """The six clips, one of them recorded as an image."""
    records = read_clips(dataset.folder)
    write_clips(dataset.folder, [records[0].changed(frames=1, fps=0.0), *records[1:]])
    return dataset


@pytest.mark.parametrize("name", CASES)
def test_interrupted_and_resumed_it_ends_in_the_same_bytes(
    workspace: Workspace, mixed: Dataset, toy_model: Model, name: str
) -> None:
    assert_exact(workspace, toy_model.source, CASES[name], again=True)


def test_so_does_one_with_masks(workspace: Workspace, mixed: Dataset, toy_model: Model) -> None:
    add_masks(mixed)
    values = {
        **{"loss_mask": "inside", "outside_weight": 0.5, "mask_floor": 0.1, "mask_soften": 1.0},
        **{"buckets": ["9x16x16", "9x24x16", "1x16x16"], "horizontal_flip": 0.5, "picture_share": 0.4},
        **{"batch_size": 2, "gradient_accumulation": 2},
    }
    assert_exact(workspace, toy_model.source, values)


@pytest.fixture(scope="session")
def picture_model(tmp_path_factory: pytest.TempPathFactory) -> Model:
    """The random miniature of the first family's newest image-to-video model."""
    family = families()[0]
    variant = next(toy for toy in reversed(family.toys) if toy.startswith("image"))
    return family.toy(tmp_path_factory.mktemp("models") / variant, variant)


@pytest.mark.parametrize("name", PICTURES)
def test_so_does_one_that_is_shown_pictures(
    workspace: Workspace, dataset: Dataset, picture_model: Model, name: str
) -> None:
    _, model = find_model(picture_model.source)
    assert model.task == "image-to-video"
    assert_exact(workspace, picture_model.source, PICTURES[name])


def test_b7_a_changed_caption_refuses_to_go_on_and_says_what_changed(
    workspace: Workspace, dataset: Dataset, toy_model: Model
) -> None:
    run = create(workspace, toy_model.source)
    made_and_saved(run, 2)
    records = read_clips(dataset.folder)
    write_clips(dataset.folder, [records[0].changed(text="another caption"), *records[1:]])
    with pytest.raises(ResumeRefused, match=r"gone: train clip .*; new: train clip .*another caption"):
        session(run)


def test_noise_on_first_frames_is_drawn_anew_at_each_step_b23_b41(
    workspace: Workspace, dataset: Dataset, picture_model: Model
) -> None:
    made = session(create(workspace, picture_model.source, image_dropout=0.0))
    frames, pixels = FirstFrames(made.encoder, made.settings), torch.full((2, 3, 16, 16), 90, dtype=torch.uint8)
    first, second, again = (frames.moments(pixels, "training", step, 0)["mean"] for step in (1, 2, 1))
    assert not (first == second).all()
    assert not (first[0] == first[1]).all()  # nor is it shared within a batch
    assert (first == again).all()
    given = made.inputs.batch(1, 0).inputs.given
    assert given.beside[:, 0].any()
    assert not given.beside[:, 1:].any()
    made.metrics.close()


def test_b5_pictures_and_captions_are_dropped_at_their_rates(
    workspace: Workspace, dataset: Dataset, picture_model: Model
) -> None:
    values = {"image_dropout": 0.25, "caption_dropout": 0.5, "batch_size": 6, "held_out": 0}
    made = session(create(workspace, picture_model.source, **values))
    nothing = made.inputs.embeddings([""])
    dropped, silent, count = 0, 0, 0
    for step in range(1, 40):
        batch = made.inputs.batch(step, 0).inputs
        dropped += int((~batch.given.beside.flatten(1).any(1)).sum())
        silent += sum(
            all((batch.text[name][index] == nothing[name][0]).all() for name in nothing) for index in range(6)
        )
        count += 6
    assert abs(dropped / count - 0.25) < 0.1
    assert abs(silent / count - 0.5) < 0.1
    made.metrics.close()


def test_a_picture_that_came_with_a_clip_is_what_the_model_is_shown(
    workspace: Workspace, dataset: Dataset, picture_model: Model
) -> None:
    records = read_clips(dataset.folder)
    folder = dataset.folder / "first_frames"
    folder.mkdir()
    Image.new("RGB", (64, 64), (10, 200, 30)).save(folder / "green.png")
    given = records[0].changed(first_frame="first_frames/green.png")
    write_clips(dataset.folder, [given, *records[1:]])
    made = session(create(workspace, picture_model.source, held_out=0, frame_sampling="start"))
    pictures = {item.plan.clip.id: made.inputs.picture(item)[0] for item in made.data.train}
    shown = (pictures[given.id].mean((1, 2)) + 1) * 127.5
    assert [round(float(value)) for value in shown] == [10, 200, 30]
    assert all((picture != pictures[given.id]).any() for name, picture in pictures.items() if name != given.id)
    made.metrics.close()
