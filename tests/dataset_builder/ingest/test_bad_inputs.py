"""Files that are refused, converted, copied or scaled, and unusual streams, each with its message."""

from __future__ import annotations

import itertools
import json
import socket
import threading
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from PIL import Image

from tests.dataset_builder import foreign
from tests.dataset_builder.foreign import judged, noisy, write_video
from tests.drawing import draw
from workbench.clips import media
from workbench.clips.media import without_comment
from workbench.clips.records import Clip, file_sha256
from workbench.dataset_builder import Dataset, ImportResult
from workbench.dataset_builder.history import thumbnail_name
from workbench.dataset_builder.ingest.canonical import CanonicalClip, convert
from workbench.errors import ConfigError, DataError
from workbench.paths import ASSETS
from workbench.sampler import inputs
from workbench.workspace import Workspace

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """Import all the odd files once."""
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
    """Return a clip's record and all its frames."""
    clip = dataset.clip(result_of(dataset, name).clip.file_name)
    return clip, media.read_frames(dataset.path_of(clip), range(clip.frames))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("empty.mp4", "empty file"), ("login.mp4", "looks like a web page"), ("lfs.mp4", "Git LFS pointer"),
        ("noise.mp4", "not a readable video"), ("zeros.mp4", "not a readable video"),
        ("torn.png", "the picture is damaged"), ("animation.mp4", "not a readable video"),
        ("playlist.mp4", "a playlist"), ("concat.mkv", "a playlist"), ("pipe.mp4", "not an ordinary file"),
        ("session.mp4", "a playlist"), ("link.mp4", "it is a link"), ("broken_link.mp4", "it is a link"),
        ("device.mp4", "it is a link"), ("sound.mp4", "sound only"), ("tone.mp4", "sound only"),
        ("one.mp4", "only one frame"), ("first_only.mp4", "the video was cut off or is damaged"),
        ("no_index.mp4", "the video was cut off, its index is missing"), ("only_index.mp4", "the video was cut off"),
        ("large.mp4", "too large: 4200x2400"), ("too_long.mp4", "too long: 2.2 hours"),
    ],
)  # fmt: skip
def test_a_refused_file_says_why(built: Dataset, name: str, reason: str) -> None:
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
        ("uneven.mkv", "constant 30 fps"), ("ten_bit.mp4", "10-bit colors reduced to 8 bits"),
        ("hdr.mkv", "HDR colors converted to SDR"), ("hlg.mp4", "HDR colors converted to SDR"),
        ("camera.mov", "10-bit colors reduced to 8 bits"), ("full.mp4", "full-range colors converted to video range"),
        ("clear.webm", "transparency removed"), ("two.mp4", "2 video tracks: used the first (64x64 h264)"),
        ("odd.mkv", "cropped by one row or column to an even size"), ("stretched.mp4", "non-square pixels made square"),
        ("interlaced.mp4", "deinterlaced"), ("talking.mov", "sound re-encoded: video copied"),
        ("slow_motion.mp4", "240 fps reduced to 60 fps"),
        ("thousand.mp4", "1000 fps reduced to 58.82 fps: kept every 17th frame"),
        ("picture.mp4", "a picture (PNG) made into a one-frame clip"),
        ("scan.bmp", "a picture (BMP) made into a one-frame clip"), ("photo.JPG", "turned upright"),
        ("cutout.webp", "transparency filled with white"), ("gray.png", "16-bit colors reduced to 8 bits"),
        ("web.webm", "re-encoded for exact frame access (vp8 yuv420p)"),
    ],
)  # fmt: skip
def test_a_converted_file_says_how(built: Dataset, name: str, note: str) -> None:
    found = result_of(built, name)
    assert found.outcome == "converted", found.notes
    assert any(note in text for text in found.notes), found.notes


def test_every_clip_is_canonical_and_has_exact_facts(built: Dataset) -> None:
    assert len(built.clips) == 41
    for clip in built.clips:
        about = media.probe(built.path_of(clip))
        assert (about.codec, about.pixel_format, about.bits) == ("h264", "yuv420p", 8)
        assert (about.rotation, about.sample_aspect, about.interlaced, about.hdr) == (0, 1, False, False)
        assert (about.audio, about.width % 2, about.height % 2) == (clip.sound is not None, 0, 0)
        assert (clip.sound is not None) == (clip.source == "talking.mov")
        assert (about.width, about.height, about.frames) == (clip.width, clip.height, clip.frames)
        assert about.fps == pytest.approx(clip.fps, abs=1e-3)
        assert clip.sha256 == file_sha256(built.path_of(clip))
        steps = np.diff(media.read_times(built.path_of(clip)).presented)
        assert clip.is_image or np.ptp(steps) < 1e-3
        assert (built.folder / thumbnail_name(clip)).exists()


def test_a_canonical_file_is_copied_byte_for_byte_once(built: Dataset) -> None:
    found = [result_of(built, name) for name in ("fine.mp4", "again.mp4")]
    assert sorted(result.outcome for result in found) == ["known", "taken"]
    assert found[0].clip.file_name == found[1].clip.file_name
    assert built.path_of(built.clip(found[0].clip.file_name)).read_bytes() == Path(found[0].source).read_bytes()


def test_a_rotated_clip_is_upright(built: Dataset) -> None:
    clip, frames = clip_of(built, "turned.mov")
    assert (clip.width, clip.height, clip.frames) == (64, 96, 24)
    assert frames[12, :12, -12:].min() > 200  # the white corner moved from the top left to the top right
    assert frames[12, :12, :12].max() < 200
    shown = np.asarray(Image.open(built.folder / thumbnail_name(clip))).astype(int)
    assert np.abs(shown - frames[12]).mean() < 4 < np.abs(shown - frames[0]).mean()
    moving = (frames[:, :, :, 0].astype(int) - frames[:, :, :, 1] > 80).nonzero()
    assert moving[1][moving[0] == 23].mean() > moving[1][moving[0] == 0].mean() + 20  # right became down


def test_a_variable_rate_clip_is_resampled_by_timestamp(built: Dataset) -> None:
    clip, frames = clip_of(built, "uneven.mkv")
    assert clip.fps == 30
    assert clip.frames == 44  # 15 frames at 30 fps, 15 at 15 fps; the last frame's duration is unknown
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
    # Half of the frames are before zero, and the file hides them.
    assert (clip_of(built, "early.mp4")[0].frames, result_of(built, "early.mp4").clip.frames) == (12, 12)


@pytest.mark.parametrize("name", ["hdr.mkv", "hlg.mp4"])
def test_hdr_is_tone_mapped_not_clipped(built: Dataset, name: str) -> None:
    _, frames = clip_of(built, name)
    cut_short = next(picture for _, picture in media.decode(Path(result_of(built, name).source)))
    assert frames.std() > 10
    assert np.abs(frames[0].astype(int) - cut_short).max() > 15


def test_colors_of_the_source_are_kept(built: Dataset) -> None:
    for name in ("talking.mov", "full.mp4", "two.mp4"):
        source = [picture for _, picture in media.decode(Path(result_of(built, name).source))]
        assert np.abs(clip_of(built, name)[1].astype(int) - np.stack(source)).mean() < 1.5


def test_a_long_recording_is_imported_with_advice_to_split_it(built: Dataset) -> None:
    found = result_of(built, "long.mp4")
    assert (found.outcome, found.notes) == ("taken", ("longer than 10 minutes: split it into clips",))


def test_pictures_become_one_frame_clips(built: Dataset) -> None:
    shown = {}
    for name in ("picture.mp4", "scan.bmp", "photo.JPG", "cutout.webp", "gray.png"):
        clip, frames = clip_of(built, name)
        assert (clip.frames, clip.is_image) == (1, True)
        shown[name] = frames[0].astype(int)
    assert shown["picture.mp4"].shape == (64, 96, 3)
    assert shown["photo.JPG"].shape == (96, 64, 3)
    assert shown["photo.JPG"][:12, -12:].min() > 200  # the white corner moved from left to right
    assert shown["cutout.webp"][:28].min() > 235
    assert np.abs(shown["cutout.webp"][36:] - shown["picture.mp4"][36:]).mean() < 3
    assert shown["gray.png"][0].mean() < 10
    assert 115 < shown["gray.png"][32].mean() < 140


def test_damage_is_never_trained_on(built: Dataset) -> None:
    assert 10 < clip_of(built, "half.mp4")[0].frames < 40
    flipped = result_of(built, "flipped.mp4")
    assert flipped.outcome == "refused" or flipped.clip.frames < 48


def test_odd_names_are_never_interpreted(built: Dataset) -> None:
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


def test_no_file_triggers_network_access_or_reads_another_file(tmp_path: Path) -> None:
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


# ---- canonical files


def streams(path: Path) -> list[bytes]:
    """Return the bytes of every video packet."""
    with av.open(str(path)) as file:
        return [bytes(packet) for packet in file.demux(video=0) if packet.size]


def frames(path: Path) -> list[tuple[float, np.ndarray]]:
    return [(time, frame.to_ndarray()) for time, frame in media.raw_frames(path)]


def taken(source: Path) -> tuple[CanonicalClip, Path]:
    target = source.with_name(f"{source.stem}-clip.mp4")
    return convert(source, target), target


@pytest.mark.parametrize(("name", "fps"), [("talking.mp4", 30000 / 1001), ("talking.mov", 24)])
@pytest.mark.parametrize(("keep", "note"), [(True, "sound re-encoded"), (False, "sound removed")])
def test_the_video_is_copied_byte_for_byte(tmp_path: Path, name: str, fps: float, keep: bool, note: str) -> None:
    source = write_video(tmp_path / name, noisy(40), fps=fps, sound=np.zeros((1, 99_999), np.float32))  # with B-frames
    target = source.with_name("clip.mp4")
    made = convert(source, target, keep_sound=keep)
    assert made.changes == (f"{note}: video copied unchanged",)
    assert streams(target) == streams(source)
    for (one, before), (other, after) in itertools.zip_longest(frames(source), frames(target)):
        assert one == pytest.approx(other, abs=1e-3)
        assert np.array_equal(before, after)
    about = media.probe(target)
    assert (about.audio, about.frames, about.tracks) == (keep, 40, 1)
    assert about.fps == pytest.approx(fps, abs=1e-6)
    assert (made.frames, made.fps) == (40, about.fps)
    assert np.array_equal(media.read_frames(target, [39])[0], media.read_frames(source, [39])[0])
    again = convert(target, tmp_path / "again.mp4")
    assert (again.changes, (tmp_path / "again.mp4").read_bytes()) == ((), target.read_bytes()), "it is canonical itself"
    assert not list(tmp_path.glob(".*"))


def test_a_clip_does_not_reveal_where_its_source_was_made(tmp_path: Path) -> None:
    """Datasets get published, and other programs' metadata may contain paths, names and places."""
    notes = {
        "comment": '{"workflow": "/home/ann/models/secret.safetensors"}',
        "title": "Ann",
        "location": "+48.1+011.5/",
    }
    plain, source = tmp_path / "plain.mp4", tmp_path / "noted.mp4"
    media.encode(np.stack(noisy(12)), plain, 8)
    with av.open(str(plain)) as read, av.open(str(source), "w", options={"movflags": "use_metadata_tags"}) as write:
        write.metadata.update(notes)
        copy = write.add_stream_from_template(read.streams.video[0])
        for packet in read.demux(video=0):
            if packet.dts is not None:
                packet.stream = copy
                write.mux(packet)
    assert b"/home/ann" in source.read_bytes()
    made, target = taken(source)
    assert made.changes == ("metadata removed: video copied unchanged",)
    assert streams(target) == streams(plain)
    assert not any(word in target.read_bytes() for word in (b"/home", b"Ann", b"+48"))
    assert taken(plain)[0].changes == ()


def test_the_demo_clips_are_copied_unchanged(dataset: Dataset) -> None:
    """Some were encoded with B-frames allowed but not used. Their times are right, so they are not re-encoded."""
    dataset.import_files([ASSETS / "demo_clips" / "stripes"])
    assert {result.outcome for result in dataset.import_results if "striped" in result.name} == {"taken"}


# ---- streams


B_FRAMES = {"bf": "3", "g": "12"}
VIDEO = draw(24, (96, 64))


def copied(source: Path, target: Path, container: str | None = None) -> Path:
    """Copy packets to another container with decoding times only, as programs that remux an AVI do."""
    with av.open(str(source)) as read, av.open(str(target), "w", format=container) as written:
        stream = written.add_stream_from_template(read.streams.video[0])
        for number, packet in enumerate(read.demux(video=0)):
            if packet.size:
                packet.stream, packet.pts, packet.dts, packet.time_base = stream, number, number, Fraction(1, 24)
                packet.duration = 1
                written.mux(packet)
    return target


def appended(source: Path, target: Path) -> Path:
    target.write_bytes(source.read_bytes() * 2)
    return target


def h264(path: Path, codec: str = "libx264", **more: Any) -> Path:
    return write_video(path, VIDEO, fps=24, codec=codec, options={"bf": "2"} if codec == "mpeg4" else B_FRAMES, **more)


KINDS: dict[str, Callable[[Path], Path]] = {
    "H.264 in AVI": lambda folder: h264(folder / "a.avi"),
    "MPEG-4 ASP in AVI": lambda folder: h264(folder / "a.avi", "mpeg4"),
    "a raw H.264 stream": lambda folder: h264(folder / "a.h264"),
    "a raw HEVC stream": lambda folder: h264(folder / "a.hevc", "libx265"),
    "an mp4 copied from an AVI": lambda folder: copied(h264(folder / "a.mp4"), folder / "b.mp4"),
    "times that begin late": lambda folder: h264(folder / "a.ts", start=24 * 3000),
    "H.264 in WMV": lambda folder: h264(folder / "a.wmv"),
    "uncompressed pictures": lambda folder: h264(folder / "a.y4m", "wrapped_avframe"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_frames_are_in_order_at_the_right_rate_without_false_damage(tmp_path: Path, kind: str) -> None:
    result = judged(KINDS[kind](tmp_path), tmp_path)
    assert result.usable, result.sentence
    assert (result.clip.frames, result.clip.fps) == (24, 24), result.sentence
    assert not any("damaged" in note for note in result.notes), result.sentence
    shown = media.read_frames(tmp_path / result.clip.file_name, range(24)).astype(int)
    assert np.abs(shown - VIDEO).mean(axis=(1, 2, 3)).max() < 8


@pytest.mark.parametrize(("ending", "codec"), [("ts", "libx264"), ("mpg", "mpeg2video")])
def test_two_concatenated_recordings_have_their_total_length(tmp_path: Path, ending: str, codec: str) -> None:
    one = write_video(tmp_path / f"one.{ending}", VIDEO, fps=24, codec=codec, options={"bf": "2"})
    result = judged(appended(one, tmp_path / f"both.{ending}"), tmp_path)
    assert (result.clip.frames, result.clip.fps) == (48, 24), result.sentence
    assert not any("damaged" in note or "variable" in note for note in result.notes), result.sentence


# ---- a picture that changes its size --------------------------------------------------------------------------------


def resized(target: Path, sizes: Sequence[tuple[int, int]]) -> Path:
    """Write twelve frames of each size in one VP8 stream."""
    parts = []
    for number, size in enumerate(sizes):
        parts.append(write_video(target.with_name(f"{number}.ivf"), draw(12, size), fps=12, codec="libvpx"))
    with av.open(str(parts[0])) as first, av.open(str(target), "w") as written:
        stream, count = written.add_stream_from_template(first.streams.video[0]), 0
        for part in parts:
            with av.open(str(part)) as read:
                for packet in read.demux(video=0):
                    if packet.size:
                        packet.stream, packet.time_base = stream, Fraction(1, 12)
                        packet.pts = packet.dts = count
                        written.mux(packet)
                        count += 1
    return target


def test_a_changing_frame_size_is_scaled_or_trimmed(tmp_path: Path) -> None:
    scaled = judged(resized(tmp_path / "a.webm", [(64, 48), (128, 96), (128, 96)]), tmp_path)
    assert scaled.notes == ("the frame size changes (64x48, 128x96): scaled to 128x96",)
    assert (scaled.clip.frames, scaled.clip.width, scaled.clip.height) == (36, 128, 96)
    cut = judged(resized(tmp_path / "b.webm", [(64, 48), (48, 64), (48, 64)]), tmp_path)
    kept = "kept frames 13 to 36 of 36, the others have a different aspect ratio"
    assert cut.notes == (f"the frame size changes (64x48, 48x64): {kept}",)
    assert (cut.clip.frames, cut.clip.width, cut.clip.height) == (24, 48, 64)
    shown = media.read_frames(tmp_path / cut.clip.file_name, [0, 11]).astype(int)
    assert np.abs(shown[0] - draw(12, (48, 64))[0]).mean() < 8


def test_a_canonical_file_is_not_copied_if_its_frame_size_changes(tmp_path: Path) -> None:
    one = write_video(tmp_path / "one.ts", draw(12, (64, 48)), fps=12, options={"bf": "0"})
    other = write_video(tmp_path / "other.ts", draw(12, (128, 96)), fps=12, options={"bf": "0"})
    (tmp_path / "both.ts").write_bytes(one.read_bytes() + other.read_bytes())
    result = judged(copied(tmp_path / "both.ts", tmp_path / "both.mp4"), tmp_path)
    assert result.clip.frames == 24, result.sentence
    assert "the frame size changes (64x48, 128x96): scaled to 64x48" in result.notes


# ---- tracks and codecs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["mp4", "mkv", "avi"])
def test_a_still_track_before_the_video_is_skipped(tmp_path: Path, ending: str) -> None:
    with av.open(str(tmp_path / f"a.{ending}"), "w") as file:
        still = file.add_stream("mjpeg", rate=12)
        still.width, still.height, still.pix_fmt = 96, 64, "yuvj420p"
        moving = file.add_stream("libx264", rate=12, options={"bf": "0"})
        moving.width, moving.height, moving.pix_fmt = 96, 64, "yuv420p"
        file.mux(still.encode(av.VideoFrame.from_ndarray(VIDEO[0])))
        file.mux(still.encode())
        for picture in VIDEO:
            file.mux(moving.encode(av.VideoFrame.from_ndarray(picture)))
        file.mux(moving.encode())
    result = judged(tmp_path / f"a.{ending}", tmp_path)
    assert result.notes == ("2 video tracks: used the second (96x64 h264), because the one before is a still picture",)
    assert (result.clip.frames, result.clip.fps) == (24, 12)


def renamed(folder: Path, codec: bytes) -> Path:
    """Change the codec's name in an mp4."""
    path = write_video(folder / "a.mp4", VIDEO)
    path.write_bytes(path.read_bytes().replace(b"avc1", codec))
    return path


UNKNOWN = "its video codec is not supported: save it again as an ordinary mp4"


def test_an_unreadable_codec_has_the_same_message_everywhere(tmp_path: Path) -> None:
    path, out = renamed(tmp_path, b"zzzz"), tmp_path / "out"
    (note,) = judged(path, tmp_path).notes
    assert note.startswith(UNKNOWN)
    for use in (
        media.probe, media.read_times, lambda path: list(media.decode(path)),
        lambda path: media.read_frames(path, [0]), lambda path: media.thumbnail(path, out), media.read_comment,
        media.has_own_metadata, without_comment, lambda path: media.write_gif([[path]], out),
        lambda path: media.read_own_clip(path, (24, 64, 96), range(10)),
    ):  # fmt: skip
        with pytest.raises(DataError, match=UNKNOWN):
            use(path)
    with pytest.raises(ConfigError, match=UNKNOWN):
        inputs.check_video(path)
    (note,) = judged(renamed(tmp_path, b"encv"), tmp_path).notes
    assert note.startswith("its video is encrypted (DRM)")


# ---- pictures -------------------------------------------------------------------------------------------------------


def test_a_jpeg_with_two_pictures_and_an_animated_avif(tmp_path: Path) -> None:
    one, other = Image.fromarray(VIDEO[0]), Image.fromarray(VIDEO[12])
    one.save(tmp_path / "stereo.jpg", "MPO", save_all=True, append_images=[other])
    assert judged(tmp_path / "stereo.jpg", tmp_path).notes == ("a picture (MPO) made into a one-frame clip",)
    one.save(tmp_path / "a.avif", save_all=True, append_images=[other, one])
    result = judged(tmp_path / "a.avif", tmp_path)
    assert (result.notes, result.clip.frames) == (("an animated AVIF made into a clip",), 3)
