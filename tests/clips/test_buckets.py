"""Which buckets a model has, which clip goes where, and which buckets lose least."""

from __future__ import annotations

import random
from itertools import combinations

import pytest

from tests.counting import calls
from workbench.clips.buckets import Bucket, assign, buckets_for, choose
from workbench.clips.records import Clip
from workbench.families import default_model, find_model, models
from workbench.families.model import Model


def clip(frames: int = 100, fps: float = 24, width: int = 720, height: int = 480) -> Clip:
    return Clip(file_name="clips/a.mp4", frames=frames, fps=fps, width=width, height=height)


def any_clips(count: int, seed: int) -> list[Clip]:
    chance = random.Random(seed)
    return [
        clip(
            chance.choice([1, chance.randint(2, 600)]),
            chance.choice([8, 16, 23.976, 25, 30, 60]),
            2 * chance.randint(40, 1920),
            2 * chance.randint(40, 1100),
        )
        for _ in range(count)
    ]


@pytest.fixture
def model() -> Model:
    return find_model(default_model())[1]


@pytest.mark.parametrize("model", models(), ids=lambda model: model.id)
def test_every_bucket_is_legal_and_the_models_own_is_there(model: Model) -> None:
    found = buckets_for(model)
    assert Bucket(model.frames, model.height, model.width) in found
    assert {bucket.frames for bucket in found} == {1, *model.frame_rule.legal()}
    assert model.fixed_size or any(bucket.width == bucket.height for bucket in found)
    for bucket in found:
        model.check_shape(model.frames if bucket.for_images else bucket.frames, bucket.height, bucket.width)
        area = bucket.height * bucket.width / (model.height * model.width)
        assert area < 1.15
        assert area > 0.85 or model.largest, "smaller only where the model's limit asks for it"


def test_a_clip_goes_where_it_keeps_most_and_the_table_says_what_it_loses() -> None:
    wide, square, long = Bucket(9, 480, 720), Bucket(9, 592, 592), Bucket(49, 480, 720)
    image = Bucket(1, 480, 720)
    clips = [clip(48, 24), clip(48, 24, 600, 600), clip(240, 24, 1920, 1080), clip(1, 0), clip(6, 24), clip(0)]
    table = assign(clips, [wide, square, long, image], 8)
    assert [place.bucket for place in table.assignments] == [wide, square, long, image, None, None]
    assert table.clips_per_bucket == {image: 1, wide: 1, square: 1, long: 1}
    third = table.assignments[2]
    assert (third.time, third.picture, third.enlargement) == pytest.approx((0.6125, 0.84375, 4 / 9))
    assert third.kept == pytest.approx(0.6125 * 0.84375)
    for place in table.assignments[:4]:
        plan = place.plan
        assert plan is not None
        assert plan.dropped is None
        assert len(plan.indices) == place.bucket.frames  # type: ignore[union-attr]
        assert (plan.time_share, plan.picture_share, plan.enlargement) == (place.time, place.picture, place.enlargement)
    assert [place.dropped for place in table.dropped] == [
        "too short: 0.25 s give 3 frames at 8 fps, 9 are needed: lower frames to 3 or less",
        "its length or size is not known: import it again",
    ]
    assert table.loss == pytest.approx(1 - sum(place.kept for place in table.assignments) / 6)


def test_what_has_no_bucket_says_which_is_missing(model: Model) -> None:
    (image,) = assign([clip(1)], [Bucket(9, 40, 40)], 8).dropped
    assert image.dropped == "an image: no bucket takes 1 frame: add one"
    (video,) = assign([clip(9, 8)], [Bucket(1, 40, 40)], 8).dropped
    assert video.dropped == "no bucket takes more than 1 frame: add one"
    (short,) = assign([clip(3, 8)], buckets_for(model), 8).dropped
    assert short.dropped == "too short: 0.38 s give 3 frames at 8 fps, 9 are needed: give a longer clip"


def test_a_clip_is_left_out_only_where_no_bucket_fits(model: Model) -> None:
    clips = any_clips(200, 0)
    for place in assign(clips, buckets_for(model), model.fps).assignments:
        if place.bucket is None:
            assert place.dropped
            assert place.dropped.startswith("too short")
        else:
            alone = [assign([place.clip], [bucket], model.fps).assignments[0] for bucket in buckets_for(model)]
            best = max(other.kept for other in alone)
            assert place.kept == pytest.approx(best)


@pytest.mark.parametrize("seed", range(3))
def test_the_chosen_buckets_lose_no_more_than_the_best_of_all_sets(model: Model, seed: int) -> None:
    clips = any_clips(12, seed)
    chosen = choose(clips, model, most=3)
    offered = buckets_for(model)
    least = min(assign(clips, some, model.fps).loss for some in combinations(offered, 3))
    assert len(chosen) <= 3
    assert assign(clips, chosen, model.fps).loss == pytest.approx(least, abs=0.005)


def test_no_bucket_is_chosen_for_nothing(model: Model) -> None:
    assert choose([clip(9, 8, 40, 40)] * 5, model, most=4) == (Bucket(9, 40, 40),)
    assert choose([], model, most=4) == ()
    assert choose([clip(2, 8)], model, most=4) == ()


def test_ten_times_the_clips_are_ten_times_the_work_at_most(model: Model) -> None:
    few, many = any_clips(1_000, 0), any_clips(10_000, 0)
    small, large = (
        calls(lambda clips=clips: assign(clips, choose(clips, model, most=4), model.fps)) for clips in (few, many)
    )
    assert large < 12 * small
