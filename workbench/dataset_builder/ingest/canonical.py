"""Bring a foreign video or picture to the canonical form.

That is: constant frame rate, upright, square pixels, even size, 8-bit SDR, H.264 yuv420p, silent. A file that already
has this form is taken byte for byte once each of its frames has been decoded; of one that has it but for its sound, the
video is. Everything else is encoded again without a visible difference (clips.media.writing.FAITHFUL). Not covered:
cutting long videos into scenes.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from workbench.clips import media
from workbench.clips.media import FrameTimes, VideoFacts
from workbench.clips.media.opening import opened
from workbench.dataset_builder.ingest.animations import CODECS, Animation, NumberedFrames, on_white, read_animation
from workbench.dataset_builder.ingest.conversion import (
    Size,
    SizeChanged,
    alike,
    converted,
    picture_changes,
    square_size,
)
from workbench.dataset_builder.ingest.pictures import MAX_PIXELS, MAX_SIDE, PICTURE_FPS, PICTURE_MARK, write_picture
from workbench.dataset_builder.ingest.timing import Timed, Timing, evened, timing_changes, timing_of
from workbench.errors import DataError
from workbench.workspace import disk, make_folder, replacing, sync_folder, writing

MAX_SECONDS = 2 * 3600.0
LONG_SECONDS = 600.0  # longer than what anyone means to be one clip
SAME_TIME = 1e-3  # seconds
ONE_FRAME = "one frame only: give a clip of two frames or more, or the picture as PNG or JPEG"


@dataclass(frozen=True)
class CanonicalClip:
    """What `convert` wrote.

    changes:  what differs from the source, in words; none when it was taken byte for byte
    warnings: what a person should know of it
    middle:   its middle frame (PyAV) where it was decoded anyway, else None; the thumbnail is made of it
    """

    fps: float
    frames: int
    width: int
    height: int
    changes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    middle: Any = None


def convert(
    source: Path, target: Path, longest_side: int | None = None, on_frame: Callable[[], None] = lambda: None
) -> CanonicalClip:
    """Write `target`, the canonical form of `source`, scaled down to `longest_side` pixels where that is given.

    `on_frame` is called after each frame read: a sign of life. Raises DataError with the reason in words, CannotWrite.
    """
    if media.is_picture(source):
        return _convert_picture(source, target, longest_side, on_frame)
    about = media.probe(source, MAX_PIXELS)
    _check_limits(about)
    times = media.read_times(source)
    if len(times.presented) < 2:
        if about.codec in CODECS:
            return _convert_picture(source, target, longest_side, on_frame)
        return _take_own_picture(source, target, about)
    try:
        return _convert_video(source, target, longest_side, on_frame, about, times)
    except SizeChanged:
        part = _longest_part(source, about, on_frame)
        return _convert_video(source, target, longest_side, on_frame, part.about, part.of(times), part)


def _convert_video(
    source: Path,
    target: Path,
    longest_side: int | None,
    on_frame: Callable[[], None],
    about: VideoFacts,
    times: FrameTimes,
    part: _Part | None = None,
) -> CanonicalClip:
    """part: what is taken of a video whose picture changes its size. Raises DataError, CannotWrite, SizeChanged."""
    timing = timing_of(times.presented, (about.fps, about.guessed_fps), times.last)
    if timing.seconds > MAX_SECONDS:
        raise DataError(_too_long(timing.seconds))
    warnings = ("longer than 10 minutes: split it into clips",) if timing.seconds > LONG_SECONDS else ()
    changes = [*picture_changes(about, longest_side), *timing_changes(timing)]
    canonical = not changes and part is None and _is_canonical(about, timing)
    if (
        canonical
        and (not times.by_number or _in_order(source))
        and (copied := _copied_clip(source, target, about, warnings, on_frame)) is not None
    ):
        return copied
    frames = media.raw_frames(source)
    damage = _Damage(timing, on_frame)
    opaque = on_white(damage.until(part.frames(frames) if part else frames), about)
    pictures = evened(converted(opaque, about, longest_side, mixed=part is not None), timing)
    count, middle = _write(pictures, target, timing, on_frame)
    if about.audio:
        changes.append("sound removed")
    if about.tracks > 1:
        changes.append(_tracks_note(about))
    if part:
        changes.append(part.sentence)
    if damage.reason or damage.ends_early(about, times):
        changes.append(f"cut off or damaged: kept the first {count / float(timing.fps):.2f} s ({count} frames)")
    if not changes:
        changes.append(f"rewritten for exact frame access ({about.codec} {about.pixel_format})")
    return CanonicalClip(float(timing.fps), count, middle.width, middle.height, tuple(changes), warnings, middle)


def _tracks_note(about: VideoFacts) -> str:
    """Say which of several video tracks was taken and, if it is not the first, why."""
    ordinal = {1: "first", 2: "second", 3: "third"}.get(about.track, f"{about.track}th")
    taken = f"{about.tracks} video tracks: the {ordinal} one taken ({about.width}x{about.height} {about.codec})"
    return f"{taken}, since before it is {about.passed_over}" if about.passed_over else taken


def _convert_picture(
    source: Path, target: Path, longest_side: int | None, on_frame: Callable[[], None]
) -> CanonicalClip:
    """Write a picture as a clip of one frame, or of all its frames. Raises DataError, CannotWrite."""
    if (animation := read_animation(source, on_frame)) is not None:
        return convert_animation(animation, target, longest_side, on_frame)
    width, height, made = write_picture(source, target, longest_side)
    return CanonicalClip(float(PICTURE_FPS), 1, width, height, made)


def convert_animation(
    animation: Animation | NumberedFrames, target: Path, longest_side: int | None, on_frame: Callable[[], None]
) -> CanonicalClip:
    """Write an animated WebP, or numbered pictures, as a clip. Raises DataError, CannotWrite."""
    if min(animation.size) < 16:
        raise DataError(f"too small: {animation.size[0]}x{animation.size[1]}, at least 16x16: give a larger picture")
    timing = timing_of(animation.times, last=animation.last)
    if timing.seconds > MAX_SECONDS:
        raise DataError(_too_long(timing.seconds))
    changes = (*animation.changes(longest_side), *timing_changes(timing))
    frames, middle = _write(evened(animation.frames(longest_side), timing), target, timing, on_frame)
    return CanonicalClip(float(timing.fps), frames, middle.width, middle.height, changes, (), middle)


def _check_limits(about: VideoFacts) -> None:
    """Refuse from the header what would take hours and gigabytes. Raises DataError."""
    if about.width * about.height > MAX_PIXELS:
        raise DataError(f"too large: {about.width}x{about.height}, at most 4096x2304: scale it down first")
    if about.seconds > MAX_SECONDS:
        raise DataError(_too_long(about.seconds))
    if min(about.width, about.height) < 16:
        raise DataError(f"too small: {about.width}x{about.height}, at least 16x16: give a larger picture")
    width, height = square_size(about)
    if width * height > MAX_PIXELS or max(width, height) > MAX_SIDE:
        aspect = about.sample_aspect
        stretched = f", with pixels of {aspect.numerator}:{aspect.denominator} made square" if aspect != 1 else ""
        raise DataError(
            f"too large: {width}x{height}{stretched}, at most 4096x2304 and {MAX_SIDE} a side: scale it down, or "
            "correct the shape of its pixels"
        )


def _too_long(seconds: float) -> str:
    return f"too long: {seconds / 3600:.1f} hours, at most {MAX_SECONDS / 3600:g}: cut it into parts first"


class _Damage:
    """Passes frames on until the first damaged or missing one, and remembers why it stopped."""

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
        """Whether far fewer frames came than the file's header promises, or than there are packets."""
        end = self._last_time + times.last + 2 / max(about.fps, 1)
        cut = not times.whole or (bool(about.frames) and end < 0.95 * about.seconds)
        return cut or self._frames < 0.9 * len(times.presented)  # some codecs have packets that show nothing


def _write(frames: Iterator[Any], target: Path, timing: Timing, on_frame: Callable[[], None]) -> tuple[int, Any]:
    """(frames written, the middle one or the last before it). Raises DataError for fewer than two, CannotWrite."""
    first = next(frames, None)
    second = next(frames, None)
    if first is None or second is None:
        raise DataError("one frame only, or damaged after the first: copy it again, or give a longer clip")
    middle, half = first, round(timing.seconds * timing.fps) // 2
    with media.VideoWriter(target, first.width, first.height, timing.fps, like=first) as writer:
        for frame in itertools.chain((first, second), frames):
            middle = frame if writer.frames <= half else middle
            writer.write(frame)
            on_frame()
    return writer.frames, middle


# ---- a picture that changes its size --------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Part:
    """The frames of a video that are taken: those in a row that have the same proportions, to be scaled to one size.

    end: the frame after the last, None for all that follow; seconds: when the first is shown;  about: facts for them
    """

    start: int
    end: int | None
    seconds: float
    about: VideoFacts
    sentence: str

    def of(self, times: FrameTimes) -> FrameTimes:
        """Return the times of these frames only."""
        shown = [time - self.seconds for time in times.presented[self.start : self.end]]
        return replace(times, presented=shown, last=times.last if self.end is None else 0.0)

    def frames(self, frames: Iterable[Timed]) -> Iterator[Timed]:
        """Yield only these frames, with times from 0."""
        for time, frame in itertools.islice(frames, self.start, self.end):
            yield time - self.seconds, frame


def _longest_part(source: Path, about: VideoFacts, on_frame: Callable[[], None]) -> _Part:
    """Decode a video whose picture changes its size, and choose what is taken. Raises DataError."""
    starts: list[tuple[int, float, Counter[Size]]] = []  # a run of like proportions each
    count = 0
    with contextlib.suppress(DataError):  # damage is said when the frames are taken
        for time, frame in media.raw_frames(source):
            size = (frame.width, frame.height)
            if not starts or not alike(size, next(iter(starts[-1][2]))):
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
    named = ", ".join(f"{w}x{h}" for w, h in dict.fromkeys(size for _, _, sizes in starts for size in sizes))
    said = [f"the size of the picture changes ({named})"]
    if len(sizes) > 1:
        said.append(f"scaled to {width}x{height}")
    if len(starts) > 1:
        said.append(
            f"frames {start + 1} to {start + sizes.total()} of {count} taken, the others have other proportions"
        )
    return _Part(start, end, seconds, chosen, ": ".join((said[0], "; ".join(said[1:]))))


# ---- taking a canonical file as it is -------------------------------------------------------------------------------


def _is_canonical(about: VideoFacts, timing: Timing) -> bool:
    """Whether a file of which nothing else has to be converted is canonical, but for its sound and metadata."""
    right_form = about.codec == "h264" and about.pixel_format == "yuv420p" and "mp4" in about.container
    right_time = abs(about.fps / float(timing.fps) - 1) < 1e-6
    return right_form and right_time and about.tracks == 1


def _in_order(source: Path) -> bool:
    """Whether each decoded frame carries a later time than the one before it.

    The packets of a video whose encoder may reorder frames but never did look like those of one with wrong times.
    """
    import av

    try:
        with opened(source) as (container, stream):
            shown = [frame.time for frame in container.decode(stream)]
    except (av.FFmpegError, DataError):
        return False
    return all(one is not None and other is not None and one < other for one, other in itertools.pairwise(shown))


def _copied_clip(
    source: Path, target: Path, about: VideoFacts, warnings: tuple[str, ...], on_frame: Callable[[], None]
) -> CanonicalClip | None:
    """A video that is canonical but for sound and metadata, without a second encoding; None where that fails."""
    facts = (about.fps, about.frames, about.width, about.height)
    own = media.has_own_metadata(source)  # it may hold paths, names and places, and datasets are given away
    if not about.audio and not own:
        taken = _take_as_it_is(source, target, about.frames, on_frame)
        return CanonicalClip(*facts, (), warnings) if taken else None
    middle = _copy_video(source, target, about.frames, on_frame)
    if middle is None:
        return None
    removed = " and ".join([*["sound"] * bool(about.audio), *["metadata"] * own])
    return CanonicalClip(*facts, (f"{removed} removed: its video is copied as it is",), warnings, middle)


def _take_as_it_is(source: Path, target: Path, promised: int, on_frame: Callable[[], None]) -> bool:
    """Copy the file if every frame it promises can be decoded and none more (cut copies hide frames)."""
    frames, sizes = 0, set[Size]()
    try:
        for _, frame in media.raw_frames(source):
            frames += 1
            sizes.add((frame.width, frame.height))
            on_frame()
    except DataError:
        return False
    if frames != promised or len(sizes) > 1:
        return False
    with replacing(target) as temporary:
        shutil.copyfile(source, temporary)
    return True


def _take_own_picture(source: Path, target: Path, about: VideoFacts) -> CanonicalClip:
    """Take a one-frame clip that we once made of a picture; any other such video is a mistake. Raises DataError."""
    if media.read_comment(source) != PICTURE_MARK or not _take_as_it_is(source, target, 1, lambda: None):
        raise DataError(ONE_FRAME)
    return CanonicalClip(float(PICTURE_FPS), 1, about.width, about.height)


def _copy_video(source: Path, target: Path, promised: int, on_frame: Callable[[], None]) -> Any:
    """Write the first video stream of `source` as an mp4 of its own; its middle frame (PyAV).

    None, and no file, when the copy would not show exactly the source's `promised` frames at their times. `on_frame` is
    called after each frame compared. Raises CannotWrite.
    """
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        make_folder(target.parent)
        if not _remuxed(source, temporary):
            return None
        middle = _middle_of_equal(source, temporary, promised, on_frame)
        if middle is not None:
            with writing(target):
                with temporary.open("rb") as file:
                    os.fsync(file.fileno())
                disk.replace(temporary, target)
                sync_folder(target.parent)
        return middle
    finally:
        temporary.unlink(missing_ok=True)


def _remuxed(source: Path, target: Path) -> bool:
    """Write the packets of the first video stream as a new mp4; False where that fails. Raises CannotWrite."""
    import av

    options = {"movflags": "+faststart"}
    try:
        with opened(source) as (container, stream), writing(target), av.open(str(target), "w", "mp4", options) as new:
            copy = new.add_stream_from_template(stream)
            for packet in container.demux(stream):
                if packet.dts is not None:  # the last one is empty
                    packet.stream = copy
                    new.mux(packet)
    except ValueError:  # a stream that an mp4 cannot hold as it is, or a damaged one
        return False
    return True


def _middle_of_equal(source: Path, copy: Path, promised: int, on_frame: Callable[[], None]) -> Any:
    """The middle frame, if both videos have the same frames at the same times; else None."""
    import numpy as np

    frames, middle, sizes = 0, None, set[Size]()
    try:
        for one, other in itertools.zip_longest(media.raw_frames(source), media.raw_frames(copy)):
            if one is None or other is None or abs(one[0] - other[0]) > SAME_TIME:
                return None
            if not np.array_equal(one[1].to_ndarray(), other[1].to_ndarray()):
                return None
            middle = other[1] if frames == promised // 2 else middle
            frames += 1
            sizes.add((one[1].width, one[1].height))
            on_frame()
    except DataError:
        return None
    return middle if frames == promised and len(sizes) == 1 else None
