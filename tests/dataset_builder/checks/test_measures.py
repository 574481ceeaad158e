"""Checks of clips and their companion files: each fault is found where it is, and only there."""

from __future__ import annotations

import base64
import shutil
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont

from tests.dataset_builder import footage
from tests.dataset_builder.footage import FPS, FRAMES, HEIGHT, WIDTH
from tests.dataset_builder.scenery import scenery
from tests.drawing import draw
from tests.patience import PATIENCE
from workbench.clips import frame_metrics, media
from workbench.clips.records import Clip, file_sha256, read_clips, write_clips
from workbench.dataset_builder import Dataset
from workbench.dataset_builder.checks import measures
from workbench.dataset_builder.checks.dataset_check import FOLLOWS, check_pairs, check_pictures
from workbench.dataset_builder.checks.findings import Finding
from workbench.dataset_builder.checks.measures import (
    FILE,
    FOLDER,
    Box,
    Measures,
    find_letterbox,
    measure,
    measure_all,
    measure_pair,
    measure_pairs,
    read_measures,
)
from workbench.dataset_builder.cuts import scenes
from workbench.dataset_builder.settings import CheckSettings
from workbench.dataset_builder.tasks import ClipProgress
from workbench.jobs import State

DEMO = Path(__file__).parents[3] / "assets" / "demo_clips"
ALIKE = [f"{number}_*" for number in (16, 25, 27, 40, 46, 49, 50, 54)]  # the likest ones
THRESHOLD = CheckSettings().near_duplicate


def measured(folder: Path, video: np.ndarray) -> Measures:
    dataset = footage.write_footage(folder, {"it": video}, {})
    return measure(dataset, read_clips(dataset)[0])


def test_faults_are_measured_where_they_are(tmp_path: Path) -> None:
    assert measured(tmp_path / "still", footage.still(1)).still == 1
    assert measured(tmp_path / "shaky", footage.shaky(1)).shake > 1.5
    assert measured(tmp_path / "blurred", footage.blurred(1)).blur > 0.6
    first, over, height = measured(tmp_path / "flash", footage.flashing(1)).flashes[0]
    assert (first, over) == (10, 12)
    assert height > 50
    assert [frame for frame, _ in measured(tmp_path / "cut", footage.cut(1, 2, 3)).cuts] == [12, 24]
    assert measured(tmp_path / "bars", footage.barred(1)).letterbox == (0, 16, footage.WIDTH, footage.HEIGHT - 32)


def test_shake_is_told_from_what_moves_on_its_own(tmp_path: Path) -> None:
    assert measured(tmp_path / "calm", footage.crowd(1)).shake < 0.5
    assert measured(tmp_path / "shaky", footage.crowd(1, jerk=5)).shake > 1.5


def test_cuts_are_those_that_splitting_finds(tmp_path: Path) -> None:
    video = np.concatenate([footage.pan(1, 12), footage.pan(2, 3), footage.pan(3, 12), footage.pan(4, 1)])
    found = measured(tmp_path, video).cuts
    scores = scenes.scores(tmp_path / "clips" / "it.mp4", "adaptive", tmp_path)
    assert [frame for frame, _ in found] == scenes.cuts(scores, scenes.DETECTORS["adaptive"].threshold) == [12, 15, 27]
    assert [score for _, score in found] == pytest.approx([scores[frame] for frame, _ in found], abs=0.01)


def test_copies_are_told_from_clips_that_are_merely_dark() -> None:
    scene, other = footage.ground(1), footage.ground(2)
    grain = np.random.default_rng(0).normal(0, 10, scene.shape)
    grainy = np.clip(scene + grain, 0, 255).astype(np.uint8)
    dark, darker = scene // 12, other // 12
    prints = [frame_metrics.fingerprint([picture] * 4) for picture in (scene, other, grainy, dark, darker)]
    assert frame_metrics.alike(prints, 0.15) == [[0, 2]]


def test_reencoded_demo_clips_are_copies_and_no_two_others_are(tmp_path: Path) -> None:
    """Flat colors that hardly differ: orange on red, yellow on orange."""
    clips = sorted(clip for pattern in ALIKE for clip in (DEMO / "known").glob(f"{pattern}.mp4"))
    clips += sorted((DEMO / "stripes").glob("*.mp4"))
    assert len(clips) == 32
    copies = [tmp_path / f"{number}.mp4" for number in range(12)]
    for clip, copy in zip(clips, copies, strict=False):
        media.encode(np.stack([picture for _, picture in media.decode(clip)]), copy, 8, crf=18)
    paths = (*clips, *copies)
    records = [Clip(file_name=path.name, sha256="it", fps=8, frames=9) for path in paths]
    found = [measure(path.parent, clip).fingerprint for path, clip in zip(paths, records, strict=True)]
    prints = [base64.b64decode(one) for one in found]
    assert frame_metrics.alike(prints, THRESHOLD) == [[number, len(clips) + number] for number in range(len(copies))]


def test_a_clip_is_measured_once_and_one_that_cannot_be_read_costs_no_other(tmp_path: Path) -> None:
    dataset = footage.write_footage(tmp_path, {"a": footage.pan(1), "b": footage.still(2), "bad": footage.pan(3)}, {})
    (dataset / "clips" / "bad.mp4").write_bytes(b"nothing")
    clips, seen = read_clips(dataset), list[ClipProgress]()
    found = measure_all(dataset, clips, seen.append)
    assert seen[-1].items == "3 of 3 clips"
    assert seen[-1].frames == seen[-1].total == 3 * footage.FRAMES
    assert "not a readable video" in found[clips[2].sha256].error
    with (dataset / FOLDER / FILE).open("a") as file:
        file.write('{"sha256": "torn')
    (dataset / "clips" / "a.mp4").unlink()
    copy = Clip(file_name="clips/b.mp4", frames=24, fps=8, sha256="new")
    again = measure_all(dataset, [*clips, copy], seen.append)
    assert seen[-1].items == "1 of 1 clip"
    assert again.pop("new").still == 1
    assert again == found
    assert set(read_measures(dataset)) == {*found, "new"}


def test_a_clip_that_brings_its_reader_down_costs_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("a", "crash", "b", "crash too")
    dataset = footage.write_footage(tmp_path, {name: footage.pan(i, 4) for i, name in enumerate(names)}, {})
    monkeypatch.setattr(measures, "WORKER", "tests.dataset_builder.fragile_measuring")
    clips = read_clips(dataset)
    found = measure_all(dataset, clips)
    errors = {Path(clip.file_name).stem: found[clip.sha256].error for clip in clips}
    assert {name for name, error in errors.items() if not error} == {"a", "b"}
    assert all("crashed the decoder" in errors[name] for name in ("crash", "crash too"))
    assert {one.sha256 for one in read_measures(dataset).values()} == {clip.sha256 for clip in clips}


def test_a_stop_does_not_wait_for_a_long_clip(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = footage.write_footage(tmp_path, {"a": footage.pan(1, 4), "long": footage.pan(2, 4)}, {})
    monkeypatch.setattr(measures, "WORKER", "tests.dataset_builder.fragile_measuring")

    def stop(now: ClipProgress) -> None:
        if now.items == "1 of 2 clips":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure_all(dataset, read_clips(dataset), stop)  # the long one would take longer than a test may
    assert len(read_measures(dataset)) == 1


SIZE = (192, 128)


def barred(left: int, top: int, right: int, bottom: int, color: int = 0) -> np.ndarray:
    """A scene of 10 frames behind bars that are so thick."""
    video = scenery(3, 10, SIZE, speed=4)
    inside = video[:, top : SIZE[1] - bottom, left : SIZE[0] - right].copy()
    video[:] = color
    video[:, top : SIZE[1] - bottom, left : SIZE[0] - right] = inside
    return video


def found(video: np.ndarray, tmp_path: Path, crf: int = 18) -> Box | None:
    media.encode(video, tmp_path / "clip.mp4", 8, crf=crf)
    return find_letterbox(tmp_path / "clip.mp4")


@pytest.mark.parametrize(
    ("bars", "color", "box"),
    [
        ((0, 16, 0, 16), 0, (0, 16, 192, 96)),  # letterbox
        ((56, 0, 56, 0), 0, (56, 0, 80, 128)),  # pillarbox
        ((24, 12, 24, 12), 0, (24, 12, 144, 104)),  # both
        ((0, 16, 0, 16), 255, None),  # white: may be the ground
        ((0, 16, 0, 0), 0, None),  # on one side alone: may be the scene
    ],
)
def test_bars(tmp_path: Path, bars: tuple[int, int, int, int], color: int, box: Box | None) -> None:
    assert found(barred(*bars, color), tmp_path) == box


def test_noise_and_a_logo_in_the_bars(tmp_path: Path) -> None:
    video = barred(0, 20, 0, 20, 16)
    video[:, 4:14, 160:184] = 230
    noisy = video + np.random.default_rng(0).normal(0, 6, video.shape)
    box = found(noisy.clip(0, 255).astype(np.uint8), tmp_path, crf=28)
    assert box == (0, 20, 192, 88)


def test_broad_black_stripes_are_no_bars(tmp_path: Path) -> None:
    video = scenery(3, 10, SIZE, speed=4)
    for left in range(0, SIZE[0], 64):
        video[:, :, left : left + 32] = 0
    assert found(video[:, :, : 192 - 32], tmp_path) is None


@pytest.mark.parametrize("bars", [(40, 0, 40, 0)])
def test_bars_around_a_dark_scene(tmp_path: Path, bars: tuple[int, int, int, int]) -> None:
    left, top, right, bottom = bars
    assert found(barred(*bars) // 3, tmp_path) == (left, top, SIZE[0] - left - right, SIZE[1] - top - bottom)


@pytest.mark.parametrize("dark", ["night", "stage", "backdrop"])
def test_dark_and_plain_scenes_have_no_bars(tmp_path: Path, dark: str) -> None:
    video = np.zeros((10, 128, 192, 3), np.uint8)
    rows, columns = np.mgrid[:128, :192]
    for number, picture in enumerate(video):
        if dark == "night":  # a lamp that fades into the dark
            glow = 200 * np.exp(-((rows - 64) ** 2 + (columns - 60 - 6 * number) ** 2) / 900)
            picture[:] = glow[..., None]
        elif dark in ("stage", "backdrop"):  # a round thing in the middle
            picture[:] = 12 if dark == "stage" else 240
            picture[(rows - 64) ** 2 + (columns - 70 - 4 * number) ** 2 < 1200] = (180, 90, 60)
    assert found(video, tmp_path) is None


TEXT_SIZE = (320, 192)


def written_on(video: np.ndarray, text: str, place: tuple[int, int], size: int) -> np.ndarray:
    pictures = []
    for picture in video:
        image = Image.fromarray(picture)
        font = ImageFont.load_default(size)
        ImageDraw.Draw(image).text(place, text, fill="white", font=font, stroke_width=2, stroke_fill="black")
        pictures.append(np.asarray(image))
    return np.stack(pictures)


@pytest.mark.skipif(not measures.can_read_text(), reason="needs the extra text: pip install -e '.[text]'")
def test_subtitles_and_watermarks_are_found_and_a_clean_clip_is_clean(tmp_path: Path) -> None:
    clean = scenery(1, 16, TEXT_SIZE)
    marked = written_on(clean, "SAMPLE", (250, 6), 14)
    marked[8:] = written_on(marked[8:], "Where are we going?", (80, 165), 16)
    clips = []
    for name, video in (("clean", clean), ("marked", marked)):
        media.encode(video, tmp_path / f"{name}.mp4", 8)
        clips.append(Clip(file_name=f"{name}.mp4", sha256=name, fps=8, frames=16, width=320, height=192))
    measured = measure_all(tmp_path, clips)
    assert measured["clean"].text == ()
    assert set(measured["marked"].text or ()) == {("top right", 4, "SAMPLE"), ("bottom", 2, "Where are we going?")}
    checked = check_pictures(clips, {f"{name}.mp4": found for name, found in measured.items()}, CheckSettings())
    (finding,) = [finding for finding in checked if finding.kind == "text"]
    assert finding.clips == ("marked.mp4",)
    assert "bottom, in 2 of 4 sampled frames ('Where are we going?')" in finding.sentence


def test_without_a_reader_the_check_says_so_and_looks_once_there_is_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    media.encode(scenery(1, 8), tmp_path / "it.mp4", 8)
    clip = Clip(file_name="it.mp4", sha256="it", fps=8, frames=8)
    seen = list[ClipProgress]()
    monkeypatch.setattr(measures, "can_read_text", lambda: False)
    for _ in range(2):
        measured = {"it.mp4": measure_all(tmp_path, [clip], seen.append)["it"]}
    assert [now.items for now in seen if now.items.startswith("1")] == ["1 of 1 clip"]
    (finding,) = [one for one in check_pictures([clip], measured, CheckSettings()) if one.kind == "text_unknown"]
    assert finding.sentence.startswith("Subtitles and watermarks were not checked: pip install")
    monkeypatch.setattr(measures, "can_read_text", lambda: True)
    measure_all(tmp_path, [clip], seen.append)
    assert [now.items for now in seen if now.items.startswith("1")] == ["1 of 1 clip", "1 of 1 clip"]
    assert not [one for one in check_pictures([clip], measured, CheckSettings()) if one.kind == "text_unknown"]


# ---- pairs


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
    assert "has 10 frames at 8 fps, the clip has 24 frames at 8 fps" in found["short"].sentence
    assert "is 320x112, the clip is 160x112" in found["wide"].sentence
    assert "is black in 4 of its 24 frames" in found["gaps"].sentence
    assert (written / ".check" / measures.PAIRS_FILE).read_text().count("\n") == len(CASES) - 1


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
