"""Companion files that do not fit their clip are found, reported with their numbers, and fixed in one change."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.dataset_builder import footage
from tests.dataset_builder.footage import FPS, FRAMES, HEIGHT, WIDTH
from tests.drawing import draw
from tests.patience import PATIENCE
from workbench.clips import media
from workbench.clips.records import Clip, file_sha256, read_clips, write_clips
from workbench.dataset_builder import Dataset
from workbench.dataset_builder.checks import pairs
from workbench.dataset_builder.checks.findings import Finding
from workbench.dataset_builder.checks.pairs import FOLLOWS, check_pairs, measure_pair, measure_pairs
from workbench.jobs import State


def box(frames: int = FRAMES, width: int = WIDTH, height: int = HEIGHT) -> np.ndarray:
    video = np.zeros((frames, height, width, 3), np.uint8)
    video[:, 20:60, 20:60] = 255
    return video


def edges(video: np.ndarray) -> np.ndarray:
    """The picture's steps, white on black."""
    gray = video.astype(np.float32).mean(axis=3)
    steps = np.abs(np.diff(gray, axis=1, prepend=gray[:, :1])) + np.abs(np.diff(gray, axis=2, prepend=gray[:, :, :1]))
    return np.repeat(np.clip(4 * steps, 0, 255).astype(np.uint8)[..., None], 3, axis=3)


CASES = {
    "good": ("control", edges(footage.crowd(1))), "strange": ("control", edges(footage.crowd(2))),
    "lost": ("mask", box()), "broken": ("mask", box()), "short": ("mask", box(10)), "long": ("mask", box(FRAMES + 5)),
    "wide": ("mask", box(width=2 * WIDTH)), "black": ("mask", 0 * box()), "white": ("mask", 0 * box() + 255),
    "gaps": ("mask", np.concatenate([box(FRAMES - 4), 0 * box(4)])), "fine": ("mask", box()),
}  # fmt: skip


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset with one clip per case, each with a companion file. Shared: never change it."""
    folder = tmp_path_factory.mktemp("pairs") / "workspace" / "datasets" / "pairs"
    footage.write_footage(folder, {name: footage.crowd(1) for name in CASES}, {name: f"a {name} day" for name in CASES})
    clips = []
    for clip in read_clips(folder):
        kind, video = CASES[clip.id]
        made = folder / f"clips/{clip.id}.made.mp4"
        media.encode(video, made, FPS)
        name = f"clips/{clip.id}.{kind}-{file_sha256(made)[:8]}.mp4"
        made.rename(folder / name)
        clips.append(clip.changed(**{kind: name}))
    write_clips(folder, clips)
    named = {clip.id: clip for clip in clips}
    (folder / named["lost"].mask).unlink()
    (folder / named["broken"].mask).write_bytes(b"no video")
    return folder


@pytest.fixture
def dataset(tmp_path: Path, written: Path) -> Dataset:
    shutil.copytree(written.parent.parent, tmp_path / "workspace")
    return Dataset(tmp_path / "workspace" / "datasets" / "pairs")


def found_in(dataset: Path) -> list[Finding]:
    clips = read_clips(dataset)
    return list(check_pairs(dataset, clips, measure_pairs(dataset, clips)))


def test_each_fault_is_found_and_named_with_its_numbers(written: Path) -> None:
    found = {Path(finding.clips[0]).stem: finding for finding in found_in(written)}
    assert {name: finding.kind for name, finding in found.items()} == {
        **{"strange": "beside_motion", "lost": "beside_missing", "broken": "beside_damaged", "short": "beside_short"},
        **{"long": "beside_long", "wide": "beside_size", "black": "mask_empty", "white": "mask_full"},
        "gaps": "mask_gaps",
    }
    assert "has 10 frames at 8 fps, the clip 24 frames at 8 fps" in found["short"].sentence
    assert "is 320x112, the clip 160x112" in found["wide"].sentence
    assert "is black in 4 of its 24 frames" in found["gaps"].sentence
    assert (written / ".check" / pairs.FILE).read_text().count("\n") == len(CASES) - 1


MAKERS = {
    "edges": edges,
    "gray": lambda video: np.repeat(video.mean(axis=3, keepdims=True), 3, axis=3).astype(np.uint8),
    "inverted": lambda video: 255 - video,
    "blurred": lambda video: np.stack(
        [
            np.asarray(Image.fromarray(frame).resize((40, 28)).resize((video.shape[2], video.shape[1])))
            for frame in video
        ]
    ),
}
SCENES = {
    "crowd": lambda seed: footage.crowd(seed),
    "pan": lambda seed: footage.pan(seed),
    "shaky": lambda seed: footage.shaky(seed),
    "square": lambda seed: draw(FRAMES, (WIDTH, HEIGHT), ("red", "blue")[seed % 2]),
}


@pytest.mark.parametrize("maker", MAKERS)
def test_controls_of_every_kind_follow_their_own_clip_and_no_other(tmp_path: Path, maker: str) -> None:
    clips, videos = [], {}
    for scene, make in SCENES.items():
        for seed in (1, 2):
            videos[f"{scene}{seed}"] = make(seed)
    (tmp_path / "clips").mkdir(parents=True)
    for name, video in videos.items():
        media.encode(video, tmp_path / f"clips/{name}.mp4", FPS)
        media.encode(MAKERS[maker](video), tmp_path / f"clips/{name}.control.mp4", FPS)
        clips.append(Clip(file_name=f"clips/{name}.mp4", frames=FRAMES, fps=FPS, sha256=name))

    def follows(clip: Clip, of: Clip) -> float:
        pair = measure_pair(tmp_path, clip.changed(control=f"clips/{of.id}.control.mp4"), "control")
        return 1.0 if pair.follows is None else pair.follows

    own = {clip.id: follows(clip, clip) for clip in clips}
    assert min(own.values()) > FOLLOWS, own
    textured = [clip for clip in clips if not clip.id.startswith("square")]
    others = {(a.id, b.id): follows(a, b) for a in textured for b in textured if a.id[:-1] != b.id[:-1]}
    caught = np.mean([value < FOLLOWS for value in others.values()])
    assert caught >= 0.8, others


def of_kind(dataset: Dataset, *kinds: str) -> Sequence[Finding]:
    assert dataset.report is not None
    return [finding for finding in dataset.report.findings if finding.kind in kinds]


def test_the_check_shows_them_and_fixes_take_effect_in_one_change_each(dataset: Dataset) -> None:
    dataset.check(captions=False)
    found = of_kind(dataset, "beside_long", "beside_size")
    assert dataset.preview_fix(found, "fit_beside") == "Cut the companion files of 2 clips to match in length and size."
    assert dataset.start_fix(found, "fit_beside") == ""
    assert dataset.task("fix").wait(PATIENCE).state is State.FINISHED
    assert of_kind(dataset, "beside_long", "beside_size") == []
    for name in ("long", "wide"):
        about = media.probe(dataset.folder / dataset.clip(name).mask)
        assert (about.frames, about.width, about.height) == (FRAMES, WIDTH, HEIGHT)
    assert dataset.history[-1].what == "cut the companion files of 2 clips to match in length and size"
    dataset.undo()
    assert len(of_kind(dataset, "beside_long", "beside_size")) == 2
    lost = of_kind(dataset, "beside_missing", "beside_damaged", "beside_short", "beside_motion")
    assert dataset.fix(lost, "detach") == "Detached companion files from 4 clips."
    assert of_kind(dataset, "beside_missing", "beside_damaged", "beside_short", "beside_motion") == []
    assert dataset.fix(of_kind(dataset, "mask_empty"), "invert_mask") == "Inverted the masks of 1 clip."
    black = dataset.clip("black")
    assert media.read_frames(dataset.folder / black.mask, [0, 23]).min() >= 250
    dataset.check(captions=False)
    assert {finding.kind for finding in of_kind(dataset, *pairs_kinds())} == {
        *("beside_long", "beside_size", "mask_full", "mask_gaps")
    }


def pairs_kinds() -> list[str]:
    from workbench.dataset_builder.checks.findings import KINDS

    return [kind for kind in KINDS if kind.startswith(("beside_", "mask_"))]
