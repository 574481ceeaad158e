"""Runs that learn the sound of their clips: what is encoded, batches, metrics, exact resume, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from tests.driving import create, go, session
from tests.sounds import pitch, tone
from tests.trainer.test_exact import digests
from workbench import jobs
from workbench.clips.frame_plan import FramePlan
from workbench.clips.records import Clip
from workbench.clips.sound import write_sound
from workbench.dataset_builder import Dataset
from workbench.errors import ConfigError, DataError
from workbench.families.ltx2 import FAMILY
from workbench.families.model_inputs import PICTURE_FOR_SOUND, SOUND_FOR_PICTURE
from workbench.runs import checkpoints
from workbench.runs.data import Batches, load_data
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.trainer.encoder import read_clip_sound
from workbench.trainer.loop import train
from workbench.trainer.losses import clip_losses
from workbench.workspace import Workspace

STEPS = 6


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> str:
    return FAMILY.toy(tmp_path_factory.mktemp("toys") / "text-2.3", "text-2.3").source


@pytest.fixture
def audible(dataset: Dataset) -> Dataset:
    """The six clips; four of them have a tone, each its own."""
    for number, clip in enumerate(dataset.clips[:4]):
        samples = np.repeat(tone(440.0 + 220 * number, clip.frames / clip.fps), 2, axis=0)
        write_sound(dataset.path_of(clip), samples, 16000)
    return dataset


def values(**more: Any) -> dict[str, Any]:
    return {"steps": STEPS, "sound": "picture+sound", "evaluate_every": 3, "save_every": 2, "device": "cpu", **more}


def test_a_run_with_sound_reports_both_losses_and_resumes_exactly(
    workspace: Workspace, audible: Dataset, toy: str
) -> None:
    run = create(workspace, toy, **values(gradient_accumulation=2))
    with jobs.Job(run.folder) as job:
        train(job)
    assert job.exit_code == 0, jobs.log_tail(run.folder)
    lines = run.metrics
    measured = [line for line in lines if "held_out_loss" in line]
    assert [line["step"] for line in measured] == [0, 3, 6]
    heard = [line["sound_loss"] for line in lines if "sound_loss" in line]
    assert heard
    assert all(0.5 < one < 5 for one in heard)
    trained = {name.split(".")[3] for name in load_file(run.folder / "lora.safetensors")}
    assert {"attn1", "audio_attn1", "audio_to_video_attn", "video_to_audio_attn"} <= trained

    resumed = Run.create(workspace, run.settings, "resumed")
    for step in (2, STEPS):
        made = go(resumed, step)
        made.save()
        made.metrics.close()
    assert digests(run, STEPS)["optimizer.safetensors"] == digests(resumed, STEPS)["optimizer.safetensors"]
    tensors = [load_file(checkpoints.folder_of(one.folder, STEPS) / checkpoints.LORA) for one in (run, resumed)]
    assert all(torch.equal(tensors[0][key], tensors[1][key]) for key in tensors[0])


def test_batches_hold_clips_with_sound_or_without(workspace: Workspace, audible: Dataset, toy: str) -> None:
    run = create(workspace, toy, **values(batch_size=2, held_out=0))
    data = load_data(workspace, run.settings)
    assert sum(item.heard for item in data.train) == 4
    batches = [Batches(data, run.settings).batch(number) for number in range(9)]
    kinds = [[item.heard for item in batch] for batch in batches]
    assert all(len(set(kind)) == 1 for kind in kinds)
    assert sum(kind[0] for kind in kinds) == 6
    assert {item.name for batch in batches[:3] for item in batch} == {item.name for item in data.train}
    made = session(run)
    for number, kind in enumerate(kinds[:3]):
        inputs = made.inputs.batch(number + 1, 0).inputs
        assert (inputs.sound is not None) == kind[0]
        if inputs.sound is not None:
            assert not torch.equal(inputs.sound.timesteps, inputs.timesteps)
    made.metrics.close()


def test_the_sound_alone_leaves_out_clips_without_one(workspace: Workspace, audible: Dataset, toy: str) -> None:
    run = create(workspace, toy, **values(sound="sound", steps=2, evaluate_every=2))
    with jobs.Job(run.folder) as job:
        train(job)
    assert job.exit_code == 0, jobs.log_tail(run.folder)
    assert "it has no sound, which is all that the run learns" in " ".join(load_data(workspace, run.settings).dropped)
    trained = {name.split(".")[3] for name in load_file(run.folder / "lora.safetensors")}
    assert trained == {"audio_attn1", "audio_attn2"}
    assert not [line for line in run.metrics if "sound_loss" in line or "change_own" in line]
    assert [line["step"] for line in run.metrics if "held_out_loss" in line] == [0, 2]


@pytest.mark.parametrize("learned", [SOUND_FOR_PICTURE, PICTURE_FOR_SOUND])
def test_a_run_with_a_given_stream_reports_one_loss_and_resumes_exactly(
    workspace: Workspace, audible: Dataset, toy: str, learned: str
) -> None:
    run = create(workspace, toy, **values(sound=learned, steps=4, save_every=2, evaluate_every=4))
    with jobs.Job(run.folder) as job:
        train(job)
    assert job.exit_code == 0, jobs.log_tail(run.folder)
    assert "it has no sound, which a run with sound" in " ".join(load_data(workspace, run.settings).dropped)
    assert not [line for line in run.metrics if "sound_loss" in line or "held_out_sound" in line]
    assert [line["step"] for line in run.metrics if "held_out_loss" in line] == [0, 4]
    assert any("change_own" in line for line in run.metrics) == (learned == PICTURE_FOR_SOUND)

    made = session(run)
    batch = made.inputs.batch(1, 0)
    assert batch.inputs.sound is not None
    assert (batch.inputs.timesteps == 0).all() == (learned == SOUND_FOR_PICTURE)
    assert (batch.inputs.sound.timesteps == 0).all() == (learned == PICTURE_FOR_SOUND)
    assert (batch.quantiles > 0).all()
    made.metrics.close()

    resumed = Run.create(workspace, run.settings, "resumed")
    for step in (2, 4):
        made = go(resumed, step)
        made.save()
        made.metrics.close()
    assert digests(run, 4)["optimizer.safetensors"] == digests(resumed, 4)["optimizer.safetensors"]
    tensors = [load_file(checkpoints.folder_of(one.folder, 4) / checkpoints.LORA) for one in (run, resumed)]
    assert all(torch.equal(tensors[0][key], tensors[1][key]) for key in tensors[0])


def test_base_model_targets_are_those_for_the_given_sound(workspace: Workspace, audible: Dataset, toy: str) -> None:
    """At the first step the LoRA changes nothing, so clips that aim at the base model's prediction have no loss."""
    run = create(
        workspace, toy, **values(sound=PICTURE_FOR_SOUND, regularization_target="base model", batch_size=2,
        regularization_dataset=audible.name, regularization_share=0.5, held_out=0)
    )  # fmt: skip
    made = session(run)
    batch = made.inputs.batch(1, 0)
    each, _, _ = clip_losses(made, batch)
    for item, loss in zip(batch.items, each.tolist(), strict=True):
        assert (loss < 1e-9) == (item.role == "known")
    made.metrics.close()


def test_a_dataset_without_sound_is_refused(workspace: Workspace, dataset: Dataset, toy: str) -> None:
    wanted = "sound is picture\\+sound, but no clip of squares has a sound track: import its files again, or set sound"
    with pytest.raises(DataError, match=wanted):
        load_data(workspace, TrainSettings().changed(model=toy, dataset="squares", sound="picture+sound"))


@pytest.mark.parametrize(
    ("more", "wanted"),
    [
        ({"regularization_target": "base model", "regularization_dataset": "squares"}, "set regularization_target to"),
        ({"sound": "sound", "preservation_weight": 0.5}, "set preservation_weight to 0"),
        ({"sound": "sound", "best_point": "ask"}, "set best_point to off"),
        ({"slider_positive": ["a"], "slider_negative": ["b"]}, "sound is picture\\+sound, but a slider learns"),
        ({"sound": SOUND_FOR_PICTURE, "best_point": "ask"}, "set best_point to off"),
        ({"sound": PICTURE_FOR_SOUND, "slider_positive": ["a"], "slider_negative": ["b"]}, "but a slider learns"),
        ({"model": "tiny-cogvideox"}, "sound is picture\\+sound, a setting that .* does not have: set it to picture"),
    ],
)
def test_what_works_on_the_picture_alone_is_refused(
    workspace: Workspace, audible: Dataset, toy: str, more: dict[str, Any], wanted: str
) -> None:
    with pytest.raises(ConfigError, match=wanted):
        create(workspace, **values(**{"model": toy, **more}))


def test_a_sound_is_as_long_as_the_frames_and_follows_their_pace(
    workspace: Workspace, audible: Dataset, toy: str
) -> None:
    settings = TrainSettings().changed(model=toy, dataset="squares", sound="picture+sound", held_out=0)
    item = next(one for one in load_data(workspace, settings).train if one.heard)
    usual = read_clip_sound(item, 16000)
    assert usual.shape == (2, round(len(item.plan.indices) / item.plan.fps * 16000))


@pytest.mark.parametrize(
    ("indices", "fps", "wanted"),
    [
        ((5, 7, 10, 12, 15, 17), 12.0, (5 / 30, 0.5, 0.5)),  # every 2.5th frame: the clip's own pace
        (tuple(range(0, 90, 10)), 15.0, (0.0, 3.0, 0.6)),  # five times as fast
        ((0, 1, 2, 3, 3, 3, 3, 3, 3), 30.0, (0.0, 0.3, 0.3)),  # a still at the end
    ],
)
def test_the_span_of_a_sound(indices: tuple[int, ...], fps: float, wanted: tuple[float, ...]) -> None:
    clip = Clip(file_name="clips/a.mp4", fps=30.0, frames=90, width=64, height=64)
    plan = FramePlan(clip, indices, (64, 64), (0, 0, 64, 64), fps)
    assert plan.sound_span == pytest.approx(wanted, rel=0.01)


def test_a_faster_clip_sounds_higher(workspace: Workspace, dataset: Dataset, toy: str) -> None:
    settings = TrainSettings().changed(model=toy, dataset="squares", sound="picture+sound", held_out=0)
    clip = dataset.clips[0]
    write_sound(dataset.path_of(clip), np.repeat(tone(440.0, clip.frames / clip.fps), 2, axis=0), 16000)
    item = next(one for one in load_data(workspace, settings).train if one.heard)
    fast = replace(item, plan=replace(item.plan, indices=tuple(range(0, clip.frames, 2)), fps=clip.fps))
    found = read_clip_sound(fast, 16000)
    assert found.shape[1] == round(len(fast.plan.indices) / clip.fps * 16000)
    assert pitch(found[0, 2000:-2000].numpy(), 16000) == pytest.approx(880, rel=0.02)
