"""The loop and what surrounds it, driven in the test's process."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch

from tests.driving import create, go, session
from workbench import jobs
from workbench.dataset_builder import Dataset
from workbench.errors import ConfigError, NonFiniteLoss
from workbench.families.model import Model
from workbench.runs.metrics import read_sessions
from workbench.trainer.loop import train_step, training_loop
from workbench.workspace import Workspace


def values_of(made: Any) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in made.trainable.parameters]


def same(one: list[torch.Tensor], other: list[torch.Tensor]) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one, other, strict=True))


def test_when_the_time_is_up_it_saves_and_stops(workspace: Workspace, dataset: Dataset, toy_model: Model) -> None:
    run, began = create(workspace, toy_model.source), time.time()
    with pytest.raises(jobs.Stop, match=r"The time limit is reached.*at step 1 of 7; start it again"):
        training_loop(session(run, ends_at=time.monotonic()))
    assert run.checkpoints == [1]
    stops_at = read_sessions(run.folder)[-1].stops_at
    assert stops_at == pytest.approx(began, abs=5)  # when it was made, though loading came in between


def test_known_clips_and_datasets_weigh_what_they_say(workspace: Workspace, dataset: Dataset, toy_model: Model) -> None:
    known = {"regularization_dataset": "squares", "regularization_share": 0.5, "regularization_weight": 0.25}
    run = create(workspace, toy_model.source, batch_size=2, **known)
    go(run, 1)
    (line,) = run.metrics
    each = [loss for _, loss in line["samples"]]
    assert line["loss"] in (
        pytest.approx((each[0] * 0.25 + each[1]) / 2),
        pytest.approx((each[0] + each[1] * 0.25) / 2),
    )


def test_a_gradient_that_is_no_number_ends_the_run_before_anything_is_adjusted(
    workspace: Workspace, dataset: Dataset, toy_model: Model
) -> None:
    made = go(create(workspace, toy_model.source), 2)
    before = values_of(made)
    made.trainable.parameters[0].register_hook(lambda gradient: gradient * float("nan"))
    with pytest.raises(
        NonFiniteLoss, match=r"the gradient of step 3 is not a number \(learning rate 1.00e-02, clips .*mp4"
    ):
        train_step(made)
    assert same(before, values_of(made))


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"lora_init": "pissa"}, "would not work with the original base model"),
        ({"lora_init": "orthogonal", "rank": 3}, "needs an even rank"),
        ({"method": "full", "train_also": ["x"]}, "method is full, which has no LoRA"),
        ({"start_from": "nobody"}, "no run that has exported a LoRA"),
        ({"start_from": "lora.pt"}, "workbench .*convert"),
        ({"preview_images": ["nowhere.png"]}, "which is not a file"),
        ({"frame_sampling": "sat", "bucket_limit": 3}, "set bucket_limit to 1"),
        ({"more_datasets": ["nothing=2"]}, "more_datasets has 'nothing'"),
    ],
)
def test_what_cannot_work_is_refused_before_a_run_is_written(
    workspace: Workspace, dataset: Dataset, toy_model: Model, values: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        create(workspace, toy_model.source, **values)
    assert not list(workspace.runs.glob("*/config.json"))
