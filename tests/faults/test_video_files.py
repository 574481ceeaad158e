"""Videos and captions as the world has them: nothing vanishes, nothing healthy is refused, no guess is silent."""

from __future__ import annotations

import resource
import struct
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from PIL import Image

from tests.dataset_builder import foreign
from tests.dataset_builder.foreign import cut, judged, noisy, write_video
from tests.drawing import draw
from workbench.clips import media
from workbench.dataset_builder import Dataset, ImportSettings
from workbench.dataset_builder.ingest.intake import run
from workbench.dataset_builder.sources.survey import survey
from workbench.errors import DataError
from workbench.workspace import Workspace

ONE = 1 << 16
KINDS = {
    "a.ts": "libx264", "a.MTS": "libx264", "a.m2ts": "mpeg2video", "a.wmv": "wmv2", "a.asf": "msmpeg4v3",
    "a.flv": "flv", "a.mpg": "mpeg1video", "a.vob": "mpeg2video", "a.ogv": "libvpx", "a.3g2": "mpeg4",
    "a.f4v": "libx264", "a.mxf": "mpeg2video", "a.avi": "mpeg4",
}  # fmt: skip


# ---- files of other kinds -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*KINDS, "a.gif", "a.png", "a.dv", "a.3gp"])
def test_a_video_of_any_kind_is_taken(tmp_path: Path, name: str) -> None:
    path, video = tmp_path / name, draw(12)
    if name in KINDS:
        write_video(path, video, fps=25, codec=KINDS[name], pixels="yuv422p" if name == "a.mxf" else "yuv420p")
    elif name == "a.dv":
        write_video(path, draw(12, (720, 576)), fps=25, codec="dvvideo")
    elif name == "a.3gp":
        write_video(path, draw(12, (176, 144)), fps=25, codec="h263")
    else:  # a GIF or an animated PNG
        pictures = [Image.fromarray(picture) for picture in video]
        pictures[0].save(path, save_all=True, append_images=pictures[1:], duration=100)
    result = judged(path, tmp_path)
    assert result.usable, result.sentence
    assert result.clip.frames == 12, result.sentence
    shown = media.read_frames(tmp_path / result.clip.file_name, [0, 11])
    assert np.abs(shown[0].astype(int) - shown[1]).max() > 60, "it moves"
    assert [source.name for source in survey([tmp_path]).sources if source.path == path] == [name]


def test_an_avif_picture_is_taken(tmp_path: Path) -> None:
    Image.fromarray(draw(1)[0]).save(tmp_path / "a.avif")
    assert judged(tmp_path / "a.avif", tmp_path).notes == ("a picture (AVIF) made into a one-frame clip",)


def test_what_is_not_taken_is_named_with_its_reason(tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.mkdir()
    write_video(given / "good.mp4", draw(9))
    (given / "good.txt").write_text("a red square")
    (given / "phone.HEIC").write_bytes(b"\0\0\0\x18ftypheic\0\0\0\0mif1heic" + bytes(100))
    (given / "scan.tif").write_bytes(b"\x49\x49\x2a\0" + bytes(100))
    (given / "old.rm").write_bytes(b".RMF" + bytes(100))
    (given / "song.ogg").write_bytes(b"OggS" + bytes(100))
    (given / "notes.docx").write_bytes(b"PK")
    (given / "deep").mkdir()
    (given / "deep" / "latents.npy").write_bytes(b"x")
    dataset, job = Dataset.create(Workspace.open(tmp_path / "workspace"), "Mixed"), Noted()
    config = tmp_path / "config.json"
    config.write_text(ImportSettings(sources=(str(given),), dataset="mixed").model_dump_json())
    run(dataset.folder, config, job)  # type: ignore[arg-type]
    assert job.outcome["counts"] == {"taken": 1, "converted": 0, "known": 0, "refused": 4, "skipped": 2}
    reasons = {Path(v.source).name: v.notes[0] for v in dataset.import_results if not v.usable}
    assert reasons["phone.HEIC"] == "a HEIC picture, as iPhones take them: convert it to JPEG or PNG first"
    assert reasons["scan.tif"] == "a TIFF or raw camera picture: convert it to JPEG or PNG first"
    assert reasons["old.rm"] == "a RealMedia file: convert it to mp4 first"
    assert ":" in reasons["song.ogg"]
    skipped = [one["name"] for one in job.outcome["files"] if one["outcome"] == "skipped"]
    assert skipped == ["notes.docx", "deep/latents.npy"]
    assert not any("other kinds" in problem for problem in job.outcome["problems"])
    (given / "only").mkdir()
    (given / "only" / "a.docx").write_bytes(b"PK")
    with pytest.raises(DataError, match=r"files of other kinds, skipped: 'a.docx'"):
        assert survey([given / "only"]).sources


class Noted:
    """What an import tells its job."""

    outcome: dict[str, Any]

    def beat(self, *_: Any, **__: Any) -> None: ...

    def check_stop(self, _: str) -> None: ...


# ---- healthy files, and cut ones ------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["mp4", "mkv"])
def test_a_long_still_is_shortened_and_the_rest_is_taken(tmp_path: Path, ending: str) -> None:
    times = [number / 30 for number in range(15)] + [7000 + number / 30 for number in range(15)]
    result = judged(write_video(tmp_path / f"screen.{ending}", draw(30), times=times), tmp_path)
    assert result.notes[1:] == ("a still longer than 30 s shortened to 30 s",), result.sentence
    assert result.clip.frames == 30 * 30 + 29
    shown = media.read_frames(tmp_path / result.clip.file_name, [14, 900, 928]).astype(int)
    assert np.abs(shown[0] - shown[1]).max() < 12
    assert np.abs(shown[1] - shown[2]).max() > 60


def test_a_still_at_the_end_is_no_damage(tmp_path: Path) -> None:
    source, path = write_video(tmp_path / "plain.mp4", options={"bf": "0"}), tmp_path / "screen.mp4"
    with av.open(str(source)) as read, av.open(str(path), "w") as written:
        stream = written.add_stream_from_template(read.streams.video[0])
        packets = [packet for packet in read.demux(video=0) if packet.dts is not None]
        packets[-1].duration *= 12 * 12  # twelve seconds
        for packet in packets:
            packet.stream = stream
            written.mux(packet)
    assert media.probe(path).seconds > 13
    result = judged(path, tmp_path)
    assert result.usable
    assert not any("damaged" in note for note in result.notes), result.sentence
    assert result.clip.frames >= 12 * 12


@pytest.mark.parametrize(("ending", "codec"), [("mkv", "libx264"), ("webm", "libvpx"), ("flv", "flv"), ("wmv", "wmv2")])
def test_a_truncated_file_is_reported(tmp_path: Path, ending: str, codec: str) -> None:
    fast = {"deadline": "realtime", "cpu-used": "8"} if codec == "libvpx" else {}
    whole = write_video(tmp_path / f"whole.{ending}", noisy(48), fps=12, codec=codec, options=fast)
    torn = tmp_path / f"torn.{ending}"
    torn.write_bytes(whole.read_bytes())
    cut(torn, lambda data: len(data) * 6 // 10)
    assert not any("cut off" in note for note in judged(whole, tmp_path).notes)
    assert any(note.startswith("cut off or damaged: kept the first") for note in judged(torn, tmp_path).notes)


# How a display matrix (a, b, c, d) moves the white corner, which is stored at the top left.
CORNERS: dict[tuple[int, int, int, int], tuple[str, Callable[[np.ndarray], np.ndarray]]] = {
    (-1, 0, 0, 1): ("mirrored left and right", lambda v: v[:, :, ::-1]),
    (1, 0, 0, -1): ("mirrored top and bottom", lambda v: v[:, ::-1]),
    (0, 1, 1, 0): ("rows and columns exchanged", lambda v: v.transpose(0, 2, 1, 3)),
    (0, -1, -1, 0): ("the same, turned by half", lambda v: v.transpose(0, 2, 1, 3)[:, ::-1, ::-1]),
    (0, 1, -1, 0): ("turned", lambda v: np.rot90(v, -1, (1, 2))),
}


@pytest.mark.parametrize("matrix", CORNERS)
def test_a_mirrored_display_matrix_is_obeyed(tmp_path: Path, matrix: tuple[int, int, int, int]) -> None:
    path = write_video(tmp_path / "turned.mp4", foreign.marked())
    data = bytearray(path.read_bytes())
    place, (a, b, c, d) = data.index(b"tkhd") + 44, matrix
    data[place : place + 36] = struct.pack(">9i", a * ONE, b * ONE, 0, c * ONE, d * ONE, 0, 0, 0, 1 << 30)
    path.write_bytes(data)
    result = judged(path, tmp_path)
    wanted = CORNERS[matrix][1](foreign.marked())
    for shown in (media.read_frames(tmp_path / result.clip.file_name, [6])[0], list(media.decode(path))[6][1]):
        assert np.abs(shown.astype(int) - wanted[6]).mean() < 6, CORNERS[matrix][0]


# ---- one sentence for each codec's error ----------------------------------------------------------------------------


def refusal(path: Path) -> str:
    result = judged(path, path.parent)
    assert not result.usable, result.sentence
    (note,) = result.notes
    assert "Error" not in note
    assert "Errno" not in note
    assert ":" in note, "a remedy follows the reason"
    return note


def test_pixels_of_absurd_shapes_are_refused_before_they_take_memory(tmp_path: Path) -> None:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for wide, high, size in ((30_000, 1, "1920000x64"), (1, 2000, "64x128000")):
        path = write_video(tmp_path / f"{wide}.mp4", codec="mpeg4", aspect=Fraction(16))
        data = bytearray(path.read_bytes())
        place = data.index(b"pasp") + 4
        data[place : place + 8] = struct.pack(">2I", wide, high)
        path.write_bytes(data)
        assert f"too large: {size} after making {wide}:{high} pixels square" in refusal(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # kilobytes


def write_colored(path: Path, pixels: str = "yuv420p", **colors: int) -> Path:
    with av.open(str(path), "w") as file:
        stream: Any = file.add_stream("libx264", rate=12)
        stream.width, stream.height, stream.pix_fmt = 64, 64, pixels
        for name, value in colors.items():
            setattr(stream.codec_context, name, value)
        for number, picture in enumerate(draw(6)):
            frame = av.VideoFrame.from_ndarray(picture, "rgb24")
            frame.pts = number
            file.mux(stream.encode(frame))
        file.mux(stream.encode())
    return path


@pytest.mark.parametrize("matrix", [8, 10, 11, 12, 13, 14])
def test_rare_colors_are_refused_in_words(tmp_path: Path, matrix: int) -> None:
    path = write_colored(tmp_path / "rare.mp4", "yuv444p" if matrix == 8 else "yuv420p", colorspace=matrix)
    assert refusal(path).startswith("its color format cannot be converted (yuv4")


# ---- captions -------------------------------------------------------------------------------------------------------

TEXTS = {
    "cp932": "赤い四角が右に動く",
    "gb18030": "一只红色的猫在草地上奔跑",
    "euc_kr": "빨간 사각형이 오른쪽으로 움직인다",
    "big5": "一隻紅色的貓在草地上奔跑",
    "cp1251": "красный квадрат движется вправо",
    "cp1252": "un carré doré",
}


@pytest.mark.parametrize("encoding", TEXTS)
def test_captions_in_another_encoding_are_read_right_and_named_as_detected(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "a.mp4").touch()
    (tmp_path / "a.txt").write_bytes(TEXTS[encoding].encode(encoding))
    found = survey([tmp_path])
    assert [source.caption for source in found.sources] == [TEXTS[encoding]]
    (line,) = [line for line in found.problems if "detected" in line]
    assert line.startswith(f"{tmp_path.name}: not saved as UTF-8")
    assert line.endswith(f": 'a.txt ({encoding})'")


def test_a_caption_in_no_encoding_is_named_and_none_is_taken(tmp_path: Path) -> None:
    (tmp_path / "a.mp4").touch()
    (tmp_path / "a.txt").write_bytes(bytes(range(128, 256)) * 3)
    found = survey([tmp_path])
    assert [source.caption for source in found.sources] == [""]
    assert any("not used (save it as UTF-8): 'a.txt'" in line for line in found.problems)
