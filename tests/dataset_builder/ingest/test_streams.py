"""Odd video streams: wrong times, sizes that change, a still before the video, codecs that nothing decodes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from PIL import Image

from tests.dataset_builder.foreign import write_video
from tests.dataset_builder.media_core import judged
from tests.drawing import draw
from workbench.clips import media
from workbench.clips.media.writing import without_comment
from workbench.errors import ConfigError, DataError
from workbench.sampler import inputs

B_FRAMES = {"bf": "3", "g": "12"}
VIDEO = draw(24, (96, 64))


def copied(source: Path, target: Path, container: str | None = None) -> Path:
    """The same packets in another container, each with its decoding time alone, as programs that copy an AVI do."""
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
def test_frames_come_in_order_at_the_right_rate_and_nothing_is_called_damaged(tmp_path: Path, kind: str) -> None:
    result = judged(KINDS[kind](tmp_path), tmp_path)
    assert result.usable, result.sentence
    assert (result.clip.frames, result.clip.fps) == (24, 24), result.sentence
    assert not any("damaged" in note for note in result.notes), result.sentence
    shown = media.read_frames(tmp_path / result.clip.file_name, range(24)).astype(int)
    assert np.abs(shown - VIDEO).mean(axis=(1, 2, 3)).max() < 8


@pytest.mark.parametrize(("ending", "codec"), [("ts", "libx264"), ("mpg", "mpeg2video")])
def test_two_recordings_in_a_row_are_as_long_as_both(tmp_path: Path, ending: str, codec: str) -> None:
    one = write_video(tmp_path / f"one.{ending}", VIDEO, fps=24, codec=codec, options={"bf": "2"})
    result = judged(appended(one, tmp_path / f"both.{ending}"), tmp_path)
    assert (result.clip.frames, result.clip.fps) == (48, 24), result.sentence
    assert not any("damaged" in note or "uneven" in note for note in result.notes), result.sentence


def test_an_avi_with_b_frames_gives_a_sample_its_frames_in_order(tmp_path: Path) -> None:
    path = h264(tmp_path / "a.avi")
    assert np.abs(np.stack([picture for _, picture in media.decode(path)]).astype(int) - VIDEO).mean() < 8
    times = [time for time, _ in media.decode(path)]
    assert times == pytest.approx([number / 24 for number in range(24)], abs=1e-6)


# ---- a picture that changes its size --------------------------------------------------------------------------------


def resized(target: Path, sizes: Sequence[tuple[int, int]]) -> Path:
    """Twelve frames of each size in one stream of VP8."""
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


def test_a_size_that_changes_is_scaled_or_cut_and_said(tmp_path: Path) -> None:
    scaled = judged(resized(tmp_path / "a.webm", [(64, 48), (128, 96), (128, 96)]), tmp_path)
    assert scaled.notes == ("the size of the picture changes (64x48, 128x96): scaled to 128x96",)
    assert (scaled.clip.frames, scaled.clip.width, scaled.clip.height) == (36, 128, 96)
    cut = judged(resized(tmp_path / "b.webm", [(64, 48), (48, 64), (48, 64)]), tmp_path)
    assert cut.notes == (
        "the size of the picture changes (64x48, 48x64): frames 13 to 36 of 36 taken, the others have other "
        "proportions",
    )
    assert (cut.clip.frames, cut.clip.width, cut.clip.height) == (24, 48, 64)
    shown = media.read_frames(tmp_path / cut.clip.file_name, [0, 11]).astype(int)
    assert np.abs(shown[0] - draw(12, (48, 64))[0]).mean() < 8


def test_a_file_of_canonical_form_is_not_taken_as_it_is_when_its_size_changes(tmp_path: Path) -> None:
    one = write_video(tmp_path / "one.ts", draw(12, (64, 48)), fps=12, options={"bf": "0"})
    other = write_video(tmp_path / "other.ts", draw(12, (128, 96)), fps=12, options={"bf": "0"})
    (tmp_path / "both.ts").write_bytes(one.read_bytes() + other.read_bytes())
    result = judged(copied(tmp_path / "both.ts", tmp_path / "both.mp4"), tmp_path)
    assert result.clip.frames == 24, result.sentence
    assert "the size of the picture changes (64x48, 128x96): scaled to 64x48" in result.notes


# ---- tracks and codecs ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["mp4", "mkv", "avi"])
def test_a_still_before_the_video_is_passed_over(tmp_path: Path, ending: str) -> None:
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
    assert result.notes == ("2 video tracks: the second one taken (96x64 h264), since before it is a still picture",)
    assert (result.clip.frames, result.clip.fps) == (24, 12)


def renamed(folder: Path, codec: bytes) -> Path:
    """An mp4 whose codec has another name."""
    path = write_video(folder / "a.mp4", VIDEO)
    path.write_bytes(path.read_bytes().replace(b"avc1", codec))
    return path


UNKNOWN = "its video has a codec that cannot be read: save it again as an ordinary mp4"


def test_a_codec_that_cannot_be_read_is_one_sentence_wherever_the_file_is_given(tmp_path: Path) -> None:
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


def test_a_jpeg_of_two_pictures_is_the_first_and_an_animated_avif_is_a_clip(tmp_path: Path) -> None:
    one, other = Image.fromarray(VIDEO[0]), Image.fromarray(VIDEO[12])
    one.save(tmp_path / "stereo.jpg", "MPO", save_all=True, append_images=[other])
    assert judged(tmp_path / "stereo.jpg", tmp_path).notes == ("a picture (MPO): made a clip of one frame",)
    one.save(tmp_path / "a.avif", save_all=True, append_images=[other, one])
    result = judged(tmp_path / "a.avif", tmp_path)
    assert (result.notes, result.clip.frames) == (("an animated AVIF: made a clip",), 3)
