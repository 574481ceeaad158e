"""Several datasets of a run: one of its own for the held-out loss, and weights that act on the loss or on sampling."""

from __future__ import annotations

import shutil
from collections import Counter

import pytest

from tests.driving import create, session
from tests.trainer.test_exact import assert_exact
from workbench.clips.records import read_clips, write_clips
from workbench.dataset_builder import Dataset
from workbench.errors import ConfigError, DataError
from workbench.families.model import Model
from workbench.runs.checks import check
from workbench.runs.data import Batches, load_data
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.workspace import Workspace


def part(dataset: Dataset, name: str, first: int, last: int) -> None:
    """A dataset of some of the six clips."""
    folder = dataset.folder.with_name(name)
    shutil.copytree(dataset.folder, folder)
    write_clips(folder, read_clips(folder)[first:last])


@pytest.fixture
def datasets(workspace: Workspace, dataset: Dataset) -> dict[str, str]:
    """The content hash of each of the six clips, by number; "four" has the first four, "last" the last three."""
    part(dataset, "four", 0, 4)
    part(dataset, "three", 0, 3)
    part(dataset, "last", 3, 6)
    return {str(number): clip.sha256 for number, clip in enumerate(read_clips(dataset.folder))}


def held_out(run: Run) -> float:
    made = session(run)
    made.evaluate()
    made.close()
    (line,) = (line for line in run.metrics if "held_out_loss" in line)
    return float(line["held_out_loss"])


def test_its_clips_are_measured_and_none_is_set_aside(
    workspace: Workspace, datasets: dict[str, str], toy_model: Model
) -> None:
    settings = TrainSettings(model=toy_model.source, dataset="four", validation_dataset="last", held_out=2, frames=9)
    check(workspace, settings)
    data = load_data(workspace, settings)
    assert {item.sha256 for item in data.train} == {datasets[str(number)] for number in range(4)}
    assert {item.sha256 for item in data.held_out} == {datasets["4"], datasets["5"]}  # the fourth clip is trained on
    assert [line["role"] for line in data.lock()] == ["train"] * 4 + ["held_out"] * 2
    assert len(load_data(workspace, settings.changed(held_out=1)).held_out) == 1
    assert not load_data(workspace, settings.changed(held_out=0)).held_out
    with pytest.raises(DataError, match="validation_dataset is three, but the run trains on all its clips"):
        load_data(workspace, settings.changed(validation_dataset="three"))
    with pytest.raises(ConfigError, match="validation_dataset is 'gone', which this workspace does not have"):
        check(workspace, settings.changed(validation_dataset="gone"))


def test_the_loss_is_that_of_the_other_dataset(
    workspace: Workspace, datasets: dict[str, str], toy_model: Model
) -> None:
    """Before the first step it depends on the clips that are measured alone."""
    usual = {"held_out": 2, "frames": 9}
    losses = []
    for name, values in {
        "a": {"dataset": "four", "validation_dataset": "last"},
        "b": {"dataset": "three", "validation_dataset": "last", "held_out": 3},
        "c": {"dataset": "three", "validation_dataset": "last", "held_out": 3, "rank": 4},
    }.items():
        run = create(workspace, toy_model.source, **{**usual, **values})
        losses.append(held_out(run.create(workspace, run.settings, name)))
        shutil.rmtree(run.folder)
    assert losses[1] == pytest.approx(losses[2], rel=1e-6)
    assert losses[0] != pytest.approx(losses[1], rel=1e-3)


def test_weights_of_datasets_act_on_the_loss_or_on_sampling(
    workspace: Workspace, datasets: dict[str, str], toy_model: Model
) -> None:
    settings = TrainSettings(model=toy_model.source, dataset="four", more_datasets=("last@3",), held_out=0, frames=9)
    data = load_data(workspace, settings)
    assert [(item.weight, item.group) for item in data.train] == [(1.0, "")] * 4 + [(3.0, "")] * 3
    assert not any("group" in line for line in data.lock())  # as runs before this setting have it
    by_sampling = settings.changed(dataset_weights="sampling")
    data = load_data(workspace, by_sampling)
    assert {(item.weight, item.group, item.share) for item in data.train} == {(1.0, "four", 1.0), (1.0, "last", 3.0)}
    again = load_data(workspace, by_sampling.changed(more_datasets=("last@2",)))
    assert again.lock() != data.lock()  # so that a run refuses to go on with other shares
    found = Batches(data, by_sampling)
    seen = Counter(found.batch(number)[0].group for number in range(40))
    assert seen == {"four": 10, "last": 30}
    with pytest.raises(ConfigError, match=r"has last=2@3, but with dataset_weights sampling .*last@WEIGHT"):
        load_data(workspace, by_sampling.changed(more_datasets=("last=2@3",)))


def test_a_run_of_weighted_datasets_resumes_to_the_same_bytes(
    workspace: Workspace, datasets: dict[str, str], toy_model: Model
) -> None:
    assert_exact(
        workspace,
        toy_model.source,
        {
            "dataset": "three", "more_datasets": ["four@0.5"], "dataset_weights": "sampling",
            "validation_dataset": "last", "held_out": 2, "batch_size": 2, "caption_dropout": 0.5,
            "dropped_caption": "zeros",
        },
    )  # fmt: skip
