"""Convert a source video or picture to the canonical form.

Canonical clips have a constant frame rate, square pixels and an even size, are upright, 8-bit SDR, H.264 yuv420p, with
the source's sound, if any, as AAC in at most two channels. A file that is already canonical is copied byte for byte
after a full decode; if only its sound must change or metadata has to go, the video stream is copied. Anything else is
re-encoded without visible loss (clips.media.FAITHFUL).

A constant-rate source keeps exactly its frames (every n-th above 60 fps). Variable-rate sources are resampled by
timestamp, and very long stills are shortened. FFmpeg filters convert the pixels; frames that are already canonical
bypass them, so their colors stay untouched.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import shutil
import statistics
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Any

from workbench.clips import media, sound
from workbench.clips.media import filter_graph
from workbench.clips.video_files import FrameTimes, VideoFacts, opened
from workbench.dataset_builder.ingest import pictures
from workbench.dataset_builder.ingest.pictures import Animation, Size, Timed, reduced, same_aspect
from workbench.errors import DataError
from workbench.workspace import replacing

MAX_SECONDS = 2 * 3600.0
LONG_SECONDS = 600.0  # anything longer is probably not meant as one clip
SAME_TIME = 1e-3  # seconds
ONE_FRAME = "only one frame: use a clip with at least two frames, or save the picture as PNG or JPEG"


@dataclass(frozen=True)
class CanonicalClip:
    """The clip that `convert` wrote.

    changes: what differs from the source, in words; empty for an exact copy.
    warnings: notes for the user.
    middle: the middle frame (PyAV) for the thumbnail, or None if it was not decoded.
    """

    fps: float
    frames: int
    width: int
    height: int
    changes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    middle: Any = None


def convert(
    source: Path,
    target: Path,
    longest_side: int | None = None,
    on_frame: Callable[[], None] = lambda: None,
    *,
    keep_sound: bool = True,
) -> CanonicalClip:
    """Write the canonical form of `source` to `target`, scaled down to `longest_side` pixels if given.

    on_frame: called after each frame read, as a heartbeat. Raises DataError with the reason, CannotWrite.
    """
    if media.is_picture(source):
        return _convert_picture(source, target, longest_side, on_frame)
    about = media.probe(source, pictures.MAX_PIXELS)
    _check_limits(about)
    times = media.read_times(source)
    if len(times.presented) < 2:
        if about.codec in pictures.CODECS:
            return _convert_picture(source, target, longest_side, on_frame)
        # We make one-frame clips from pictures and accept them back. Any other one-frame video is a mistake.
        if (
            media.read_comment(source) != pictures.PICTURE_MARK
            or (only := _copied(source, target, 1, True, on_frame)) is None
        ):
            raise DataError(ONE_FRAME)
        return CanonicalClip(float(pictures.PICTURE_FPS), 1, about.width, about.height, middle=only)
    try:
        return _convert_video(source, target, longest_side, on_frame, keep_sound, about, times)
    except SizeChanged:
        part = _longest_part(source, about, on_frame)
        return _convert_video(source, target, longest_side, on_frame, keep_sound, part.about, part.of(times), part)


def _convert_video(
    source: Path,
    target: Path,
    longest_side: int | None,
    on_frame: Callable[[], None],
    keep_sound: bool,
    about: VideoFacts,
    times: FrameTimes,
    part: _Part | None = None,
) -> CanonicalClip:
    """Convert a video, or the given part of one whose size changes. Raises DataError, CannotWrite, SizeChanged."""
    timing = timing_of(times.presented, (about.fps, about.guessed_fps), times.last)
    if timing.seconds > MAX_SECONDS:
        raise DataError(_too_long(timing.seconds))
    warnings = ("longer than 10 minutes: split it into clips",) if timing.seconds > LONG_SECONDS else ()
    changes = [*picture_changes(about, longest_side), *timing_changes(timing)]
    # Canonical except for sound and metadata.
    right_form = about.codec == "h264" and about.pixel_format == "yuv420p" and "mp4" in about.container
    right_time = abs(about.fps / float(timing.fps) - 1) < 1e-6
    canonical = not changes and part is None and right_form and right_time and about.tracks == 1
    if canonical and (not times.by_number or _in_order(source)):
        own = media.has_own_metadata(source)  # may reveal paths, names and places when the dataset is shared
        seconds = about.frames / about.fps
        whole = not own and (not about.audio or (keep_sound and sound.is_canonical(source, seconds, on_frame)))
        if (middle := _copied(source, target, about.frames, whole, on_frame)) is not None:
            if about.audio and not whole:
                changes += _take_sound(source, target, [(0.0, seconds)], keep_sound, on_frame)
            changes += ["metadata removed"] * own
            note = () if whole else (f"{' and '.join(changes)}: video copied unchanged",)
            return CanonicalClip(about.fps, about.frames, about.width, about.height, note, warnings, middle)
    frames = media.raw_frames(source)
    damage = _Damage(timing, on_frame)
    opaque = pictures.on_white(damage.until(part.frames(frames) if part else frames), about)
    steady = resampled(converted(opaque, about, longest_side, mixed=part is not None), timing)
    count, middle = _write(steady, target, timing, on_frame)
    if about.audio:
        spans = _kept_spans(times.presented, timing, count / float(timing.fps), part.seconds if part else 0.0)
        changes += _take_sound(source, target, spans, keep_sound, on_frame)
    if about.tracks > 1:
        ordinal = {1: "first", 2: "second", 3: "third"}.get(about.track, f"{about.track}th")
        used = f"{about.tracks} video tracks: used the {ordinal} ({about.width}x{about.height} {about.codec})"
        changes.append(f"{used}, because the one before is {about.passed_over}" if about.passed_over else used)
    if part:
        changes.append(part.sentence)
    if damage.reason or damage.ends_early(about, times):
        changes.append(f"cut off or damaged: kept the first {count / float(timing.fps):.2f} s ({count} frames)")
    if not changes:
        changes.append(f"re-encoded for exact frame access ({about.codec} {about.pixel_format})")
    return CanonicalClip(float(timing.fps), count, middle.width, middle.height, tuple(changes), warnings, middle)


def _take_sound(
    source: Path, target: Path, spans: Sequence[tuple[float, float]], keep: bool, tick: Callable[[], None]
) -> list[str]:
    """Give the clip at `target` the sound of these spans of `source`; return what happened, in words."""
    if not keep:
        return ["sound removed"]
    try:
        damaged: list[float] = []
        if sound.carry(source, target, spans, tick, damaged):
            where = f", silent where it is damaged (from {max(0.0, damaged[0]):.1f} s on)" if damaged else ""
            return [f"sound re-encoded{where}"]
        return [] if sound.has_sound(source) else ["sound left out: its codec is not supported"]
    except DataError as error:
        return [f"sound left out: {error}"]


def _kept_spans(times: list[float], timing: Timing, seconds: float, start: float) -> list[tuple[float, float]]:
    """Return which spans of the source a clip of so many seconds shows; without parts of very long stills, several.

    times: of the frames, from 0, which is at `start` in the source.
    """
    spans, begin = list[tuple[float, float]](), 0.0
    if not timing.even:  # as in `resampled`
        for one, other in itertools.pairwise(times):
            if other - one > LONGEST_STILL:
                spans.append((start + begin, start + one + LONGEST_STILL))
                begin = other
    left = seconds - sum(end - first for first, end in spans)
    return [*spans, (start + begin, start + begin + max(0.0, left))]


def _convert_picture(
    source: Path, target: Path, longest_side: int | None, on_frame: Callable[[], None]
) -> CanonicalClip:
    """Write a picture as a one-frame clip, or an animated one with all its frames. Raises DataError, CannotWrite."""
    if (animation := pictures.read_animation(source, on_frame)) is not None:
        return convert_animation(animation, target, longest_side, on_frame)
    width, height, made = pictures.write_picture(source, target, longest_side)
    return CanonicalClip(float(pictures.PICTURE_FPS), 1, width, height, made)


def convert_animation(
    animation: Animation, target: Path, longest_side: int | None, on_frame: Callable[[], None]
) -> CanonicalClip:
    """Write an animated picture or numbered pictures as a clip. Raises DataError, CannotWrite."""
    if min(animation.size) < 16:
        raise DataError(f"too small: {animation.size[0]}x{animation.size[1]}, at least 16x16: use a larger picture")
    timing = timing_of(animation.times, last=animation.last)
    if timing.seconds > MAX_SECONDS:
        raise DataError(_too_long(timing.seconds))
    changes = (*animation.changes(longest_side), *timing_changes(timing))
    frames, middle = _write(resampled(animation.frames(longest_side), timing), target, timing, on_frame)
    return CanonicalClip(float(timing.fps), frames, middle.width, middle.height, changes, (), middle)


def _check_limits(about: VideoFacts) -> None:
    """Refuse, from the header alone, files that would take hours or gigabytes. Raises DataError."""
    if about.width * about.height > pictures.MAX_PIXELS:
        raise DataError(f"too large: {about.width}x{about.height}, at most 4096x2304: scale it down first")
    if about.seconds > MAX_SECONDS:
        raise DataError(_too_long(about.seconds))
    if min(about.width, about.height) < 16:
        raise DataError(f"too small: {about.width}x{about.height}, at least 16x16: use a larger picture")
    width, height = square_size(about)
    if width * height > pictures.MAX_PIXELS or max(width, height) > pictures.MAX_SIDE:
        aspect = about.sample_aspect
        stretched = f" after making {aspect.numerator}:{aspect.denominator} pixels square" if aspect != 1 else ""
        raise DataError(
            f"too large: {width}x{height}{stretched}, at most 4096x2304 and {pictures.MAX_SIDE} per side: "
            "scale it down, or correct its pixel aspect ratio"
        )


def _too_long(seconds: float) -> str:
    return f"too long: {seconds / 3600:.1f} hours, at most {MAX_SECONDS / 3600:g}: cut it into parts first"


class _Damage:
    """Pass frames on until the first damaged or missing one, and remember why that stopped."""

    def __init__(self, timing: Timing, on_frame: Callable[[], None]) -> None:
        self.reason = ""
        self._timing, self._on_frame = timing, on_frame
        self._frames, self._last_time = 0, 0.0

    def until(self, frames: Iterable[Timed]) -> Iterator[Timed]:
        try:
            for time, frame in frames:
                if self._timing.even and time / self._timing.step - self._frames > 0.75:
                    raise DataError(f"frame {self._frames + 1} is missing")
                self._frames, self._last_time = self._frames + 1, time
                self._on_frame()
                yield time, frame
        except DataError as error:
            self.reason = str(error)

    def ends_early(self, about: VideoFacts, times: FrameTimes) -> bool:
        """Whether far fewer frames were decoded than the header or the number of packets promises."""
        end = self._last_time + times.last + 2 / max(about.fps, 1)
        cut = not times.whole or (bool(about.frames) and end < 0.95 * about.seconds)
        return cut or self._frames < 0.9 * len(times.presented)  # in some codecs, not every packet yields a frame


def _write(frames: Iterator[Any], target: Path, timing: Timing, on_frame: Callable[[], None]) -> tuple[int, Any]:
    """Write frames; return their number and the middle one. Raises DataError for fewer than two, CannotWrite."""
    first = next(frames, None)
    second = next(frames, None)
    if first is None or second is None:
        raise DataError("only one frame, or damaged after the first: copy it again, or use a longer clip")
    middle, half = first, round(timing.seconds * timing.fps) // 2
    with media.VideoWriter(target, first.width, first.height, timing.fps, like=first) as writer:
        for frame in itertools.chain((first, second), frames):
            middle = frame if writer.frames <= half else middle
            writer.write(frame)
            on_frame()
    return writer.frames, middle


# ---- videos whose frame size changes ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Part:
    """The frames to keep: a consecutive run with one aspect ratio, to be scaled to one size.

    end: the frame after the last, or None for the end of the video.
    seconds: timestamp of the first frame.
    about: the video's facts, adapted to these frames.
    sentence: the change in words.
    """

    start: int
    end: int | None
    seconds: float
    about: VideoFacts
    sentence: str

    def of(self, times: FrameTimes) -> FrameTimes:
        """Return the times of these frames, from 0."""
        shown = [time - self.seconds for time in times.presented[self.start : self.end]]
        return replace(times, presented=shown, last=times.last if self.end is None else 0.0)

    def frames(self, frames: Iterable[Timed]) -> Iterator[Timed]:
        """Yield these frames, with times from 0."""
        for time, frame in itertools.islice(frames, self.start, self.end):
            yield time - self.seconds, frame


def _longest_part(source: Path, about: VideoFacts, on_frame: Callable[[], None]) -> _Part:
    """Decode a video whose frame size changes and choose the longest part of one shape. Raises DataError."""
    starts: list[tuple[int, float, Counter[Size]]] = []  # one entry per run of frames with the same aspect ratio
    count = 0
    with contextlib.suppress(DataError):  # damage is reported when the frames are converted
        for time, frame in media.raw_frames(source):
            size = (frame.width, frame.height)
            if not starts or not same_aspect(size, next(iter(starts[-1][2]))):
                starts.append((count, time, Counter()))
            starts[-1][2][size] += 1
            count += 1
            on_frame()
    number = max(range(len(starts)), key=lambda index: starts[index][2].total())
    start, seconds, sizes = starts[number]
    end = starts[number + 1][0] if number + 1 < len(starts) else None
    width, height = sizes.most_common(1)[0][0]
    turned = about.rotation % 180 == 90
    chosen = replace(about, width=height if turned else width, height=width if turned else height, frames=0, seconds=0)
    _check_limits(chosen)
    changes = []
    if len(sizes) > 1:
        changes.append(f"scaled to {width}x{height}")
    if len(starts) > 1:
        kept = f"kept frames {start + 1} to {start + sizes.total()} of {count}"
        changes.append(f"{kept}, the others have a different aspect ratio")
    named = ", ".join(f"{w}x{h}" for w, h in dict.fromkeys(size for _, _, sizes in starts for size in sizes))
    return _Part(start, end, seconds, chosen, f"the frame size changes ({named}): {'; '.join(changes)}")


# ---- copying canonical files -----------------------------------------------------------------------------------------


def _in_order(source: Path) -> bool:
    """Whether the timestamps of decoded frames increase.

    Needed if the encoder could reorder frames but never did: its packets look like those of a file with wrong times.
    """
    import av

    try:
        with opened(source) as (container, stream):
            shown = [frame.time for frame in container.decode(stream)]
    except (av.FFmpegError, DataError):
        return False
    return all(one is not None and other is not None and one < other for one, other in itertools.pairwise(shown))


def _copied(source: Path, target: Path, promised: int, whole: bool, on_frame: Callable[[], None]) -> Any:
    """Copy the file if `whole`, else only its video stream, and return the middle frame (PyAV). Raises CannotWrite.

    Return None and write no file unless the copy has exactly the `promised` frames (trimmed files hide some), with the
    source's times and pixels. on_frame: called after each frame.
    """
    import numpy as np

    frames, middle, sizes = 0, None, set[Size]()
    try:
        with replacing(target) as copy:
            if whole:
                shutil.copyfile(source, copy)
            else:
                media.copy_packets(source, copy)
            sources = itertools.repeat(None) if whole else media.raw_frames(source)
            for one, other in zip(sources, media.raw_frames(copy), strict=not whole):
                same = one is None or np.array_equal(one[1].to_ndarray(), other[1].to_ndarray())
                if not same or (one is not None and abs(one[0] - other[0]) > SAME_TIME):
                    raise DataError(f"frame {frames + 1} of the copy differs")
                middle = other[1] if frames == promised // 2 else middle
                frames += 1
                sizes.add((other[1].width, other[1].height))
                on_frame()
            if frames != promised or len(sizes) != 1:
                raise DataError(f"{frames} frames of {len(sizes)} sizes, expected {promised}")
    except (DataError, ValueError):  # ValueError: zip lengths differ, or an mp4 cannot hold the stream
        return None
    return middle


# ---- timing ----------------------------------------------------------------------------------------------------------

MAX_FPS = 60
ROUNDING = 0.002  # seconds; error of a frame interval in containers with millisecond timestamps
SAME_RATE = 5e-4  # relative difference of equal rates; 30 and 29.97 differ by more
LONGEST_STILL = 30.0  # seconds; screen recorders write no frames while nothing moves, possibly for hours
LAST_STILL = 1.0  # seconds; a last frame shown for longer counts as a still


@dataclass(frozen=True)
class Timing:
    """How to reach a constant frame rate: keep every `take`-th frame if even, else resample by timestamp.

    step: mean seconds between source frames. seconds: the resulting duration.
    last: seconds the last frame is a still, or 0 if it lasts as long as the others.
    stills: number of stills to shorten.
    """

    fps: Fraction
    source_fps: float
    step: float
    even: bool
    take: int = 1
    last: float = 0.0
    stills: int = 0
    seconds: float = 0.0


def timing_of(times: list[float], declared: Sequence[float] = (), last: float = 0.0) -> Timing:
    """Choose a constant rate for two or more frames. A source is even if each frame is closest to its own slot.

    times: when each frame is shown, in seconds.
    declared: frame rates from the header, the most likely first.
    last: seconds the last frame is shown, or 0 if unknown.
    """
    step = times[-1] / (len(times) - 1)
    last = last if last > max(LAST_STILL, 10 * step) else 0.0
    even = (
        0 < step <= LONGEST_STILL
        and not last
        and all(abs(time - number * step) < 0.3 * step for number, time in enumerate(times))
    )
    if even:
        # The header is more precise than timestamps rounded to milliseconds.
        tolerance = max(SAME_RATE, ROUNDING / times[-1])
        rate = next((rate for rate in declared if abs(rate * step - 1) < tolerance), 1 / step)
        take = max(1, math.ceil(rate / MAX_FPS - 1e-3))
        return Timing(_neat(rate) / take, rate, step, True, take, seconds=times[-1])
    steps = [later - earlier for earlier, later in zip(times, times[1:], strict=False) if later > earlier]
    usual = statistics.median(steps) if steps else 1.0
    # Average over similar steps: with millisecond timestamps, 30 fps has steps of 33 and 34 ms.
    rate = 1 / statistics.fmean([step for step in steps if abs(step / usual - 1) < 0.1] or [usual])
    stills = sum(one > LONGEST_STILL for one in (*steps, last))
    seconds = sum(min(one, LONGEST_STILL) for one in (*steps, last))
    return Timing(Fraction(min(MAX_FPS, max(1, round(rate)))), rate, step, False, 1, last, stills, seconds)


def _neat(rate: float) -> Fraction:
    """Round to a standard rate: 29.9697 -> 30000/1001."""
    whole = max(1, round(rate))
    for standard in (Fraction(whole), Fraction(whole * 1000, 1001)):
        if abs(rate / float(standard) - 1) < 4e-4:
            return standard
    return Fraction(rate).limit_denominator(1001)


def timing_changes(timing: Timing) -> list[str]:
    """Describe the changes to timing, in words."""
    if not timing.even:
        variable = f"variable frame rate (about {timing.source_fps:.3g} fps)"
        changes = [f"{variable} converted to a constant {float(timing.fps):g} fps"]
        if timing.stills:
            count = "a still" if timing.stills == 1 else f"{timing.stills} stills"
            changes.append(f"{count} longer than {LONGEST_STILL:g} s shortened to {LONGEST_STILL:g} s")
        return changes
    if timing.take > 1:
        ending = {2: "nd", 3: "rd"}.get(timing.take, "th")
        kept = f"kept every {timing.take}{ending} frame"
        return [f"{timing.source_fps:.4g} fps reduced to {float(timing.fps):.4g} fps: {kept}"]
    return []


def resampled(frames: Iterable[Timed], timing: Timing) -> Iterator[Any]:
    """Yield frames at the constant rate: for an uneven source, the latest frame at the middle of each slot."""
    if timing.even:
        yield from (frame for number, (_, frame) in enumerate(frames) if number % timing.take == 0)
        return
    fps, slot, held, before, cut = float(timing.fps), 0, None, 0.0, 0.0
    for presented, frame in frames:
        cut = max(cut, presented - before - LONGEST_STILL)
        time = presented - cut
        while held is not None and (slot + 0.5) / fps < time:
            yield held
            slot += 1
        held, before = frame, time
    if held is not None:
        yield from itertools.repeat(held, 1 + round(fps * min(timing.last, LONGEST_STILL)))


# ---- pixels ----------------------------------------------------------------------------------------------------------

REWRITE = "save it again as an ordinary mp4"
RGB = 0
PLAIN_MATRICES = (1, 2, 5, 6)  # BT.709, unspecified, BT.601 (twice): players display all of these correctly


def square_size(about: VideoFacts) -> Size:
    """Return the stored width and height with one side enlarged to make pixels square, so that no detail is lost."""
    width, height = (about.height, about.width) if about.rotation % 180 == 90 else (about.width, about.height)
    aspect = about.sample_aspect
    return (round(width * aspect), height) if aspect >= 1 else (width, round(height / aspect))


def picture_changes(about: VideoFacts, longest_side: int | None = None) -> list[str]:
    """Describe the changes to the pixels, in words; empty if they are canonical."""
    changes = []
    width, height = size = square_size(about)
    if about.flipped:
        changes.append("rotated and mirrored as its metadata says")
    elif about.rotation:
        changes.append("turned upright")
    if about.sample_aspect != 1:
        changes.append(f"non-square pixels made square (stored as {about.width}x{about.height}, now {width}x{height})")
    if (smaller := reduced(size, longest_side)) != size:
        changes.append(f"scaled down from {width}x{height}")
    if any(side % 2 for side in smaller):
        changes.append("cropped by one row or column to an even size")
    if about.interlaced:
        changes.append("deinterlaced")
    if about.hdr:
        changes.append("HDR colors converted to SDR")
    elif about.bits > 8:
        changes.append(f"{about.bits}-bit colors reduced to 8 bits")
    if about.matrix not in (*PLAIN_MATRICES, RGB) and not about.hdr:
        changes.append("uncommon color matrix converted to BT.709")
    if about.full_range:
        changes.append("full-range colors converted to video range")
    if about.alpha:
        changes.append(pictures.MADE_WHITE if about.codec in ("gif", "apng") else "transparency removed")
    return changes


class SizeChanged(Exception):
    """The frame size changes in the middle of the video."""


def converted(
    frames: Iterable[Timed], about: VideoFacts, longest_side: int | None = None, mixed: bool = False
) -> Iterator[Timed]:
    """Yield frames in canonical form. Raises SizeChanged, DataError.

    mixed: scale frames of other sizes to that of `about` instead of raising SizeChanged.
    """
    graph, kind = None, None
    waiting = deque[float]()
    steps = _filters(about, longest_side, mixed)
    for time, frame in frames:
        new = (frame.width, frame.height, frame.format.name)
        if new != kind:
            if kind is not None and new[:2] != kind[:2] and not mixed:
                raise SizeChanged
            if graph is not None:
                yield from _pushed(graph, None, about, waiting)
            # The pixel format changed midway, so frames that needed no filters at first may need them now.
            steps = steps or (_filters(about, longest_side, True) if kind is not None else [])
            graph, kind = filter_graph(frame, steps) if steps else None, new
        if graph is None:
            yield time, frame
        else:
            waiting.append(time)
            yield from _pushed(graph, frame, about, waiting)
    if graph is not None:
        yield from _pushed(graph, None, about, waiting)


def _filters(about: VideoFacts, longest_side: int | None, needed: bool = False) -> list[tuple[str, str]]:
    """Return the FFmpeg filters for the canonical form; none for frames that have it, unless `needed`."""
    if not needed and about.pixel_format == "yuv420p" and not picture_changes(about, longest_side):
        return []
    width, height = reduced(square_size(about), longest_side)
    colors = "out_range=tv"
    if about.hdr or about.matrix not in PLAIN_MATRICES:
        colors += ":out_color_matrix=bt709"
    if about.hdr:
        colors += ":out_primaries=bt709:out_transfer=bt709:intent=perceptual"
    turns = {90: [("transpose", "cclock")], 180: [("hflip", ""), ("vflip", "")], 270: [("transpose", "clock")]}
    return [
        *([("bwdif", "mode=send_frame")] if about.interlaced else []),
        ("scale", f"w={width}:h={height}:flags=lanczos+accurate_rnd:{colors}"),
        *turns.get(about.rotation, []),
        *([("hflip", "")] if about.flipped else []),
        ("crop", "trunc(iw/2)*2:trunc(ih/2)*2:0:0"),
        ("format", "pix_fmts=yuv420p"),
    ]


def _pushed(graph: Any, frame: Any, about: VideoFacts, waiting: deque[float]) -> Iterator[Timed]:
    """Push a frame (None to flush) through the filters and yield what comes out. Raises DataError."""
    import av

    try:
        graph.push(frame)
        with contextlib.suppress(BlockingIOError, av.EOFError):
            while waiting:  # one frame out for each frame in, sometimes delayed
                frame = graph.pull()
                yield waiting.popleft(), frame
    except (av.FFmpegError, ValueError) as error:
        kind = f"{about.pixel_format}, matrix {about.matrix}" + (", HDR" if about.hdr else "")
        raise DataError(f"its color format cannot be converted ({kind}): {REWRITE}") from error
