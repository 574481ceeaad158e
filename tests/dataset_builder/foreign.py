"""Files like those of users: other codecs, phone recordings, broken downloads. All are real files."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from tests.drawing import draw
from workbench.clips import media
from workbench.clips.records import file_sha256
from workbench.dataset_builder.ingest.results import ImportResult
from workbench.dataset_builder.ingest.worker import judge
from workbench.errors import DataError
from workbench.jobs.limited import Watch


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
    sound: bool | np.ndarray = False,
    transfer: int | None = None,
    start: int = 0,
    tracks: int = 1,
) -> Path:
    """Encode frames with these options.

    times: the frames' times in seconds, for a variable rate; start: the first number; transfer: 16 is PQ, 18 is HLG;
    sound: a hum, or float32 [channels, samples] at 44,100 Hz
    """
    import av

    video = draw(24) if video is None else video
    rate = Fraction(fps).limit_denominator(1001)
    with av.open(str(path), "w", options=container or {}) as file:
        streams: list[Any] = [file.add_stream(codec, rate=rate, options=options or {}) for _ in range(tracks)]
        heard = sound if isinstance(sound, np.ndarray) else np.zeros((1, 20 * 1024), np.float32) if sound else None
        layout = "mono" if heard is None or len(heard) == 1 else "stereo"
        tone = None if heard is None else file.add_stream("aac", rate=44100, layout=layout)
        for stream in streams:
            stream.width, stream.height, stream.pix_fmt = video.shape[2], video.shape[1], pixels
            context = stream.codec_context
            if aspect:
                context.sample_aspect_ratio = aspect
            context.time_base = Fraction(1, 1000) if times else 1 / rate
            if transfer:
                context.color_primaries, context.color_trc, context.colorspace = 9, transfer, 9
        for number, picture in enumerate(video):
            for stream in streams:
                frame = av.VideoFrame.from_ndarray(picture, "rgba" if picture.shape[2] == 4 else "rgb24")
                frame.pts = round(times[number] * 1000) if times else number + start
                frame.time_base = stream.codec_context.time_base
                file.mux(stream.encode(frame))
        for stream in streams:
            file.mux(stream.encode())
        if tone is not None and heard is not None:
            _hum(file, tone, heard)
    return path


def write_sound(path: Path) -> Path:
    """Write an mp4 without video."""
    import av

    with av.open(str(path), "w") as file:
        _hum(file, file.add_stream("aac", rate=44100, layout="mono"), np.zeros((1, 20 * 1024), np.float32))
    return path


def _hum(file: Any, stream: Any, samples: np.ndarray) -> None:
    import av

    for start in range(0, samples.shape[1], 1024):
        piece = np.ascontiguousarray(samples[:, start : start + 1024])
        frame = av.AudioFrame.from_ndarray(piece, "fltp", "mono" if len(piece) == 1 else "stereo")
        frame.sample_rate, frame.pts = 44100, start
        file.mux(stream.encode(frame))
    file.mux(stream.encode())


def write_latin(path: Path) -> Path:
    """Write a canonical clip with a comment in Latin-1, like old programs."""
    media.encode(draw(26), path, 12, comment="caf!")
    path.write_bytes(path.read_bytes().replace(b"caf!", b"caf\xe9"))
    return path


def turn(path: Path) -> Path:
    """Mark an mp4 as filmed with an upright phone, to be rotated clockwise by 90 degrees."""
    data = bytearray(path.read_bytes())
    matrix = data.index(b"tkhd") + 4 + 40
    one = 1 << 16
    data[matrix : matrix + 36] = struct.pack(">9i", 0, one, 0, -one, 0, 0, 64 * one, 0, 1 << 30)
    path.write_bytes(data)
    return path


def write_pictures(folder: Path) -> None:
    """Write still pictures, one with a video's name."""
    from PIL import Image

    picture = Image.fromarray(marked((97, 64))[0])
    picture.save(folder / "picture.mp4", "PNG")
    picture.save(folder / "scan.bmp")
    upright = Image.Exif()
    upright[0x0112] = 6  # rotate clockwise by 90 degrees, as written by phones
    picture.save(folder / "photo.JPG", exif=upright, quality=95)
    clear = picture.convert("RGBA")
    clear.putalpha(Image.linear_gradient("L").resize(clear.size).point(lambda value: 255 if value > 128 else 0))
    clear.save(folder / "cutout.webp", lossless=True)
    gray = np.linspace(0, 65535, 64 * 64).reshape(64, 64).astype(np.uint16)
    Image.fromarray(gray).save(folder / "gray.png")
    picture.save(folder / "moving.webp", save_all=True, append_images=[picture.rotate(90)], duration=100)
    (folder / "torn.png").write_bytes((folder / "picture.mp4").read_bytes()[:150])


def uneven_times(frames: int) -> list[float]:
    """A phone's timestamps: 30 fps in light, 15 in the dark."""
    steps = [1 / 30 if number < frames // 2 else 1 / 15 for number in range(frames)]
    return [float(time) for time in np.cumsum([0.0, *steps[:-1]])]


def marked(size: tuple[int, int] = (96, 64)) -> np.ndarray:
    """A moving square with a white top left corner."""
    video = draw(24, size)
    video[:, :16, :16] = 255
    return video


def cut(path: Path, keep: Callable[[bytes], int]) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: keep(data)])


ODD_NAME = "-i $(touch pwned); é\u202e\n%03d.MP4"
ODD_NAMES = ("🎬.mp4".encode(), b"CON.mp4", b"concat:a|b.mp4", b"http:\\x.mp4", b"-vf.mp4", b"latin-\xe9.mp4") + (
    b"a" * 251 + b".mp4",
)


def write_menagerie(folder: Path) -> None:
    """Write every kind of file, named for what is wrong with it."""
    fast_start = {"movflags": "+faststart"}
    noise = np.random.default_rng(0)
    (folder / "empty.mp4").touch()
    (folder / "login.mp4").write_text("\n<!DOCTYPE html><title>Sign in</title>")
    (folder / "lfs.mp4").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 9\n")
    (folder / "noise.mp4").write_bytes(noise.bytes(50_000))
    (folder / "zeros.mp4").write_bytes(bytes(50_000))
    write_pictures(folder)
    (folder / "animation.mp4").write_bytes(b"GIF89a" + bytes(50))
    (folder / "playlist.mp4").write_text("#EXTM3U\n#EXTINF:1,\nhalf.mp4\n#EXT-X-ENDLIST\n")
    (folder / "concat.mkv").write_text("ffconcat version 1.0\nfile half.mp4\n")
    os.mkfifo(folder / "pipe.mp4")
    os.symlink("/etc/passwd", folder / "link.mp4")
    os.symlink("nowhere", folder / "broken_link.mp4")
    os.symlink("/dev/zero", folder / "device.mp4")
    (folder / "session.mp4").write_text("v=0\no=- 0 0 IN IP4 127.0.0.1\nm=video 9 RTP/AVP 96\n")
    write_sound(folder / "sound.mp4")
    (folder / "tone.mp4").write_bytes(b"RIFF\x24\0\0\0WAVEfmt " + bytes(20))
    write_video(folder / "one.mp4", draw(1))
    write_video(folder / "no_index.mp4")
    cut(folder / "no_index.mp4", lambda data: data.index(b"moov") - 4)
    write_video(folder / "only_index.mp4", container=fast_start)
    cut(folder / "only_index.mp4", lambda data: data.index(b"mdat") + 8)
    write_video(folder / "half.mp4", noisy(48), fps=24, container=fast_start)
    cut(folder / "half.mp4", lambda data: len(data) * 6 // 10)
    write_video(folder / "flipped.mp4", noisy(48), fps=24, container=fast_start)
    flip_bits(folder / "flipped.mp4")
    write_video(folder / "first_only.mp4", noisy(8), container=fast_start)
    cut(folder / "first_only.mp4", lambda _: packets(folder / "first_only.mp4")[1][0] + 9)
    write_video(folder / "promises.mp4", fps=24, options={"bf": "0"})
    hide_frames(folder / "promises.mp4", range(18, 24))
    write_video(folder / "hole.mp4", fps=24, options={"bf": "0"})
    hide_frames(folder / "hole.mp4", range(10, 13))
    large = np.zeros((1, 2400, 4200, 3), np.uint8)
    write_video(folder / "large.mp4", large, options={"preset": "ultrafast"}, container=fast_start)
    cut(folder / "large.mp4", lambda data: data.index(b"mdat") + 8)  # no frame is left, only the header
    write_video(folder / "too_long.mp4", draw(3, (16, 16)), times=[0, 4000, 8000])
    write_video(folder / "long.mp4", draw(606, (64, 64)), fps=1, options={"preset": "ultrafast"})
    turn(write_video(folder / "turned.mov", marked()))
    write_video(folder / "uneven.mkv", draw(30), times=uneven_times(30))
    write_video(folder / "ten_bit.mp4", pixels="yuv420p10le")
    write_video(folder / "hdr.mkv", pixels="yuv420p10le", transfer=16)
    write_video(folder / "hlg.mp4", pixels="yuv420p10le", transfer=18)
    write_video(folder / "camera.mov", codec="prores_ks", pixels="yuv422p10le")
    write_video(folder / "odd.mkv", draw(24, (65, 49)), pixels="yuv444p")
    write_video(folder / "stretched.mp4", draw(24, (48, 64)), aspect=Fraction(2))
    write_video(folder / "interlaced.mp4", options={"x264-params": "tff=1"})
    write_video(folder / "fragments.mp4", container={"movflags": "frag_keyframe+empty_moov"})
    write_video(folder / "talking.mov", sound=np.zeros((1, 3 * 44100), np.float32))  # longer than the pictures
    write_video(folder / "slow_motion.mp4", draw(48), fps=240)
    write_video(folder / "thousand.mp4", draw(85, (32, 32)), fps=1000)
    write_video(folder / "late.mkv", fps=24, start=2400)
    write_video(folder / "early.mp4", fps=24, start=-12, container={"avoid_negative_ts": "disabled"})
    write_video(folder / "two.mp4", tracks=2)
    write_video(folder / "full.mp4", pixels="yuvj420p")
    clear = np.concatenate([draw(24), np.full((24, 64, 64, 1), 128, np.uint8)], axis=3)
    write_video(folder / "clear.webm", clear, codec="libvpx", pixels="yuva420p", options={"auto-alt-ref": "0"})
    write_video(folder / "web.webm", codec="libvpx")
    write_video(folder / "tv.mp4", fps=30000 / 1001)
    write_latin(folder / "latin.mp4")
    write_video(folder / "fine.mp4", draw(24, color="blue"))
    (folder / "again.mp4").write_bytes((folder / "fine.mp4").read_bytes())
    write_video(folder / "name.mp4", draw(24, color="green")).rename(folder / ODD_NAME)
    for number, name in enumerate(ODD_NAMES):
        write_video(folder / "name.mp4", draw(5 + number)).rename(folder / os.fsdecode(name))


def noisy(frames: int) -> np.ndarray:
    """Frames that compress badly, so that damage hits frame data rather than headers."""
    return np.random.default_rng(1).integers(0, 255, (frames, 64, 64, 3), np.uint8)


def packets(path: Path) -> list[tuple[int, int]]:
    """(position, size) of each frame's data in the file, in coding order."""
    import av

    with av.open(str(path)) as file:
        return [(p.pos or 0, p.size) for p in file.demux(video=0) if p.size]


def hide_frames(path: Path, numbers: range) -> None:
    """Change frames of an H.264 mp4 so that decoders silently skip them, although the index lists them."""
    places = packets(path)
    data = bytearray(path.read_bytes())
    for number in numbers:
        data[places[number][0] + 4] = 30  # a unit type unknown to decoders
    path.write_bytes(data)


def flip_bits(path: Path) -> None:
    """Damage the frame data of an mp4, after its index, in many places."""
    data = bytearray(path.read_bytes())
    start = data.index(b"mdat") + 64
    for position in np.random.default_rng(2).integers(start, len(data), 200):
        data[position] ^= 0x55
    path.write_bytes(data)


def judged(path: Path, dataset: Path) -> ImportResult:
    """Import one file like the import's child process."""
    sha256 = file_sha256(path)
    try:
        media.check_file(path)
    except DataError as error:
        return ImportResult(source=str(path), outcome="refused", notes=(str(error),))
    watch = Watch(300)
    try:
        task = {"source": str(path), "name": path.name, "sha256": sha256, "longest_side": None}
        return judge(dataset, task, watch)
    finally:
        watch.end()
