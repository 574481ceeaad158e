"""The operations of what-if: how an answer is shown, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from tests.driving import create
from tests.operations.conftest import Call
from workbench.dataset_builder import Dataset
from workbench.errors import ConfigError, Unknown
from workbench.families.model import Model
from workbench.sampler.samples import write_sample
from workbench.trainer import what_if
from workbench.trainer.what_if import Answer, Changed
from workbench.workspace import Workspace, write_json


def test_an_answer_is_shown_with_its_videos_side_by_side(
    workspace: Workspace, dataset: Dataset, toy_model: Model, call: Call
) -> None:
    run = create(workspace, toy_model.source)
    assert call("runs/known-what-ifs", name="one") == []
    same = what_if.told("effect", [0.5, 0.52, 0.49], [0.5, 0.52, 0.49])
    less = what_if.told("effect", [0.5, 0.52, 0.49], [0.3, 0.33, 0.28])
    told = Answer(
        sample="", box=[], frames=[], begin=2, steps=40, repeats=3, seeds=1, prompts=["a square"],
        asked=["clips:07_cat", "setting:rank=4"], seconds=1.0, time=1.0,
        changes=[Changed(change="setting:rank=4", measures=[less]), Changed(change="clips:07_cat", measures=[same])],
    )  # fmt: skip
    folder = run.folder / what_if.KEPT / "0000abcd"
    write_json(folder / what_if.ANSWER, told.model_dump(mode="json"))
    for number in range(3):
        write_sample(folder / f"{number}-0.mp4", np.zeros((9, 48, 64, 3), np.uint8), 8, {})
    (found,) = call("runs/known-what-ifs", name="one")
    assert (found["id"], found["state"], found["begin"]) == ("one-0000abcd", "finished", 2)
    assert found["asked"] == ["without clip 07_cat", "with rank 4"]
    assert [one["verdict"] for one in found["changes"]] == ["told", "same"]
    assert found["changes"][0]["sentence"].startswith("With rank 4: effect 50% → 30%")
    # Columns follow the order of the changes, files that of the question.
    (row,) = found["videos"]
    assert row["prompt"] == "a square"
    assert row["before"] == str(folder / "0-0.mp4")
    assert row["after"] == [str(folder / "2-0.mp4"), str(folder / "1-0.mp4")]
    assert call("runs/found-what-if", id=found["id"]) == found


def test_questions_that_are_not_there_and_changes_that_cannot_be(
    workspace: Workspace, dataset: Dataset, toy_model: Model, call: Call
) -> None:
    create(workspace, toy_model.source)
    with pytest.raises(Unknown, match="there is no question 'one-0000abcd'"):
        call("runs/found-what-if", id="one-0000abcd")
    with pytest.raises(ConfigError, match="give the id that `what-if` returned"):
        call("runs/found-what-if", id="../x")
    with pytest.raises(ConfigError, match="nothing is changed"):
        call("runs/what-if", name="one")
    with pytest.raises(ConfigError, match="rank must be|rank is 0"):
        call("runs/what-if", name="one", setting=["rank=0"])
