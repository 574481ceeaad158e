"""Which clips caused what a sample shows: gradients, the job of a question, and what is said about the answer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.driving import create, saved
from tests.patience import PATIENCE
from workbench import jobs
from workbench.clips import media
from workbench.dataset_builder import Dataset
from workbench.errors import ConfigError
from workbench.families import find_model
from workbench.families.model import Model
from workbench.jobs.devices import pick_device
from workbench.runs.data import RunClip, load_data
from workbench.runs.run import Run
from workbench.sampler.samples import CAUSES, Sample, Samples, new_id, video_path, write_sample
from workbench.sampler.settings import SampleSettings
from workbench.trainer import causes
from workbench.trainer.attribution import SIZE, Gradients, Sketch, compare, marked_cells, question_of, sample_clip
from workbench.trainer.causes import Answer, Cause
from workbench.workspace import Workspace


def trained(workspace: Workspace, model: Model, **values: Any) -> Run:
    """A run with checkpoints of steps 2 and 4."""
    run = create(workspace, model.source, held_out=0, **values)
    saved(run, 2)
    saved(run, 4)
    return run


def sample_like(workspace: Workspace, run: Run, clip: RunClip, step: int = 4) -> Sample:
    """A sample of a checkpoint that shows what the model sees of a clip, with the clip's caption as its prompt."""
    made, plan = new_id(), clip.plan
    frames = media.read_frames(clip.path, plan.indices, plan.resize, plan.crop)
    lora = run.folder / "checkpoints" / f"step-{step:08d}" / "lora.safetensors"
    settings = SampleSettings(prompt=clip.caption, model=run.settings.model, loras=(str(lora),))
    record: dict[str, Any] = {"settings": settings.model_dump(mode="json"), "loras": [{"file": str(lora)}]}
    record |= {"fps": plan.fps, "frames": len(frames), "height": frames.shape[1], "width": frames.shape[2]}
    write_sample(video_path(workspace, made), frames, plan.fps, record)
    return Samples(workspace).get(made)


def silent(*_: Any) -> None:
    """Report nothing."""


def test_products_of_sketches_are_those_of_gradients() -> None:
    layers = [(f"layer{number}", torch.nn.Parameter(torch.zeros(40, 500))) for number in range(3)]
    sketch, noise = Sketch(layers), torch.Generator().manual_seed(1)
    first, second = (torch.randn(3, 40, 500, generator=noise) for _ in range(2))
    second += first
    taken = []
    for gradient in (first, second, first):
        for (_, parameter), values in zip(layers, gradient, strict=True):
            parameter.grad = values.clone()
        taken.append(sketch.take())
    assert torch.equal(taken[0], taken[2])
    assert taken[0].shape == (SIZE,)
    exact, near = (torch.cosine_similarity(*pair, dim=0) for pair in ((first.flatten(), second.flatten()), taken[:2]))
    assert float(near) == pytest.approx(float(exact), abs=0.05)
    assert all(parameter.grad is None for _, parameter in layers)


def test_a_clip_that_looks_like_the_sample_speaks_for_it_most(
    workspace: Workspace, dataset: Dataset, toy_model: Model
) -> None:
    run = trained(workspace, toy_model)
    clips = load_data(workspace, run.settings).train
    for wanted in (0, 3):
        asked = question_of(sample_like(workspace, run, clips[wanted]))
        found = compare(
            Gradients(workspace, run.folder, run.settings, pick_device("cpu"), silent), [2, 4], asked, silent
        )
        assert found.clips[int(found.scores.mean(0).argmax())].sha256 == clips[wanted].sha256
        assert found.scores.shape == (2, len(clips))


def test_models_that_begin_with_a_picture_take_the_samples_own(
    workspace: Workspace, dataset: Dataset, tmp_path: Path
) -> None:
    model = find_model("tiny-cogvideox").family.toy(tmp_path / "image-toy", "image-1.5")
    run = trained(workspace, model)
    clips = load_data(workspace, run.settings).train
    asked = question_of(sample_like(workspace, run, clips[1]))
    found = compare(Gradients(workspace, run.folder, run.settings, pick_device("cpu"), silent), [4], asked, silent)
    assert found.clips[int(found.scores.mean(0).argmax())].sha256 == clips[1].sha256


def test_a_mark_compares_the_marked_part_alone(workspace: Workspace, dataset: Dataset, toy_model: Model) -> None:
    run = trained(workspace, toy_model)
    clip = load_data(workspace, run.settings).train[0]
    sample = sample_like(workspace, run, clip)
    gradients = Gradients(workspace, run.folder, run.settings, pick_device("cpu"), silent)
    item = sample_clip(gradients.model, question_of(sample))
    gradients.load([item])
    gradients.at(4)
    width, height = sample.record["width"], sample.record["height"]
    plain = gradients.of(item)
    of = gradients.family, gradients.folder, item
    every = marked_cells(*of, question_of(sample, box=(0, 0, width, height)))
    corner = marked_cells(*of, question_of(sample, box=(0, 0, 8, 8), frames=(0, 0)))
    assert every is not None
    assert corner is not None
    assert 0 < int(corner.sum()) < int(every.sum())
    torch.testing.assert_close(gradients.of(item, every), plain, rtol=1e-4, atol=1e-6)
    assert not torch.allclose(gradients.of(item, corner), plain, rtol=0.1)


def test_a_question_is_a_job_whose_answer_stays_beside_the_sample(
    workspace: Workspace, dataset: Dataset, toy_model: Model
) -> None:
    run = trained(workspace, toy_model)
    clip = load_data(workspace, run.settings).train[2]
    sample = sample_like(workspace, run, clip, step=2)
    status = jobs.wait(causes.request(workspace, sample).folder, PATIENCE)
    assert status.state is jobs.State.FINISHED, status.message
    (answer,) = causes.answers(sample)
    assert (answer.run, answer.steps, answer.key) == ("one", [2], status.name)  # not the checkpoint after the sample's
    assert answer.clips[0].file_name == clip.plan.clip.file_name
    assert [one.score for one in answer.clips] == sorted((one.score for one in answer.clips), reverse=True)
    # The same question is answered already; another one uses the clips' gradients again.
    assert causes.request(workspace, sample).state is jobs.State.FINISHED
    known = {path: path.stat().st_mtime_ns for path in workspace.cache.glob("*.safetensors")}
    dataset.remove(answer.clips[-1].file_name)
    marked = causes.request(workspace, sample, frames=(0, 0))
    assert jobs.wait(marked.folder, PATIENCE).state is jobs.State.FINISHED
    newest, oldest = causes.answers(sample)
    assert (newest.frames, oldest) == ([0, 0], answer)
    assert newest.missing == [answer.clips[-1].name]
    assert len(newest.clips) == len(answer.clips) - 1
    assert {path: path.stat().st_mtime_ns for path in workspace.cache.glob("*.safetensors")} == known
    # The answers go to the bin with their sample and come back.
    Samples(workspace).remove(sample.id)
    assert not sample.path.with_suffix(CAUSES).exists()
    assert causes.answers(Samples(workspace).restore(sample.id)) == [newest, oldest]


def test_questions_that_cannot_be_answered_are_refused(
    workspace: Workspace, dataset: Dataset, toy_model: Model
) -> None:
    run = trained(workspace, toy_model)
    sample = sample_like(workspace, run, load_data(workspace, run.settings).train[0])
    for marked, sentence in (
        ({"box": (0, 0, 999, 8)}, "must lie inside the sample"),
        ({"box": (1, 2, 3)}, "box has 3 numbers"),
        ({"frames": (3, 99)}, "the first and the last frame, from 0 to"),
        ({"run": "two"}, "leave it empty"),
    ):
        with pytest.raises(ConfigError, match=sentence):
            causes.request(workspace, sample, **marked)
    run.folder.rename(run.folder.with_name("renamed"))
    with pytest.raises(ConfigError, match="no run of this workspace trained a LoRA of this sample"):
        causes.request(workspace, sample)


def answer_of(scores: list[float], agreement: float = 0.9) -> Answer:
    clips = [
        Cause(file_name=f"clips/{n}.mp4", name=f"{n}.mp4", dataset="d", caption="", score=score)
        for n, score in enumerate(scores)
    ]
    told: dict[str, Any] = {"key": "k", "run": "one", "steps": [1], "box": [], "frames": [0, 1], "missing": []}
    return Answer(**told, clips=causes.judged(clips), agreement=agreement, seconds=1, time=0)


def test_clips_are_named_only_if_they_stand_out_and_the_answer_is_reliable() -> None:
    usual = [0.01 * n for n in range(-10, 10)]
    planted = answer_of([*usual, 0.6, 0.5])
    assert [one.name for one in causes.named(planted)] == ["20.mp4", "21.mp4"]
    assert causes.sentence(planted).startswith("20.mp4 and 21.mp4 most likely caused what is marked")
    assert causes.sentence(answer_of(usual)).startswith("No clip stands out")
    unsure = answer_of([*usual, 0.6], agreement=0.1)
    assert causes.named(unsure) == []
    assert causes.sentence(unsure).startswith("Cannot tell: the scores of two noise draws agree no better")
    assert "too few to tell" in causes.sentence(answer_of([0.1, 0.9]))


def test_rank_correlation_is_that_of_the_order() -> None:
    assert causes.rank_correlation([1, 2, 3, 9], [10, 20, 30, 31]) == pytest.approx(1)
    assert causes.rank_correlation([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)
    assert causes.rank_correlation([1, 1, 1], [3, 2, 1]) == 0
