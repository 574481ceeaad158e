"""The operations on causes: what is asked, how an answer is shown, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.operations.conftest import Call
from workbench.dataset_builder import Dataset
from workbench.errors import ConfigError, Unknown
from workbench.sampler.samples import Sample, Samples, new_id, video_path, write_sample
from workbench.sampler.settings import SampleSettings
from workbench.trainer import causes
from workbench.trainer.causes import Answer, Cause
from workbench.workspace import Workspace


@pytest.fixture
def sample(workspace: Workspace) -> Sample:
    made, settings = new_id(), SampleSettings(prompt="a red square")
    record = {"settings": settings.model_dump(mode="json"), "fps": 8.0, "frames": 9, "width": 64, "height": 48}
    write_sample(video_path(workspace, made), np.zeros((9, 48, 64, 3), np.uint8), 8, record)
    return Samples(workspace).get(made)


def keep_answer(sample: Sample, dataset: Dataset, scores: list[float], key: str = "00000001") -> str:
    clips = [
        Cause(file_name=one.file_name, name=one.name, dataset="squares", caption=one.text, score=score)
        for one, score in zip(dataset.clips, scores, strict=True)
    ]
    answer = Answer(
        key=f"{sample.id}-{key}", run="one", steps=[2, 4], box=[0, 0, 16, 16], frames=[], clips=causes.judged(clips),
        agreement=0.9, missing=[], seconds=1.0, time=1.0,
    )  # fmt: skip
    causes.keep(sample, answer)
    return answer.key


def test_an_answer_names_the_clips_that_stand_out_and_shows_all(call: Call, sample: Sample, dataset: Dataset) -> None:
    keep_answer(sample, dataset, [0.01, -0.02, 0.7, 0.0, 0.02, -0.01])
    (found,) = call("samples/known-causes", id=sample.id)
    clips = dataset.clips
    assert [one["part"] for one in found["clips"]] == ["caused it", "for", "for", "against", "against", "against"]
    assert (found["clips"][0]["clip"], found["clips"][0]["name"]) == (clips[2].id, clips[2].name)
    assert Path(found["clips"][0]["file"]).is_file()
    assert Path(found["clips"][0]["picture"]).is_file()
    assert found["sure"]
    assert (
        found["sentence"]
        == f"{clips[2].name} most likely caused what is marked: its gradient matches it unusually well."
    )
    assert call("samples/found-causes", id=found["id"]) == found
    # A clip that was removed since keeps its place in the answer, without its files.
    dataset.remove(clips[2].id)
    gone = call("samples/found-causes", id=found["id"])["clips"][0]
    assert (gone["name"], gone["file"], gone["picture"]) == (clips[2].name, "", "")


def test_without_a_clip_that_stands_out_none_is_named(call: Call, sample: Sample, dataset: Dataset) -> None:
    keep_answer(sample, dataset, [0.01, -0.02, 0.03, 0.0, 0.02, -0.01])
    (found,) = call("samples/known-causes", id=sample.id)
    assert not found["sure"]
    assert found["sentence"].startswith("No clip stands out")
    assert "caused it" not in [one["part"] for one in found["clips"]]


def test_answers_come_newest_first_and_unknown_ones_are_refused(call: Call, sample: Sample, dataset: Dataset) -> None:
    assert call("samples/known-causes", id=sample.id) == []
    first, second = (keep_answer(sample, dataset, [0.0] * 5 + [0.1], key) for key in ("00000001", "00000002"))
    assert [one["id"] for one in call("samples/known-causes", id=sample.id)] == [second, first]
    with pytest.raises(Unknown, match="there is no search"):
        call("samples/found-causes", id=f"{sample.id}-00000003")
    with pytest.raises(ConfigError, match="give the id"):
        call("samples/found-causes", id="../x")
    with pytest.raises(ConfigError, match="no run of this workspace trained a LoRA of this sample"):
        call("samples/causes", id=sample.id)
