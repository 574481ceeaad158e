"""Bring a foreign video to the canonical form.

That is: constant frame rate, upright, square pixels, even size, 8-bit SDR, H.264 yuv420p, silent. A file that already
has this form is taken byte for byte once each of its frames has been decoded. A constant-rate source keeps exactly its
frames; only uneven rates are resampled, by timestamp. Not covered: cutting long videos into scenes, several video
tracks (the first is taken).
"""

from __future__ import annotations

import contextlib
import math
import shutil
import statistics
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import Any

from workbench import media
from workbench.errors import DataError
from workbench.media import Probe
from workbench.workspace import writing

MAX_PIXELS = 4096 * 2304
MAX_SECONDS = 600.0
MAX_FPS = 60
QUALITY = 12  # crf: no difference that an eye can see (with preset superfast: a quarter of the time, no larger)
Timed = tuple[float, Any]  # seconds, PyAV frame


@dataclass(frozen=True)
class Normalised:
    """The canonical clip, and what had to be mended to get there; nothing mended: taken byte for byte."""

    fps: float
    frames: int
    width: int
    height: int
    mended: tuple[str, ...]


@dataclass(frozen=True)
class Timing:
    """How a source's frames become a constant rate: every `take`-th frame as it is, or by timestamp when uneven."""

    fps: Fraction
    source_fps: float
    even: bool
    take: int = 1


def normalise(source: Path, target: Path) -> Normalised:
    """Write `target`, the canonical form of `source`. Raises DataError with the reason in words, CannotWrite."""
    about = media.probe(source)
    _check_limits(about)
    times = media.presentation_times(source)
    if len(times) < 2:
        raise DataError("one frame only: give a clip of two frames or more")
    if times[-1] > MAX_SECONDS:
        raise DataError(_too_long(times[-1]))
    timing = timing_of(times, about.fps)
    if _is_canonical(about, timing) and (taken := _take_as_it_is(source, target, about)):
        return taken
    mends = [*_picture_mends(about), *_timing_mends(timing)]
    damage = _Damage()
    pictures = _evened(_mended(damage.until(media.raw_frames(source)), about), timing)
    frames, width, height = _write(pictures, target, float(timing.fps))
    if about.audio:
        mends.append("sound removed")
    if damage.reason or _ends_early(about, damage.last_time):
        mends.append(f"cut off or damaged: kept the first {frames / float(timing.fps):.2f} s ({frames} frames)")
    if not mends:
        mends.append(f"rewritten for exact frame access ({about.codec} {about.pixel_format})")
    return Normalised(float(timing.fps), frames, width, height, tuple(mends))


def _check_limits(about: Probe) -> None:
    """Refuse from the header what would take minutes and gigabytes. Raises DataError."""
    if about.width * about.height > MAX_PIXELS:
        raise DataError(f"too large: {about.width}x{about.height}, at most 4096x2304: scale it down first")
    if about.seconds > MAX_SECONDS:
        raise DataError(_too_long(about.seconds))
    if min(about.width, about.height) < 16:
        raise DataError(f"too small: {about.width}x{about.height}, at least 16x16: give a larger picture")


def _too_long(seconds: float) -> str:
    return f"too long: {seconds / 60:.1f} minutes, at most {MAX_SECONDS / 60:g}: cut out the scenes you want to teach"


# ---- time -----------------------------------------------------------------------------------------------------------


def timing_of(times: list[float], declared_fps: float) -> Timing:
    """The constant rate for frames shown at these times. Even means: each frame is nearest to its own slot."""
    mean = times[-1] / (len(times) - 1)
    even = mean > 0 and all(abs(time - number * mean) < 0.3 * mean for number, time in enumerate(times))
    if even:
        # The header is more exact than containers that round their timestamps to milliseconds.
        rate = declared_fps if abs(declared_fps * mean - 1) < 0.05 else 1 / mean
        take = math.ceil(rate / MAX_FPS - 1e-3)
        return Timing(_neat(rate) / take, rate, True, take)
    steps = [later - earlier for earlier, later in zip(times, times[1:], strict=False) if later > earlier]
    usual = statistics.median(steps) if steps else 1.0
    # Averaged over its like: timestamps in whole milliseconds make 30 fps steps of 33 and 34.
    rate = 1 / statistics.fmean([step for step in steps if abs(step / usual - 1) < 0.1] or [usual])
    return Timing(Fraction(min(MAX_FPS, max(1, round(rate)))), rate, False)


def _neat(rate: float) -> Fraction:
    """The rate that was meant: 29.9697 -> 30000/1001."""
    whole = max(1, round(rate))
    for meant in (Fraction(whole), Fraction(whole * 1000, 1001)):
        if abs(rate / float(meant) - 1) < 4e-4:
            return meant
    return Fraction(rate).limit_denominator(1001)


def _timing_mends(timing: Timing) -> list[str]:
    if not timing.even:
        return [f"uneven frame rate (about {timing.source_fps:.3g} fps) evened to {float(timing.fps):g} fps"]
    if timing.take > 1:
        return [f"{timing.source_fps:.4g} fps brought to {float(timing.fps):.4g} fps: every {timing.take}th frame kept"]
    return []


def _evened(frames: Iterable[Timed], timing: Timing) -> Iterator[Any]:
    """The frames at the constant rate: an even source's once each, else the newest at the middle of each slot."""
    if timing.even:
        yield from (frame for number, (_, frame) in enumerate(frames) if number % timing.take == 0)
        return
    fps, slot, held = float(timing.fps), 0, None
    for time, frame in frames:
        while held is not None and (slot + 0.5) / fps < time:
            yield held
            slot += 1
        held = frame
    if held is not None:
        yield held


# ---- picture --------------------------------------------------------------------------------------------------------


def _square_size(about: Probe) -> tuple[int, int]:
    """(width, height) as stored, enlarged so that pixels are square: nothing is lost."""
    width, height = (about.height, about.width) if about.rotation % 180 == 90 else (about.width, about.height)
    aspect = about.sample_aspect
    return (round(width * aspect), height) if aspect >= 1 else (width, round(height / aspect))


def _filters(about: Probe) -> list[tuple[str, str]]:
    """FFmpeg's filters that bring the picture to the canonical form."""
    width, height = _square_size(about)
    colours = "out_color_matrix=bt709:out_range=tv"
    if about.hdr:
        colours += ":out_primaries=bt709:out_transfer=bt709:intent=perceptual"
    turns = {90: [("transpose", "cclock")], 180: [("hflip", ""), ("vflip", "")], 270: [("transpose", "clock")]}
    return [
        *([("bwdif", "mode=send_frame")] if about.interlaced else []),
        ("scale", f"w={width}:h={height}:flags=lanczos+accurate_rnd:{colours}"),
        *turns.get(about.rotation, []),
        ("crop", "trunc(iw/2)*2:trunc(ih/2)*2:0:0"),
        ("format", "pix_fmts=yuv420p"),
    ]


def _picture_mends(about: Probe) -> list[str]:
    mends = []
    if about.rotation:
        mends.append("turned upright")
    if about.sample_aspect != 1:
        width, height = _square_size(about)
        mends.append(f"stretched pixels made square (stored as {about.width}x{about.height}, now {width}x{height})")
    if any(side % 2 for side in _square_size(about)):
        mends.append("cut by one row or column to an even size")
    if about.interlaced:
        mends.append("interlaced lines joined to whole pictures")
    if about.hdr:
        mends.append("HDR colours brought to ordinary ones")
    elif about.bits > 8:
        mends.append(f"{about.bits}-bit colours brought to 8 bits")
    return mends


def _mended(frames: Iterable[Timed], about: Probe) -> Iterator[Timed]:
    """The frames after the filters, which hand out one for each one taken in, some with a delay."""
    graph: Any = None
    waiting, form = deque[float](), None
    for time, frame in frames:
        if form is None:
            form = (frame.width, frame.height, frame.format.name)
            graph = _graph(about, frame)
        if (frame.width, frame.height, frame.format.name) != form:
            return  # the picture changes its size: what follows is another recording
        waiting.append(time)
        graph.push(frame)
        yield from _pull(graph, waiting)
    if graph is not None:
        graph.push(None)
        yield from _pull(graph, waiting)


def _graph(about: Probe, first: Any) -> Any:
    import av

    graph = av.filter.Graph()
    last = graph.add_buffer(
        width=first.width, height=first.height, format=first.format, time_base=first.time_base or Fraction(1, 1000)
    )
    for name, arguments in (*_filters(about), ("buffersink", "")):
        node = graph.add(name, arguments) if arguments else graph.add(name)
        last.link_to(node)
        last = node
    graph.configure()
    return graph


def _pull(graph: Any, waiting: deque[float]) -> Iterator[Timed]:
    import av

    with contextlib.suppress(BlockingIOError, av.EOFError):
        while waiting:
            frame = graph.pull()
            yield waiting.popleft(), frame


# ---- damage and writing ---------------------------------------------------------------------------------------------


class _Damage:
    """Passes frames on until the first damaged one, and remembers why it stopped."""

    def __init__(self) -> None:
        self.reason = ""
        self.last_time = 0.0

    def until(self, frames: Iterable[Timed]) -> Iterator[Timed]:
        try:
            for time, frame in frames:
                self.last_time = time
                yield time, frame
        except DataError as error:
            self.reason = str(error)


def _ends_early(about: Probe, last_time: float) -> bool:
    """Whether an mp4 has far fewer frames than its index promises (streams without an index promise nothing)."""
    return bool(about.frames) and last_time + 2 / max(about.fps, 1) < 0.95 * about.seconds


def _write(frames: Iterator[Any], target: Path, fps: float) -> tuple[int, int, int]:
    """(frames, width, height) written. Raises DataError when fewer than two can be read, CannotWrite."""
    first = next(frames, None)
    second = next(frames, None)
    if first is None or second is None:
        raise DataError("one frame only, or damaged after the first: copy it again, or give a longer clip")
    with media.Writer(target, first.width, first.height, fps, crf=QUALITY, preset="superfast") as writer:
        for frame in (first, second):
            writer.write(frame)
        for frame in frames:
            writer.write(frame)
    return writer.frames, first.width, first.height


def _is_canonical(about: Probe, timing: Timing) -> bool:
    """Whether header and first frame have the canonical form."""
    right_form = about.codec == "h264" and about.pixel_format == "yuv420p" and "mp4" in about.container
    right_picture = not about.rotation and about.sample_aspect == 1 and not about.interlaced and not about.hdr
    even_size = about.width % 2 == 0 and about.height % 2 == 0
    right_time = timing.even and timing.take == 1 and abs(about.fps / float(timing.fps) - 1) < 1e-6
    return right_form and right_picture and even_size and right_time and not about.audio


def _take_as_it_is(source: Path, target: Path, about: Probe) -> Normalised | None:
    """Copy the file if every frame it promises can be decoded and none more (cut copies hide frames), else None."""
    try:
        frames = sum(1 for _ in media.raw_frames(source))
    except DataError:
        return None
    if frames != about.frames:
        return None
    temporary = target.with_name(f".{target.name}.tmp")
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, temporary)
        temporary.replace(target)
    return Normalised(about.fps, frames, about.width, about.height, ())
