"""Which clips, in which role, in which order: pure functions of dataset, settings and step."""

from __future__ import annotations

from collections import Counter

import pytest

from workbench.clips import read_clips, write_clips
from workbench.dataset_builder import Dataset
from workbench.errors import DataError
from workbench.frame_plan import Shape
from workbench.trainer.data import Batches, TrainingData, load_data, seed_for
from workbench.trainer.settings import TrainSettings
from workbench.workspace import Workspace

SHAPE = Shape(frames=9, height=16, width=16, fps=8)


def data_of(workspace: Workspace, **values: object) -> TrainingData:
    settings = TrainSettings(dataset="squares", **values)  # type: ignore[arg-type]
    return load_data(workspace, settings, SHAPE)


def test_captions_carry_the_trigger_word(workspace: Workspace, dataset: Dataset) -> None:
    assert all(item.caption.startswith("zwx a ") for item in data_of(workspace).items)


def test_held_out_clips_are_never_trained_on_and_do_not_depend_on_the_order(
    workspace: Workspace, dataset: Dataset
) -> None:
    first = data_of(workspace, held_out=2)
    assert len(first.held_out) == 2
    assert not {item.sha256 for item in first.held_out} & {item.sha256 for item in first.train}
    write_clips(dataset.folder, read_clips(dataset.folder)[::-1])
    assert {item.sha256 for item in data_of(workspace, held_out=2).held_out} == {i.sha256 for i in first.held_out}


def test_holding_out_everything_is_refused_with_the_number_that_fits(workspace: Workspace, dataset: Dataset) -> None:
    with pytest.raises(DataError, match="held_out is 6, dataset squares has 6 usable clips: use at most 5"):
        data_of(workspace, held_out=6)


def test_a_dataset_without_a_usable_clip_says_why(workspace: Workspace, dataset: Dataset) -> None:
    settings = TrainSettings(dataset="squares")
    with pytest.raises(DataError, match="too short"):
        load_data(workspace, settings, Shape(frames=49, height=16, width=16, fps=8))


def test_every_clip_comes_once_before_any_comes_again(workspace: Workspace, dataset: Dataset) -> None:
    settings = TrainSettings(dataset="squares", batch_size=3, held_out=0)
    batches = Batches(data_of(workspace, held_out=0), settings)
    epochs = [[item.sha256 for number in (n, n + 1) for item in batches.batch(number)] for n in (0, 2, 4)]
    assert all(len(set(epoch)) == 6 for epoch in epochs)
    assert epochs[0] != epochs[1]


@pytest.mark.parametrize("share", [0.25, 0.5, 0.9])
def test_known_clips_have_their_share_in_every_stretch(workspace: Workspace, dataset: Dataset, share: float) -> None:
    values = {"regularization_dataset": "squares", "regularization_share": share, "held_out": 0}
    settings = TrainSettings(dataset="squares", batch_size=4, **values)  # type: ignore[arg-type]
    batches = Batches(data_of(workspace, **values), settings)
    roles = Counter(item.role for number in range(100) for item in batches.batch(number))
    assert roles["known"] == round(400 * share)
    assert all(
        abs(sum(item.role == "known" for item in batches.batch(number)) - 4 * share) < 1 for number in range(100)
    )


def test_a_batch_is_a_pure_function_of_its_number(workspace: Workspace, dataset: Dataset) -> None:
    settings = TrainSettings(dataset="squares", batch_size=2)
    data = data_of(workspace)
    assert Batches(data, settings).batch(7) == Batches(data, settings).batch(7)


def test_seeds_differ_by_purpose_and_place() -> None:
    seeds = {seed_for(1, purpose, step, micro) for purpose in "ab" for step in range(9) for micro in range(9)}
    assert len(seeds) == 162
    assert seed_for(1, "a", 2) == seed_for(1, "a", 2)
    assert all(0 <= seed < 2**63 for seed in seeds)
