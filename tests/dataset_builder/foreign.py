"""Files as people bring them: other codecs, phones, broken downloads. Each writer leaves a real file."""

from __future__ import annotations

import os
import struct
import zlib
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from tests.drawing import draw


def write_video(
    path: Path,
    video: np.ndarray | None = None,
    *,
    fps: float = 12,
    codec: str = "libx264",
    pixels: str = "yuv420p",
    times: Sequence[float] | None = None,
    aspect: Fraction | None = None,
    options: dict[str, str] | None = None,
    container: dict[str, str] | None = None,
    sound: bool = False,
    hdr: bool = False,
) -> Path:
    """Encode frames as asked; `times` are the frames' seconds where the rate is uneven."""
    import av

    video = draw(24) if video is None else video
    with av.open(str(path), "w", options=container or {}) as file:
        stream: Any = file.add_stream(codec, rate=Fraction(fps).limit_denominator(1001), options=options or {})
        stream.width, stream.height, stream.pix_fmt = video.shape[2], video.shape[1], pixels
        tone = file.add_stream("aac", rate=44100) if sound else None
        context = stream.codec_context
        if aspect:
            context.sample_aspect_ratio = aspect
        context.time_base = Fraction(1, 1000) if times else 1 / Fraction(fps).limit_denominator(1001)
        if hdr:
            context.color_primaries, context.color_trc, context.colorspace = 9, 16, 9
        for number, picture in enumerate(video):
            frame = av.VideoFrame.from_ndarray(picture, "rgb24")
            frame.pts = round(times[number] * 1000) if times else number
            frame.time_base = context.time_base
            file.mux(stream.encode(frame))
        file.mux(stream.encode())
        if tone is not None:
            _hum(file, tone)
    return path


def write_sound(path: Path) -> Path:
    """An mp4 without pictures."""
    import av

    with av.open(str(path), "w") as file:
        _hum(file, file.add_stream("aac", rate=44100))
    return path


def _hum(file: Any, stream: Any) -> None:
    import av

    for number in range(20):
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), "fltp", "mono")
        frame.sample_rate, frame.pts = 44100, number * 1024
        file.mux(stream.encode(frame))
    file.mux(stream.encode())


def turn(path: Path) -> Path:
    """Mark an mp4 as filmed upright with a phone: to be shown turned clockwise by 90 degrees."""
    data = bytearray(path.read_bytes())
    matrix = data.index(b"tkhd") + 4 + 40
    one = 1 << 16
    data[matrix : matrix + 36] = struct.pack(">9i", 0, one, 0, -one, 0, 0, 64 * one, 0, 1 << 30)
    path.write_bytes(data)
    return path


def png() -> bytes:
    """A tiny picture."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    head = struct.pack(">IIBBBBB", 4, 4, 8, 2, 0, 0, 0)
    body = zlib.compress(b"".join(b"\0" + b"\xff\0\0" * 4 for _ in range(4)))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", body) + chunk(b"IEND", b"")


def uneven_times(frames: int) -> list[float]:
    """A phone's timestamps: 30 fps in light, 15 in the dark."""
    steps = [1 / 30 if number < frames // 2 else 1 / 15 for number in range(frames)]
    return [float(time) for time in np.cumsum([0.0, *steps[:-1]])]


def marked(size: tuple[int, int] = (96, 64)) -> np.ndarray:
    """A moving square, with the top left corner white."""
    video = draw(24, size)
    video[:, :16, :16] = 255
    return video


def _cut(path: Path, keep: Callable[[bytes], int]) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: keep(data)])


ODD_NAME = "-i $(touch pwned); é\u202e\n%03d.MP4"


def write_menagerie(folder: Path) -> None:
    """Every kind of file at once, each named by what is wrong with it."""
    fast_start = {"movflags": "+faststart"}
    noise = np.random.default_rng(0)
    (folder / "empty.mp4").touch()
    (folder / "login.mp4").write_text("\n<!DOCTYPE html><title>Sign in</title>")
    (folder / "lfs.mp4").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    (folder / "noise.mp4").write_bytes(noise.bytes(50_000))
    (folder / "zeros.mp4").write_bytes(bytes(50_000))
    (folder / "picture.mp4").write_bytes(png())
    (folder / "animation.mp4").write_bytes(b"GIF89a" + bytes(50))
    (folder / "playlist.mp4").write_text("#EXTM3U\n#EXTINF:1,\nhalf.mp4\n#EXT-X-ENDLIST\n")
    (folder / "concat.mkv").write_text("ffconcat version 1.0\nfile half.mp4\n")
    os.mkfifo(folder / "pipe.mp4")
    os.symlink("/etc/passwd", folder / "link.mp4")
    write_sound(folder / "sound.mp4")
    write_video(folder / "one.mp4", draw(1))
    write_video(folder / "no_index.mp4")
    _cut(folder / "no_index.mp4", lambda data: data.index(b"moov") - 4)
    write_video(folder / "only_index.mp4", container=fast_start)
    _cut(folder / "only_index.mp4", lambda data: data.index(b"mdat") + 8)
    write_video(folder / "half.mp4", noisy(48), fps=24, container=fast_start)
    _cut(folder / "half.mp4", lambda data: len(data) * 6 // 10)
    write_video(folder / "flipped.mp4", noisy(48), fps=24, container=fast_start)
    flip_bits(folder / "flipped.mp4")
    write_video(folder / "large.mp4", np.zeros((2, 2400, 4200, 3), np.uint8), options={"preset": "ultrafast"})
    write_video(folder / "long.mp4", draw(3, (16, 16)), times=[0, 700, 1400])
    turn(write_video(folder / "turned.mov", marked()))
    write_video(folder / "uneven.mkv", draw(30), times=uneven_times(30))
    write_video(folder / "ten_bit.mp4", pixels="yuv420p10le")
    write_video(folder / "hdr.mkv", pixels="yuv420p10le", hdr=True)
    write_video(folder / "odd.mkv", draw(24, (65, 49)), pixels="yuv444p")
    write_video(folder / "stretched.mp4", draw(24, (48, 64)), aspect=Fraction(2))
    write_video(folder / "interlaced.mp4", options={"x264-params": "tff=1"})
    write_video(folder / "fragments.mp4", container={"movflags": "frag_keyframe+empty_moov"})
    write_video(folder / "talking.mov", sound=True)
    write_video(folder / "slow_motion.mp4", draw(48), fps=240)
    write_video(folder / "web.webm", codec="libvpx")
    write_video(folder / "tv.mp4", fps=30000 / 1001)
    write_video(folder / "fine.mp4", draw(24, colour="blue"))
    (folder / "again.mp4").write_bytes((folder / "fine.mp4").read_bytes())
    write_video(folder / "name.mp4", draw(24, colour="green")).rename(folder / ODD_NAME)


def noisy(frames: int) -> np.ndarray:
    """Frames that compress badly, so that damage falls into pictures rather than into headers."""
    return np.random.default_rng(1).integers(0, 255, (frames, 64, 64, 3), np.uint8)


def flip_bits(path: Path) -> None:
    """Damage the pictures of an mp4 in many places, behind its index."""
    data = bytearray(path.read_bytes())
    start = data.index(b"mdat") + 64
    for position in np.random.default_rng(2).integers(start, len(data), 200):
        data[position] ^= 0x55
    path.write_bytes(data)
