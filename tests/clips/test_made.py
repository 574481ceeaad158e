"""What is made of a clip has its frames and size, and is what its name says."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.drawing import draw
from workbench.clips import made, media
from workbench.errors import ConfigError, DataError

SIZE, FRAMES, FPS = (48, 64), 5, 8.0


@pytest.fixture(scope="module")
def clip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("made") / "clip.mp4"
    media.encode(draw(FRAMES, SIZE[::-1], "red"), path, FPS)
    return path


def of(clip: Path, target: Path, maker: made.Maker, kind: str = "", **more: object) -> np.ndarray:
    path = made.make(maker, kind, clip, target / maker, fps=FPS, **more)  # type: ignore[arg-type]
    if path.suffix == ".png":
        return np.asarray(Image.open(path))[None]
    about = media.probe(path)
    assert about.fps == FPS
    return media.read_frames(path, range(about.frames))


@pytest.mark.parametrize("maker", [one for one in made.MAKERS if not one.endswith("_frame")])
def test_every_video_has_the_frames_and_size_of_its_clip(clip: Path, tmp_path: Path, maker: made.Maker) -> None:
    assert of(clip, tmp_path, maker).shape == (FRAMES, *SIZE, 3)


@pytest.mark.parametrize("maker", ["edges", "gray", "box", "border"])
def test_what_has_no_color_has_none(clip: Path, tmp_path: Path, maker: made.Maker) -> None:
    video = of(clip, tmp_path, maker).astype(int)
    assert np.abs(video - video[..., :1]).max() <= 3


def test_edges_lie_where_the_clip_has_them(clip: Path, tmp_path: Path) -> None:
    video, edges = media.read_frames(clip, range(FRAMES)), of(clip, tmp_path, "edges")[..., 0] > 127
    assert 0.005 < edges.mean() < 0.3
    for picture, found in zip(video.astype(int), edges, strict=True):
        steps = np.zeros(SIZE)
        steps[:, 1:-1] = np.abs(picture[:, 2:] - picture[:, :-2]).sum(-1)
        steps[1:-1] += np.abs(picture[2:] - picture[:-2]).sum(-1)
        assert steps[found].mean() > 5 * steps[~found].mean()
    assert (of(clip, tmp_path, "edges", amount=1000)[..., 0] > 127).sum() <= edges.sum()


def test_a_box_is_a_mask_or_the_clip_with_it_blanked(clip: Path, tmp_path: Path) -> None:
    box = (25.0, 50.0, 50.0, 25.0)
    mask = of(clip, tmp_path, "box", box=box)[..., 0]
    expected = np.zeros(SIZE)
    expected[24:36, 16:48] = 255
    assert np.abs(mask.astype(int) - expected).mean() < 2
    control, video = of(clip, tmp_path, "box", "control", box=box), media.read_frames(clip, range(FRAMES))
    assert np.abs(control[:, 26:34, 18:46].astype(int) - made.BLANK).max() < 8
    assert np.abs(control[:, :20].astype(int) - video[:, :20]).mean() < 3


def test_a_border_is_what_lies_around_the_middle(clip: Path, tmp_path: Path) -> None:
    mask = of(clip, tmp_path, "border", amount=25)[..., 0] > 127
    assert not mask[:, 13:35, 17:47].any()
    assert mask[:, :11].all()
    assert mask[:, :, -14:].all()


def test_a_downsampled_reference_is_small_and_a_control_clip_is_not(clip: Path, tmp_path: Path) -> None:
    assert of(clip, tmp_path, "downsampled", "reference", amount=2).shape == (FRAMES, 24, 32, 3)
    large = of(clip, tmp_path, "downsampled", amount=8)
    detail = [np.abs(np.diff(one.astype(int), axis=2)).max() for one in (large, media.read_frames(clip, range(FRAMES)))]
    assert detail[0] < detail[1]


def test_end_frames_are_pictures(clip: Path, tmp_path: Path) -> None:
    video = media.read_frames(clip, range(FRAMES))
    assert (of(clip, tmp_path, "first_frame")[0] == video[0]).all()
    assert (of(clip, tmp_path, "last_frame")[0] == video[-1]).all()


@pytest.mark.parametrize(
    ("maker", "kind", "amount", "sentence"),
    [
        ("edges", "mask", None, "kind is mask, which edges cannot make: choose control or reference"),
        ("gray", "", 3.0, "amount is 3, but gray takes none"),
        (
            "border",
            "",
            80.0,
            "is 80, but for border it must be 1 to 49: the default is 20",
        ),
    ],
)
def test_what_cannot_be_made_is_a_sentence(
    clip: Path, tmp_path: Path, maker: made.Maker, kind: str, amount: float | None, sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        made.make(maker, kind, clip, tmp_path / "x", fps=FPS, amount=amount)


def test_a_damaged_clip_leaves_nothing_behind(tmp_path: Path) -> None:
    broken = tmp_path / "broken.mp4"
    broken.write_bytes(b"no video")
    with pytest.raises(DataError):
        made.make("gray", "", broken, tmp_path / "out", fps=FPS)
    assert list(tmp_path.iterdir()) == [broken]
