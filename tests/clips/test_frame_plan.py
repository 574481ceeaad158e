"""Which frames and which part of the picture a model sees."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from functools import cache
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from workbench.clips.buckets import Bucket, assign, buckets_for, choose, parse_bucket
from workbench.clips.frame_plan import Shape, Taking, available_frames, plan, shape_for, take, windows
from workbench.clips.records import Clip
from workbench.dataset_builder.checks.dataset_check import check_plans
from workbench.errors import ConfigError
from workbench.families import default_model, families, find_model, models
from workbench.families.model import Model


def clip(frames: int = 100, fps: float = 24, width: int = 720, height: int = 480) -> Clip:
    return Clip(file_name="clips/a.mp4", frames=frames, fps=fps, width=width, height=height)


def test_frames_come_from_the_middle_at_the_models_rate() -> None:
    found = plan(clip(), Shape(9, 480, 720, 8))
    assert found.dropped is None
    assert found.indices == tuple(range(37, 62, 3))
    assert found.sentence == "frames 37 to 61: 9 at 8 fps (1.1 s), 720x480"


@pytest.mark.parametrize(("width", "height"), [(1920, 1080), (1080, 1920), (100, 37), (720, 480), (721, 479)])
def test_picture_covers_the_wanted_size_and_is_cut_from_its_center(width: int, height: int) -> None:
    found = plan(clip(width=width, height=height), Shape(9, 480, 720, 8))
    top, left, cut_height, cut_width = found.crop
    assert (cut_height, cut_width) == (480, 720)
    assert found.resize[0] >= 480
    assert found.resize[1] >= 720
    assert abs(2 * top + 480 - found.resize[0]) <= 1
    assert abs(2 * left + 720 - found.resize[1]) <= 1
    assert found.resize[0] / height == pytest.approx(found.resize[1] / width, abs=1.01 / min(width, height))


@pytest.mark.parametrize(("frames", "fps"), [(2, 8), (8, 8), (24, 24), (9, 30), (3, 2)])
def test_indices_are_always_inside_the_clip_and_in_order(frames: int, fps: float) -> None:
    for wanted in (2, 5, 9):
        found = plan(clip(frames, fps), Shape(wanted, 64, 64, 8))
        assert found.dropped or len(found.indices) == wanted
        assert list(found.indices) == sorted(found.indices)
        assert all(0 <= index < frames for index in found.indices)


def test_windows_share_no_frame_and_fill_the_clip_evenly() -> None:
    chance = random.Random(0)
    for _ in range(300):
        long = clip(chance.randint(2, 400), chance.choice([4, 8, 12.5, 23.976, 24, 25, 30, 60]))
        shape = Shape(chance.choice([5, 9, 17, 49]), 64, 64, chance.choice([8, 16, 24]))
        found = windows(long, shape)
        if found[0].dropped:
            assert found == [plan(long, shape)]
            continue
        assert all(len(window.indices) == shape.frames for window in found)
        for left, right in zip(found, found[1:], strict=False):
            assert left.indices[-1] < right.indices[0]
        ends = [0, *(i for w in found for i in (w.indices[0], w.indices[-1] + 1)), long.frames]
        gaps = [after - before for before, after in zip(ends[::2], ends[1::2], strict=True)]
        assert len(found) == 1 or max(gaps) - min(gaps) <= 1
        length = found[0].indices[-1] - found[0].indices[0] + 1
        assert sum(gaps) < length or len(found) == 1, "another one would have fitted"


def test_an_image_is_for_shapes_of_one_frame() -> None:
    image = clip(1, 0, 320, 240)
    found = plan(image, Shape(1, 480, 720, 8))
    assert (found.dropped, found.indices, found.time_share) == (None, (0,), 1.0)
    assert found.sentence == "an image, 720x480, cut from 720x540"
    assert found.use == "89% of the frame"
    assert plan(image, Shape(49, 480, 720, 8)).sentence == (
        "left out: an image: it has 1 frame, but 49 are needed: train it in a bucket of 1 frame"
    )


def test_a_plan_says_how_much_of_the_clip_it_uses() -> None:
    found = plan(clip(240, 24, 1920, 1080), Shape(49, 480, 720, 8))
    assert (found.time_share, found.picture_share) == pytest.approx((6.125 / 10, 1.5 / (16 / 9)))
    assert found.use == "61% of the length, 84% of the frame"
    assert found.warnings == ()
    assert plan(clip(49, 8), Shape(49, 480, 720, 8)).use == "full length, full frame"


def test_what_is_used_badly_is_said() -> None:
    small = plan(clip(width=160, height=160), Shape(9, 480, 720, 8))
    assert small.dropped is None
    assert small.warnings == (
        "too small: 160x160 is enlarged 4.5 times to 720x480: use a larger clip or a smaller size",
    )
    assert "frames repeat: the clip has 6 fps, training uses 8" in plan(clip(9, 6), Shape(9, 480, 720, 8)).warnings[0]


def test_too_short_says_what_there_is_and_what_to_do() -> None:
    found = plan(clip(24, 24), Shape(49, 480, 720, 8))
    assert found.indices == ()
    assert found.sentence == (
        "left out: too short: 1.00 s give 9 frames at 8 fps, but 49 are needed: lower frames to 9 or less"
    )
    assert plan(clip(4, 24), Shape(49, 480, 720, 8)).sentence.endswith("lower frames to 2 or less")


def test_the_remedies_of_too_short_work_and_are_legal_for_the_model() -> None:
    _, model = find_model(default_model())
    chance = random.Random(0)
    seen = set()
    for _ in range(300):
        short = clip(chance.randint(2, 60), chance.choice([8, 12.5, 24, 30, 60]))
        shape = shape_for(model, frames=17)
        reason = plan(short, shape).dropped
        if reason is None:
            continue
        remedies = reason.rpartition(": ")[2]
        seen.add(remedies)
        for remedy in remedies.split(" or "):
            if remedy.startswith("lower frames to "):
                assert plan(short, shape_for(model, frames=int(remedy.split()[-1]))).dropped is None
            elif remedy.startswith("raise the frame rate to "):
                assert plan(short, shape_for(model, frames=17, fps=int(remedy.split()[-1]))).dropped is None
            else:
                assert remedy == "use a longer clip"
                assert available_frames(short, model.fps) < min(model.frame_rule.legal())
    assert len(seen) > 3


def test_rules_of_taking_frames() -> None:
    shape, long = Shape(9, 64, 64, 8), clip(100, 24)
    assert take(long, shape, Taking()) == [plan(long, shape)]
    assert take(long, shape, Taking("start"))[0].indices == tuple(range(0, 27, 3))
    assert take(long, shape, Taking("start", skip_start=10))[0].indices == tuple(range(10, 37, 3))
    spread = take(long, shape, Taking("spread", skip_start=2, skip_end=5))[0].indices
    assert (spread[0], spread[-1]) == (2, 94)
    assert max(b - a for a, b in zip(spread, spread[1:], strict=False)) <= 12
    assert take(long, shape, Taking("windows")) == windows(long, shape)
    skipped = take(clip(9, 8), shape, Taking(skip_start=6, skip_end=6))[0]
    assert "all of its 9 frames are skipped" in skipped.sentence
    assert take(clip(9, 8), shape, Taking(skip_end=1))[0].dropped


def sat(count: int, actual_fps: float, fps: float, max_num_frames: int, skip: int) -> list[int]:
    """SFTDataset.__getitem__ of SAT's data_video.py at commit e519ece, on frame numbers instead of frames."""
    frames = np.arange(count)
    if count / actual_fps * fps > max_num_frames:
        start = int(skip)
        end = int(start + max_num_frames / fps * actual_fps)
        safe = min(int(start + max_num_frames / fps * actual_fps), int(count))
        indices = np.arange(start, end, (end - start) // max_num_frames).astype(int)
        found = frames[start:safe][indices - start]
    elif count > max_num_frames:
        start, end = int(skip), int(count - skip)
        indices = np.arange(start, end, max((end - start) // max_num_frames, 1)).astype(int)
        found = frames[start:end][indices - start]
    else:
        start, end = int(skip), int(count - skip)
        n = end - start
        found = frames[start : start + (n - 3 if n % 4 == 0 else n - n % 4 + 1)]
    padding = [found[-1]] * (max_num_frames - len(found))
    return [int(one) for one in [*found[:max_num_frames], *padding]]


def test_the_rule_sat_takes_the_frames_that_sat_takes() -> None:
    equal, rates = 0, (8, 12.5, 15, 16, 23.976, 24, 25, 29.97, 30, 50, 59.94, 60)
    for fps, wanted, count, skip in itertools.product(rates, ((8, 49), (16, 81), (8, 9)), range(6, 700, 7), (0, 3)):
        shape = Shape(wanted[1], 64, 64, wanted[0])
        try:
            theirs = sat(count, fps, wanted[0], wanted[1], skip)
        except (IndexError, ZeroDivisionError):  # SAT raises here
            continue
        (ours,) = take(clip(count, fps), shape, Taking("sat", skip, skip))
        if skip and count <= 2 * skip:
            assert ours.dropped
            continue
        assert (list(ours.indices), ours.dropped) == (theirs, None), (fps, wanted, count, skip)
        equal += 1
    assert equal > 6000


def test_sats_rule_where_sat_itself_ends_in_an_error() -> None:
    slow = take(clip(100, 6), Shape(49, 64, 64, 8), Taking("sat"))[0].indices
    assert slow == (*range(36), *[35] * 13)
    cut = take(clip(148, 24), Shape(49, 64, 64, 8), Taking("sat", 30))[0].indices
    assert cut == (*range(30, 148, 3), *[147] * 9)


def test_crops() -> None:
    wide, shape = clip(width=128, height=64).changed(sha256="a"), Shape(9, 64, 64, 8)
    assert take(wide, shape, Taking(crop="stretch"))[0].resize == (64, 64)
    places = {take(wide.changed(sha256=str(n)), shape, Taking(crop="random"))[0].crop[1] for n in range(50)}
    assert len(places) > 20
    assert min(places) >= 0
    assert max(places) <= 64
    assert take(wide, shape, Taking(crop="random")) == take(wide, shape, Taking(crop="random"))
    assert take(wide, shape, Taking(crop="random")) != take(wide, shape, Taking(crop="random", seed=1))


# ---- buckets


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
        assert plan.dropped is None
        assert len(plan.indices) == place.bucket.frames  # type: ignore[union-attr]
        assert (plan.time_share, plan.picture_share, plan.enlargement) == (place.time, place.picture, place.enlargement)
    assert [place.dropped for place in table.dropped] == [
        "too short: 0.25 s give 3 frames at 8 fps, but 9 are needed: lower frames to 3 or less",
        "its length or size is not known: import it again",
    ]
    assert table.loss == pytest.approx(1 - sum(place.kept for place in table.assignments) / 6)


def test_what_has_no_bucket_says_which_is_missing(model: Model) -> None:
    (image,) = assign([clip(1)], [Bucket(9, 40, 40)], 8).dropped
    assert image.dropped == "an image: no bucket takes 1 frame: add one"
    (video,) = assign([clip(9, 8)], [Bucket(1, 40, 40)], 8).dropped
    assert video.dropped == "no bucket takes more than 1 frame: add one"
    (short,) = assign([clip(3, 8)], buckets_for(model), 8).dropped
    assert short.dropped == "too short: 0.38 s give 3 frames at 8 fps, but 9 are needed: use a longer clip"


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


# ---- the model's rules


# Miniature -> step between legal frame counts, multiple of its sizes, its default frames and rate.
RULES = {
    "wan text": (4, 16, 9, 16),
    "wan 5b-image": (4, 32, 9, 24),
    "ltx text": (8, 32, 17, 25),
    "ltx image-0.9.5": (8, 32, 17, 25),
}


@pytest.fixture(scope="module")
def toy(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Model]:
    @cache
    def made(name: str) -> Model:
        family, variant = name.split()
        folder: Path = tmp_path_factory.mktemp("toys") / variant
        return next(one for one in families() if one.name == family).toy(folder, variant)

    return made


def clip_of(frames: int, fps: float, side: int = 128) -> Clip:
    return Clip(file_name="clips/a.mp4", frames=frames, fps=fps, width=side, height=side)


@pytest.mark.parametrize("name", RULES)
def test_illegal_shapes_name_the_nearest_legal_ones(toy: Any, name: str) -> None:
    model, (between, multiple, frames, fps) = toy(name), RULES[name]
    assert (model.frames, model.fps, model.size_multiple, model.frame_rule.step) == (frames, fps, multiple, between)
    for wrong in (frames + 1, frames + between - 1):
        with pytest.raises(
            ConfigError, match=rf"frames is {wrong}, .* needs .*{between}k\+1.*: use {frames} or {frames + between}"
        ):
            shape_for(model, frames=wrong)
    with pytest.raises(
        ConfigError, match=f"height is {2 * multiple + 1}, .* a multiple of {multiple}: use {2 * multiple}"
    ):
        shape_for(model, height=2 * multiple + 1)
    with pytest.raises(ConfigError, match=f"buckets has {frames + 1}x64x64: .*use {frames} or {frames + between}"):
        parse_bucket(f"{frames + 1}x64x64", model)
    assert str(parse_bucket(f"{frames + between}x64x96", model))


@pytest.mark.parametrize("name", RULES)
def test_a_clip_of_unfit_length_says_what_is_used_of_it(toy: Any, name: str) -> None:
    model, (between, _, frames, fps) = toy(name), RULES[name]
    shape = shape_for(model)
    longer = plan(clip_of(frames + 2, fps), shape)
    assert longer.sentence.startswith(f"frames 1 to {frames}: {frames} at {fps} fps ")
    assert longer.use == f"{frames / (frames + 2):.0%} of the length, full frame"
    # Two frames too short: the remedy is the next lower legal count, not the number of frames in the clip.
    (finding,) = check_plans([clip_of(frames - 2, fps)], shape, model.title)
    legal = frames - between
    assert (
        f"give {frames - 2} frames at {fps} fps, but {frames} are needed: lower frames to {legal}" in finding.sentence
    )
    assert shape_for(model, frames=legal).frames == legal
