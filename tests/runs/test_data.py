"""Which clips a run trains on, and which are in which batch."""

from __future__ import annotations

import shutil
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from workbench.clips.buckets import Bucket
from workbench.clips.frame_plan import plan
from workbench.clips.records import Clip, read_clips, write_clips
from workbench.dataset_builder import Dataset
from workbench.display.quantities import counted
from workbench.errors import ConfigError, DataError
from workbench.fit.warnings import run_warnings
from workbench.runs.data import Batches, Role, RunClip, TrainingData, load_data, parse_source, seed_for
from workbench.runs.settings import TrainSettings
from workbench.workspace import Workspace


def data_of(workspace: Workspace, **values: object) -> TrainingData:
    """The six clips of 64x64, 17 frames, for the built-in model of 40x40, 9 frames."""
    return load_data(workspace, TrainSettings().changed(dataset="squares", **values))


def test_held_out_clips_are_never_trained_on_and_do_not_depend_on_the_order(
    workspace: Workspace, dataset: Dataset
) -> None:
    first = data_of(workspace, held_out=2)
    assert len(first.held_out) == 2
    assert not {item.sha256 for item in first.held_out} & {item.sha256 for item in first.train}
    write_clips(dataset.folder, read_clips(dataset.folder)[::-1])
    assert {item.sha256 for item in data_of(workspace, held_out=2).held_out} == {i.sha256 for i in first.held_out}


def test_counting_without_hashing_holds_out_the_same_clips(workspace: Workspace, dataset: Dataset) -> None:
    settings = TrainSettings().changed(dataset="squares", held_out=2)
    hashed, counted_only = load_data(workspace, settings), load_data(workspace, settings, hashed=False)
    assert [item.path for item in counted_only.held_out] == [item.path for item in hashed.held_out]
    assert [item.path for item in counted_only.train] == [item.path for item in hashed.train]


def test_holding_out_everything_is_refused_with_the_number_that_fits(workspace: Workspace, dataset: Dataset) -> None:
    with pytest.raises(DataError, match="held_out is 6, but dataset squares has 6 usable clips: use at most 5"):
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
    said = f"No clip is held out of {counted(count, 'clip')}: train on 3 or more to measure the held-out loss."
    assert said in data.dropped
    assert said in run_warnings(workspace, TrainSettings(dataset="squares"))
    assert not data_of(workspace, held_out=0).dropped
    with pytest.raises(DataError, match="held_out is 3"):
        data_of(workspace, held_out=3)


# ---- batches


LARGE, SMALL, STILL = Bucket(9, 40, 40), Bucket(9, 24, 24), Bucket(1, 40, 40)


def items(bucket: Bucket, count: int, role: Role = "train", repeats: int = 1) -> list[RunClip]:
    clip = Clip(file_name="clips/a.mp4", frames=bucket.frames, fps=8, width=64, height=64)
    planned = plan(clip, bucket.shape(8))
    return [
        RunClip(Path(f"{number}.mp4"), f"{bucket} {role} {number}", "", planned, role, bucket, repeats)
        for number in range(count)
    ]


def batches(train: list[RunClip], known: list[RunClip] | None = None, **values: object) -> Batches:
    buckets = tuple(dict.fromkeys(item.bucket for item in train))
    data = TrainingData(tuple(train), tuple(known or ()), (), buckets, ())
    return Batches(data, TrainSettings().changed(dataset="x", **values))


def test_every_clip_comes_once_before_any_comes_again() -> None:
    found = batches(items(LARGE, 6), batch_size=3)
    passes = [[item.sha256 for number in (n, n + 1) for item in found.batch(number)] for n in (0, 2, 4)]
    assert all(len(set(one)) == 6 for one in passes)
    assert passes[0] != passes[1]
    found = batches(items(LARGE, 5), batch_size=3)  # what is left over begins the next batch
    order = [item.sha256 for number in range(5) for item in found.batch(number)]
    assert all(len(set(order[start : start + 5])) == 5 for start in (0, 5, 10))


def test_b37_batches_have_one_shape_and_shapes_are_mixed_in_every_pass() -> None:
    found = batches([*items(LARGE, 12), *items(SMALL, 6), *items(STILL, 3)], batch_size=2)
    shapes = []
    for number in range(210):
        together = {item.bucket for item in found.batch(number)}
        assert len(together) == 1
        shapes += together
    assert Counter(shapes) == {LARGE: 120, SMALL: 60, STILL: 30}
    firsts = {tuple(shapes[start : start + 21]) for start in range(0, 210, 21)}
    assert len(firsts) > 5  # another order in every pass
    seen = Counter(item.sha256 for number in range(210) for item in found.batch(number))
    assert set(seen.values()) == {20}  # nobody is lost, whatever is left over at the end of a pass


def test_a_shape_with_fewer_clips_than_a_batch_gets_its_due_all_the_same() -> None:
    found = batches([*items(LARGE, 8), *items(STILL, 1)], batch_size=4)
    seen = Counter(item.bucket for number in range(90) for item in found.batch(number))
    assert abs(seen[STILL] / 360 - 1 / 9) < 0.01


def test_pictures_come_as_often_as_their_share_says_and_clips_as_often_as_before() -> None:
    every = [*items(LARGE, 8), *items(SMALL, 4), *items(STILL, 24)]
    found = batches(every, batch_size=2, picture_share=0.25)
    assert (found.pictures, found.per_pass) == (0.25, 8)
    seen = Counter(item.sha256 for number in range(80) for item in found.batch(number))
    assert {seen[item.sha256] for item in every[:12]} == {10}
    assert sum(seen[item.sha256] for item in every[12:]) == 40
    for alone in (items(LARGE, 4), items(STILL, 4)):  # nothing to share with
        plain, same = batches(alone), batches(alone, picture_share=0.25)
        assert [plain.batch(number) for number in range(9)] == [same.batch(number) for number in range(9)]


def grouped(bucket: Bucket, name: str, share: float, count: int) -> list[RunClip]:
    return [replace(item, sha256=f"{item.sha256} {name}", group=name, share=share) for item in items(bucket, count)]


def test_datasets_are_sampled_by_their_shares_whatever_their_size() -> None:
    data = [*grouped(LARGE, "small", 1.0, 2), *grouped(LARGE, "large", 2.5, 20), *grouped(LARGE, "rare", 0.5, 3)]
    found = batches(data, batch_size=2)
    assert found.per_pass == 12.5
    seen = Counter(item.group for number in range(200) for item in found.batch(number))
    assert seen == {"small": 100, "large": 250, "rare": 50}
    for start in range(0, 200, 2):  # in every stretch, too: of four clips, one of small and two or three of large
        stretch = Counter(item.group for number in (start, start + 1) for item in found.batch(number))
        assert stretch["small"] == 1
        assert stretch["large"] in (2, 3)
    each = Counter(item.sha256 for number in range(200) for item in found.batch(number))
    assert {each[name] for name in each if name.endswith("small")} == {50}
    assert {each[name] for name in each if name.endswith("large")} <= {12, 13}


def test_shares_hold_over_all_shapes_together() -> None:
    data = [
        *grouped(LARGE, "one", 1.0, 6),
        *grouped(SMALL, "one", 1.0, 2),
        *grouped(LARGE, "two", 3.0, 4),
        *grouped(STILL, "two", 3.0, 4),
    ]
    found = batches(data, items(LARGE, 3, "known"), batch_size=2, regularization_share=0.5)
    seen = Counter((item.group, item.role) for number in range(1000) for item in found.batch(number))
    assert seen["two", "train"] == pytest.approx(3 * seen["one", "train"], rel=0.02)
    shapes = Counter((item.group, item.bucket) for number in range(1000) for item in found.batch(number))
    assert shapes["two", LARGE] == pytest.approx(shapes["two", STILL], rel=0.02)
    assert shapes["one", LARGE] == pytest.approx(3 * shapes["one", SMALL], rel=0.05)


@pytest.mark.parametrize("share", [0.25, 0.5, 0.9])
def test_known_clips_have_their_share_in_every_stretch(share: float) -> None:
    found = batches(items(LARGE, 6), items(LARGE, 6, "known"), batch_size=4, regularization_share=share)
    roles = [Counter(item.role for item in found.batch(number)) for number in range(100)]
    assert sum(counts["known"] for counts in roles) == round(400 * share)
    assert all(abs(counts["known"] - 4 * share) < 1 for counts in roles)
