"""Which clips, in which role and shape: pure functions of datasets and settings."""

from __future__ import annotations

import shutil
from collections import Counter

import pytest

from workbench.clips.records import read_clips, write_clips
from workbench.dataset_builder import Dataset
from workbench.display.quantities import counted
from workbench.errors import ConfigError, DataError
from workbench.fit.warnings import run_warnings
from workbench.runs.data import TrainingData, load_data, parse_source, seed_for
from workbench.runs.settings import TrainSettings
from workbench.workspace import Workspace


def data_of(workspace: Workspace, **values: object) -> TrainingData:
    """The six clips of 64x64, 17 frames, for the built-in model of 40x40, 9 frames."""
    return load_data(workspace, TrainSettings().changed(dataset="squares", **values))


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
    write_clips(dataset.folder, [record.changed(frames=8) for record in read_clips(dataset.folder)])
    with pytest.raises(DataError, match="too short"):
        data_of(workspace)


def test_repeats_weights_and_further_datasets(workspace: Workspace, dataset: Dataset) -> None:
    shutil.copytree(dataset.folder, workspace.dataset("more"))
    data = data_of(workspace, more_datasets=["more=3@0.5"], regularization_dataset="more", regularization_weight=2.0)
    assert Counter((item.repeats, item.weight) for item in data.train) == {(1, 1.0): 4, (3, 0.5): 4}
    assert {item.weight for item in data.regularization} == {2.0}
    # The same content in two datasets is held out of both.
    assert not {item.sha256 for item in data.held_out} & {item.sha256 for item in data.train}


@pytest.mark.parametrize("text", ["=3", "cats=0", "cats=x", "cats@", "cats=2@a.b"])
def test_a_share_that_is_none_says_how_to_write_one(text: str) -> None:
    with pytest.raises(ConfigError, match="NAME=REPEATS@WEIGHT"):
        parse_source(text)


def test_shapes_are_chosen_so_that_clips_lose_least_and_the_largest_is_first(
    workspace: Workspace, dataset: Dataset
) -> None:
    records = read_clips(dataset.folder)
    write_clips(dataset.folder, [records[0].changed(frames=1, fps=0.0), *records[1:]])
    one, more = data_of(workspace, held_out=0), data_of(workspace, held_out=0, bucket_limit=3)
    assert [str(bucket) for bucket in one.buckets] == ["9 frames, 40x40"]
    assert len(one.dropped) == 1
    assert "image" in one.dropped[0]
    assert [str(bucket) for bucket in more.buckets] == ["9 frames, 40x40", "image, 40x40"]
    assert (len(more.train), more.dropped) == (6, ())
    given = data_of(workspace, held_out=0, buckets=["1x40x40", "9x40x40", "17x24x24"])
    assert [bucket.frames for bucket in given.buckets] == [17, 9, 1]
    with pytest.raises(ConfigError, match="49x480x720"):
        data_of(workspace, buckets=["9x40"])


def test_sats_rule_takes_short_clips_that_others_leave_out(workspace: Workspace, dataset: Dataset) -> None:
    records = read_clips(dataset.folder)
    write_clips(dataset.folder, [record.changed(frames=7) for record in records[:3]] + records[3:])
    assert len(data_of(workspace, held_out=0).train) == 3
    found = data_of(workspace, held_out=0, frame_sampling="sat").train
    assert len(found) == 6
    assert found[0].plan.indices == (0, 1, 2, 3, 4, 4, 4, 4, 4)  # 4k+1 of 7 frames, the last one repeated


def test_windows_are_items_of_their_own_and_held_out_together(workspace: Workspace, dataset: Dataset) -> None:
    records = read_clips(dataset.folder)
    write_clips(dataset.folder, [record.changed(frames=18) for record in records])
    data = data_of(workspace, frame_sampling="windows", held_out=1)
    assert (len(data.train), len(data.held_out)) == (10, 2)
    assert len({item.sha256 for item in data.held_out}) == 1


def test_seeds_differ_by_purpose_and_place() -> None:
    seeds = {seed_for(1, purpose, step, micro) for purpose in "ab" for step in range(9) for micro in range(9)}
    assert len(seeds) == 162
    assert seed_for(1, "a", 2) == seed_for(1, "a", 2)
    assert all(0 <= seed < 2**63 for seed in seeds)


@pytest.mark.parametrize("count", [1, 2])
def test_a_dataset_of_one_or_two_clips_trains_with_the_defaults(
    workspace: Workspace, dataset: Dataset, count: int
) -> None:
    write_clips(dataset.folder, read_clips(dataset.folder)[:count])
    data = data_of(workspace)
    assert (len(data.train), data.held_out) == (count, ())
    said = f"No clip is held out of {counted(count, 'clip')}: train on 3 or more to measure a held-out loss."
    assert said in data.dropped
    assert said in run_warnings(workspace, TrainSettings(dataset="squares"))
    assert not data_of(workspace, held_out=0).dropped
    with pytest.raises(DataError, match="held_out is 3"):
        data_of(workspace, held_out=3)
