"""Which clips are in which batch: everyone gets their turn, nothing is remembered."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from workbench.clips.buckets import Bucket
from workbench.clips.frame_plan import plan
from workbench.clips.records import Clip
from workbench.runs.data import Batches, Role, RunClip, TrainingData
from workbench.runs.settings import TrainSettings

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


def test_repeats_come_as_often_as_they_say() -> None:
    found = batches([*items(LARGE, 2, repeats=3), *items(SMALL, 4)], batch_size=2)
    seen = Counter(item.sha256 for number in range(50) for item in found.batch(number))
    assert {seen[f"{LARGE} train {number}"] for number in range(2)} == {30}
    assert {seen[f"{SMALL} train {number}"] for number in range(4)} == {10}


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


def test_the_share_of_pictures_is_that_of_the_batches_that_hold_them() -> None:
    assert batches(items(LARGE, 4), batch_size=2).pictures == 0
    assert batches(items(STILL, 4), batch_size=2).pictures == 1
    mixed = batches([*items(LARGE, 4), *items(STILL, 12)], items(LARGE, 4, "known"), regularization_share=0.5)
    assert mixed.pictures == 0.6  # of 8 clips, half of them known, and 12 pictures
    assert sum(mixed.batch(number)[0].bucket == STILL for number in range(100)) == 60


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


def test_a_batch_of_weighted_datasets_is_a_function_of_its_number() -> None:
    data = [*grouped(LARGE, "one", 1.0, 5), *grouped(SMALL, "two", 0.3, 7), *grouped(LARGE, "two", 0.3, 2)]
    forwards = [batches(data, batch_size=3).batch(number) for number in range(60)]
    found = batches(data, batch_size=3)
    backwards = {number: found.batch(number) for number in reversed(range(60))}
    assert forwards == [backwards[number] for number in range(60)]
    assert forwards != [batches(data, batch_size=3, seed=1).batch(number) for number in range(60)]


@pytest.mark.parametrize("share", [0.25, 0.5, 0.9])
def test_known_clips_have_their_share_in_every_stretch(share: float) -> None:
    found = batches(items(LARGE, 6), items(LARGE, 6, "known"), batch_size=4, regularization_share=share)
    roles = [Counter(item.role for item in found.batch(number)) for number in range(100)]
    assert sum(counts["known"] for counts in roles) == round(400 * share)
    assert all(abs(counts["known"] - 4 * share) < 1 for counts in roles)


def test_the_last_batches_of_a_long_run_are_found_at_once() -> None:
    found = batches([*items(LARGE, 500), *items(SMALL, 300)])
    assert len(found.batch(999_999)) == 1
