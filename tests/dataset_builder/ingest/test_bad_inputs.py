"""Every file that people bring gets its import result, and only canonical clips come out."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from tests.dataset_builder import foreign
from workbench.clips import media
from workbench.clips.records import Clip, file_sha256
from workbench.dataset_builder import Dataset, ImportResult
from workbench.dataset_builder.history import thumbnail_name
from workbench.errors import DataError
from workbench.workspace import Workspace

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """One import of the whole menagerie."""
    base = tmp_path_factory.mktemp("menagerie")
    (base / "given").mkdir()
    foreign.write_menagerie(base / "given")
    dataset = Dataset.create(Workspace.open(base / "workspace"), "Menagerie")
    dataset.import_files([base / "given"])
    return dataset


def result_of(dataset: Dataset, name: str) -> ImportResult:
    (found,) = [result for result in dataset.import_results if Path(result.source).name == name]
    return found


def clip_of(dataset: Dataset, name: str) -> tuple[Clip, np.ndarray]:
    """The clip's record and all of its frames."""
    clip = dataset.clip(result_of(dataset, name).clip.file_name)
    return clip, media.read_frames(dataset.path_of(clip), range(clip.frames))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("empty.mp4", "empty file"), ("login.mp4", "looks like a web page"), ("lfs.mp4", "Git LFS pointer"),
        ("noise.mp4", "not a video that can be read"), ("zeros.mp4", "not a video that can be read"),
        ("torn.png", "the picture is damaged"), ("animation.mp4", "not a video that can be read"),
        ("playlist.mp4", "a playlist"), ("concat.mkv", "a playlist"), ("pipe.mp4", "not an ordinary file"),
        ("session.mp4", "a playlist"), ("link.mp4", "it is a link"), ("broken_link.mp4", "it is a link"),
        ("device.mp4", "it is a link"), ("sound.mp4", "sound only"), ("tone.mp4", "sound only"),
        ("one.mp4", "one frame only"), ("first_only.mp4", "the video was cut off or is damaged"),
        ("no_index.mp4", "the video was cut off, its index is missing"), ("only_index.mp4", "the video was cut off"),
        ("large.mp4", "too large: 4200x2400"), ("too_long.mp4", "too long: 2.2 hours"),
    ],
)  # fmt: skip
def test_refused_with_the_reason_in_words(built: Dataset, name: str, reason: str) -> None:
    found = result_of(built, name)
    assert found.outcome == "refused"
    assert found.notes[0].startswith(reason) or reason in found.notes[0], found.notes
    assert ":" in found.notes[0], "a remedy follows the reason"


@pytest.mark.parametrize(
    ("name", "note"),
    [
        ("half.mp4", "cut off or damaged: kept the first"),
        ("promises.mp4", "cut off or damaged: kept the first 0.75 s (18 frames)"),
        ("hole.mp4", "cut off or damaged: kept the first 0.42 s (10 frames)"), ("turned.mov", "turned upright"),
        ("uneven.mkv", "evened to 30 fps"), ("ten_bit.mp4", "10-bit colors brought to 8 bits"),
        ("hdr.mkv", "HDR colors brought to ordinary ones"), ("hlg.mp4", "HDR colors brought to ordinary ones"),
        ("camera.mov", "10-bit colors brought to 8 bits"), ("full.mp4", "full-range colors brought to video range"),
        ("clear.webm", "transparency removed"), ("two.mp4", "2 video tracks: the first one taken (64x64 h264)"),
        ("odd.mkv", "cut by one row or column to an even size"), ("stretched.mp4", "stretched pixels made square"),
        ("interlaced.mp4", "interlaced lines joined"), ("talking.mov", "sound removed"),
        ("slow_motion.mp4", "240 fps brought to 60 fps"),
        ("thousand.mp4", "1000 fps brought to 58.82 fps: every 17th frame kept"),
        ("picture.mp4", "a picture (PNG): made a clip of one frame"),
        ("scan.bmp", "a picture (BMP): made a clip of one frame"), ("photo.JPG", "turned upright"),
        ("cutout.webp", "transparent parts made white"), ("gray.png", "16-bit colors brought to 8 bits"),
        ("web.webm", "rewritten for exact frame access (vp8 yuv420p)"),
    ],
)  # fmt: skip
def test_a_converted_file_says_how(built: Dataset, name: str, note: str) -> None:
    found = result_of(built, name)
    assert found.outcome == "converted", found.notes
    assert any(note in text for text in found.notes), found.notes


def test_every_clip_is_canonical_and_known_exactly(built: Dataset) -> None:
    assert len(built.clips) == 41
    for clip in built.clips:
        about = media.probe(built.path_of(clip))
        assert (about.codec, about.pixel_format, about.bits) == ("h264", "yuv420p", 8)
        assert (about.rotation, about.sample_aspect, about.interlaced, about.hdr) == (0, 1, False, False)
        assert (about.audio, about.width % 2, about.height % 2) == (False, 0, 0)
        assert (about.width, about.height, about.frames) == (clip.width, clip.height, clip.frames)
        assert about.fps == pytest.approx(clip.fps, abs=1e-3)
        assert clip.sha256 == file_sha256(built.path_of(clip))
        steps = np.diff(media.read_times(built.path_of(clip)).presented)
        assert clip.is_image or np.ptp(steps) < 1e-3
        assert (built.folder / thumbnail_name(clip)).exists()


def test_canonical_file_is_taken_byte_for_byte_and_once(built: Dataset) -> None:
    found = [result_of(built, name) for name in ("fine.mp4", "again.mp4")]
    assert sorted(result.outcome for result in found) == ["known", "taken"]
    assert found[0].clip.file_name == found[1].clip.file_name
    assert built.path_of(built.clip(found[0].clip.file_name)).read_bytes() == Path(found[0].source).read_bytes()


def test_turned_clip_stands_upright(built: Dataset) -> None:
    clip, frames = clip_of(built, "turned.mov")
    assert (clip.width, clip.height, clip.frames) == (64, 96, 24)
    assert frames[12, :12, -12:].min() > 200  # the white corner of the stored top left is now top right
    assert frames[12, :12, :12].max() < 200
    shown = np.asarray(Image.open(built.folder / thumbnail_name(clip))).astype(int)
    assert np.abs(shown - frames[12]).mean() < 4 < np.abs(shown - frames[0]).mean()
    moving = (frames[:, :, :, 0].astype(int) - frames[:, :, :, 1] > 80).nonzero()
    assert moving[1][moving[0] == 23].mean() > moving[1][moving[0] == 0].mean() + 20  # right became down


def test_uneven_clip_moves_at_an_even_pace(built: Dataset) -> None:
    clip, frames = clip_of(built, "uneven.mkv")
    assert clip.fps == 30
    assert clip.frames == 44  # 15 frames at 30 fps, 15 at 15 fps; the last one's length is not known
    changes = np.abs(np.diff(frames[:, ::4].astype(int), axis=0)).max(axis=(1, 2, 3)) > 60
    assert changes[:14].all()
    assert 0.4 < changes[16:].mean() < 0.6


@pytest.mark.parametrize(
    "name",
    ["ten_bit.mp4", "fragments.mp4", "web.webm", "tv.mp4", "talking.mov", "interlaced.mp4", "camera.mov", "late.mkv"]
    + ["two.mp4", "full.mp4"],
)
def test_constant_rate_keeps_every_frame(built: Dataset, name: str) -> None:
    clip, frames = clip_of(built, name)
    assert clip.frames == len(frames) == 24
    columns = [
        (frame[:, :, 0].astype(int) - frame[:, :, 1] > 60).nonzero()[1].mean() if frame.any() else 0 for frame in frames
    ]
    assert np.corrcoef(columns, np.arange(24))[0, 1] > 0.99


def test_sizes_and_rates(built: Dataset) -> None:
    assert (clip_of(built, "stretched.mp4")[0].width, clip_of(built, "stretched.mp4")[0].height) == (96, 64)
    assert (clip_of(built, "odd.mkv")[0].width, clip_of(built, "odd.mkv")[0].height) == (64, 48)
    assert clip_of(built, "tv.mp4")[0].fps == pytest.approx(30000 / 1001)
    assert (clip_of(built, "slow_motion.mp4")[0].fps, clip_of(built, "slow_motion.mp4")[0].frames) == (60, 12)
    assert clip_of(built, "thousand.mp4")[0].frames == 5
    # Half of the frames stand before zero, and the file says not to show them.
    assert (clip_of(built, "early.mp4")[0].frames, result_of(built, "early.mp4").clip.frames) == (12, 12)


@pytest.mark.parametrize("name", ["hdr.mkv", "hlg.mp4"])
def test_hdr_is_tone_mapped_not_merely_shortened(built: Dataset, name: str) -> None:
    _, frames = clip_of(built, name)
    cut_short = next(picture for _, picture in media.decode(Path(result_of(built, name).source)))
    assert frames.std() > 10
    assert np.abs(frames[0].astype(int) - cut_short).max() > 15


def test_colors_of_the_source_are_kept(built: Dataset) -> None:
    for name in ("talking.mov", "full.mp4", "two.mp4"):
        source = [picture for _, picture in media.decode(Path(result_of(built, name).source))]
        assert np.abs(clip_of(built, name)[1].astype(int) - np.stack(source)).mean() < 1.5


def test_long_recording_is_taken_and_said_to_need_splitting(built: Dataset) -> None:
    found = result_of(built, "long.mp4")
    assert (found.outcome, found.notes) == ("taken", ("longer than 10 minutes: split it into clips",))


def test_pictures_become_clips_of_one_frame(built: Dataset) -> None:
    shown = {}
    for name in ("picture.mp4", "scan.bmp", "photo.JPG", "cutout.webp", "gray.png"):
        clip, frames = clip_of(built, name)
        assert (clip.frames, clip.is_image) == (1, True)
        shown[name] = frames[0].astype(int)
    assert shown["picture.mp4"].shape == (64, 96, 3)
    assert shown["photo.JPG"].shape == (96, 64, 3)
    assert shown["photo.JPG"][:12, -12:].min() > 200  # the white corner went from the left to the right
    assert shown["cutout.webp"][:28].min() > 235
    assert np.abs(shown["cutout.webp"][36:] - shown["picture.mp4"][36:]).mean() < 3
    assert shown["gray.png"][0].mean() < 10
    assert 115 < shown["gray.png"][32].mean() < 140


def test_damage_is_never_trained_on(built: Dataset) -> None:
    assert 10 < clip_of(built, "half.mp4")[0].frames < 40
    flipped = result_of(built, "flipped.mp4")
    assert flipped.outcome == "refused" or flipped.clip.frames < 48


def test_odd_names_are_only_ever_text(built: Dataset) -> None:
    found = result_of(built, foreign.ODD_NAME)
    assert found.usable
    assert not list(built.folder.rglob("pwned"))
    assert "\n" not in found.sentence
    assert "\u202e" not in found.sentence
    assert Path(built.clip(found.clip.file_name).file_name).stem == found.sha256[:16]


@pytest.mark.parametrize("name", foreign.ODD_NAMES)
def test_any_name_can_be_imported(built: Dataset, name: bytes) -> None:
    shown = name.decode("utf-8", "surrogateescape").encode("utf-8", "backslashreplace").decode()
    assert result_of(built, shown).outcome == "taken"


def test_hub_video_folder_finds_its_clips_and_no_other_video(built: Dataset) -> None:
    rows = [json.loads(line) for line in (built.folder / "metadata.jsonl").read_text().splitlines()]
    assert all(set(row) >= {"file_name", "text"} for row in rows)
    seen = {path.relative_to(built.folder).as_posix() for path in built.folder.rglob("*") if path.suffix == ".mp4"}
    assert seen == {row["file_name"] for row in rows}


def test_no_file_makes_us_call_the_network_or_read_another_file(tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.mkdir()
    hits: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"http://127.0.0.1:{server.getsockname()[1]}/a.mp4"

        def listen() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    hits.append(connection.recv(1000))

        threading.Thread(target=listen, daemon=True).start()
        local = foreign.write_video(tmp_path / "private.mp4")
        for number, target in enumerate((address, str(local), f"file://{local}")):
            lists = {
                "hls": f"#EXTM3U\n#EXT-X-TARGETDURATION:1\n#EXTINF:1,\n{target}\n#EXT-X-ENDLIST\n",
                "concat": f"ffconcat version 1.0\nfile {target}\n",
                "spaced": f"\n\n#EXTM3U\n#EXTINF:1,\n{target}\n",
                "hidden": f"\0\0\0\x08free#EXTM3U\n#EXTINF:1,\n{target}\n",
                "dash": f"<MPD><Period><BaseURL>{target}</BaseURL></Period></MPD>",
            }
            for name, text in lists.items():
                (given / f"{name}{number}.mp4").write_text(text)
        (given / "list.m3u8").write_text(f"#EXTM3U\n#EXTINF:1,\n{address}\n")
        dataset = Dataset.create(Workspace.open(tmp_path / "workspace"), "Network")
        with pytest.raises(DataError, match="none of the"):
            dataset.import_files([given, given / "list.m3u8"])
        for path in (address, f"concat:{local}|{local}", f"file:{local}", "/dev/zero"):
            with pytest.raises(DataError):
                dataset.import_files([path])
    assert hits == []
    assert not any(result.usable for result in dataset.import_results)
    assert len(dataset.import_results) >= 16
