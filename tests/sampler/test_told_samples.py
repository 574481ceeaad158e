"""Samples with a last frame, keyframes, a mask, a control video or continued frames."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from workbench.clips import media
from workbench.errors import ConfigError
from workbench.families.wan import FAMILY
from workbench.jobs.devices import pick_device
from workbench.sampler.generate import Sampler
from workbench.sampler.inputs import conditioning_from, first_frames, inputs_of, kept, portable
from workbench.sampler.samples import localised, settings_of, shareable
from workbench.sampler.settings import SampleSettings
from workbench.workspace import Workspace

SIZE, FRAMES = 32, 9


@pytest.fixture(scope="module")
def toys(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    base = tmp_path_factory.mktemp("told")
    made = ("control", "a14b-image", "image-flf", "5b-image", "text")
    return {variant: FAMILY.toy(base / variant, variant).source for variant in made}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Write pictures and videos of noise, and a mask whose right half is white."""
    folder, draw = tmp_path_factory.mktemp("files"), np.random.default_rng(0)
    for name in ("first", "last", "middle"):
        Image.fromarray(draw.integers(0, 256, (SIZE, SIZE, 3), dtype=np.uint8)).save(folder / f"{name}.png")
    for name in ("video", "other"):
        pixels = np.repeat(draw.integers(0, 256, (FRAMES, 4, 4, 3), dtype=np.uint8), 8, 1).repeat(8, 2)
        media.encode(pixels, folder / f"{name}.mp4", 16)
    mask = np.zeros((FRAMES, SIZE, SIZE, 3), np.uint8)
    mask[:, :, SIZE // 2 :] = 255
    media.encode(mask, folder / "mask.mp4", 16)
    return {path.stem: str(path) for path in folder.iterdir()}


def settings(model: str, **values: Any) -> SampleSettings:
    usual = {"prompt": "a red circle", "negative_prompt": "the video", "steps": 2, "seed": 1, "device": "cpu"}
    return SampleSettings().changed(**{"model": model, **usual, **values})


def test_each_thing_told_changes_the_video_and_is_made_again_alike(
    workspace: Workspace, toys: dict[str, str], files: dict[str, str]
) -> None:
    sampler = Sampler(toys["control"], pick_device("cpu"))
    asked: list[dict[str, Any]] = [
        {},
        {"image": files["first"]},
        {"last_image": files["last"]},
        {"image": files["first"], "last_image": files["last"]},
        {"keyframes": [f"{files['middle']}=4"]},
        {"control": files["video"]},
        {"control": files["other"]},
        {"image": files["first"], "control": files["video"]},
        {"video": files["video"], "mask": files["mask"]},
        {"video": files["video"], "mask": files["mask"], "mask_keeps": "inside"},
        {"continue_from": files["video"], "kept_frames": 5},
        {"continue_from": files["video"], "kept_frames": 5, "tell_frames": True},
        {"continue_to": files["video"], "following_frames": 5},
        {"continue_to": files["video"], "following_frames": 1},
    ]
    made = [sampler.generate(workspace, settings(toys["control"], **one)).frames.tobytes() for one in asked]
    assert len(set(made)) == len(asked)
    assert sampler.generate(workspace, settings(toys["control"], **asked[3])).frames.tobytes() == made[3]


def test_what_is_told_stands_in_its_frames(workspace: Workspace, toys: dict[str, str], files: dict[str, str]) -> None:
    pictures = {name: np.asarray(Image.open(files[name])) for name in ("first", "last", "middle")}
    values = {"image": files["first"], "last_image": files["last"], "keyframes": [f"{files['middle']}=4"]}
    told = conditioning_from(inputs_of(workspace, settings(toys["control"], **values)), None)
    assert told.known == (0, 4, 8)
    assert told.video is not None
    frames = ((told.video[0].permute(1, 2, 3, 0) + 1) * 127.5).round().byte().numpy()
    for frame, name in ((0, "first"), (4, "middle"), (8, "last")):
        assert np.array_equal(frames[frame], pictures[name])
    masked = settings(toys["control"], video=files["video"], mask=files["mask"])
    for keeps, half in (("outside", 0), ("inside", 1)):
        told = conditioning_from(inputs_of(workspace, masked.changed(mask_keeps=keeps)), None)
        assert told.mask is not None
        assert told.mask[0, 0, :, :, half * 16 : half * 16 + 16].all()
        assert told.mask.mean() == 0.5
    over = inputs_of(workspace, settings(toys["control"], continue_from=files["video"], tell_frames=True))
    assert conditioning_from(over, np.zeros((5, SIZE, SIZE, 3), np.uint8)).known == (0, 1, 2, 3, 4)


def test_a_video_leads_up_to_the_first_frames_of_the_one_that_follows(
    workspace: Workspace, toys: dict[str, str], files: dict[str, str]
) -> None:
    asked = settings(toys["control"], continue_to=files["video"], following_frames=5)
    inputs = inputs_of(workspace, asked)
    told = conditioning_from(inputs, None)
    assert asked.conditioning == {"suffix": "continue_to"}
    assert told.known == (4, 5, 6, 7, 8)
    assert told.video is not None
    ours = ((told.video[0, :, 4:].permute(1, 2, 3, 0) + 1) * 127.5).round().byte().numpy()
    theirs = first_frames(Path(files["video"]), 5, inputs.shape.fps, SIZE, SIZE)
    assert np.array_equal(ours, theirs)
    both = inputs_of(workspace, asked.changed(following_frames=1, continue_from=files["other"], tell_frames=True))
    assert conditioning_from(both, np.zeros((5, SIZE, SIZE, 3), np.uint8)).known == (0, 1, 2, 3, 4, 8)
    with pytest.raises(
        ConfigError, match="following_frames is 5 and kept_frames 5, which leaves none of the .* frames to generate"
    ):
        inputs_of(workspace, asked.changed(continue_from=files["other"]))
    with pytest.raises(ConfigError, match="last_image and continue_to are both given"):
        inputs_of(workspace, asked.changed(last_image=files["last"]))


@pytest.mark.parametrize(
    ("variant", "values", "sentence"),
    [
        ("text", {"last_image": "last"}, "last_image is .*, a setting that .* does not have: leave it empty"),
        ("5b-image", {"image": "first", "last_image": "last"}, "last_image is .*, a setting that .* does not have"),
        ("a14b-image", {"image": "first", "control": "video"}, "control is .*, a setting that .* does not have"),
        ("a14b-image", {}, "image is empty"),
        ("image-flf", {"image": "first"}, "image is given alone, .* looks at a first and a last frame together"),
        ("image-flf", {"last_image": "last"}, "last_image is .*, .* looks at a first and a last frame together"),
        ("control", {"mask": "mask"}, "mask is set, but video is empty"),
        ("control", {"mask": "mask", "video": "video", "image": "first"}, "image and mask are both given"),
        ("control", {"video": "video"}, "starts from a first frame"),
        ("control", {"control": "first"}, "control is first.png, which cannot be used"),
        ("control", {"last_image": "video"}, "last_image is video.mp4, which"),
        ("control", {"continue_to": "first"}, "continue_to is first.png, which cannot be used"),
        ("text", {"continue_to": "video"}, "continue_to is .*, a setting that .* does not have"),
    ],
)
def test_what_cannot_be_told_is_refused_with_the_reason(
    workspace: Workspace,
    toys: dict[str, str],
    files: dict[str, str],
    variant: str,
    values: dict[str, str],
    sentence: str,
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        inputs_of(workspace, settings(toys[variant], **{name: files[file] for name, file in values.items()}))


@pytest.mark.parametrize(
    ("lines", "sentence"),
    [
        (["middle.png"], "write FILE=FRAME, counted from 0, as in door.png=16"),
        (["a.png=3", "b.png=3"], "has frame 3 twice"),
    ],
)
def test_a_wrong_keyframe_is_refused(lines: list[str], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        SampleSettings().changed(keyframes=lines)


def test_files_that_are_told_are_kept_and_named_as_all_others(
    workspace: Workspace, toys: dict[str, str], files: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(files["middle"]).parent)
    asked = settings(toys["control"], keyframes=["middle.png=4"], last_image="last.png", control="video.mp4")
    (one,) = kept(workspace, [portable(workspace, asked)])
    for text in (one.keyframes[0].rpartition("=")[0], one.last_image, one.control):
        assert Path(text).is_relative_to(workspace.samples / "inputs")
    shared = shareable(one.model_dump(mode="json"), workspace.root)
    assert not Path(shared["keyframes"][0]).is_absolute()
    assert localised(shared, workspace.root)["keyframes"] == list(one.keyframes)
    record = workspace.root / "one.json"
    record.write_text(SampleSettings().changed(**{**one.model_dump(mode="json")}).model_dump_json())
    assert settings_of(record).keyframes == one.keyframes
