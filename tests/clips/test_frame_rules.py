"""What a family's rules of frames and sizes make of clips: 4k+1 and multiples of 16 or 32 (Wan), 8k+1 and 32 (LTX)."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from workbench.clips.buckets import assign, buckets_for, parse_bucket
from workbench.clips.frame_plan import plan, shape_for
from workbench.clips.records import Clip
from workbench.dataset_builder import Dataset
from workbench.dataset_builder.checks.dataset_check import check_plans
from workbench.errors import ConfigError
from workbench.families import families, find_model
from workbench.families.model import Model
from workbench.workspace import Workspace

# Variant of a miniature: frames between two legal counts, multiple of sizes, its own frames and rate.
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


def clip(frames: int, fps: float, side: int = 128) -> Clip:
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
    longer = plan(clip(frames + 2, fps), shape)
    assert longer.sentence.startswith(f"frames 1 to {frames}: {frames} at {fps} fps ")
    assert longer.use == f"{frames / (frames + 2):.0%} of its time, all of its picture"
    # Too short by two frames: the longest legal count below is the remedy, not the frames that there are.
    (finding,) = check_plans([clip(frames - 2, fps)], shape, model.title)
    legal = frames - between
    assert f"give {frames - 2} frames at {fps} fps, {frames} are needed: lower frames to {legal}" in finding.sentence
    assert shape_for(model, frames=legal).frames == legal


@pytest.mark.parametrize("name", RULES)
def test_buckets_have_legal_lengths_and_take_the_longest_that_a_clip_fills(toy: Any, name: str) -> None:
    model, (between, multiple, frames, fps) = toy(name), RULES[name]
    buckets = buckets_for(model, longest=frames + between)
    assert {bucket.frames for bucket in buckets} == {1, *range(1 + between, frames + between + 1, between)}
    assert all(bucket.height % multiple == bucket.width % multiple == 0 for bucket in buckets)
    (found,) = assign([clip(frames + between - 1, fps)], buckets, fps).assignments
    assert found.bucket is not None
    assert found.bucket.frames == frames


@pytest.mark.parametrize(
    ("name", "legal"), [("wan2.1-t2v-1.3b", 77), ("wan2.2-ti2v-5b", 117), ("ltx-video-2b-0.9.5", 113)]
)
def test_the_published_models_say_the_same(name: str, legal: int) -> None:
    model = find_model(name)[1]
    short = plan(clip(model.frames - 1, model.fps, 1280), shape_for(model))
    assert short.dropped is not None
    assert short.dropped.endswith(f"{model.frames} are needed: lower frames to {legal}")


def test_the_plan_of_a_dataset_follows_the_model(workspace: Workspace, dataset: Dataset, toy: Any) -> None:
    """The plans, buckets and findings that the page and the shell show."""
    for name in ("wan text", "ltx text"):
        model = toy(name)
        table = dataset.plan_table(model.source)
        assert (table.shape.frames, table.shape.fps) == (model.frames, model.fps)
        used = [one for one in table.plans if not one.dropped]
        assert {len(one.indices) for one in used} <= {model.frames}
        left_out = [one for one in table.plans if one.dropped]
        findings = list(check_plans(dataset.clips, table.shape, model.title))
        assert len([one for one in findings if one.kind == "left_out"]) == len(left_out)
        legal = {1, *model.frame_rule.legal()}
        assert {bucket.frames for bucket in table.buckets.buckets} <= legal
