"""Read, write and measure the sound of video files.

Time 0 of a sound is the video's first picture, whatever timestamps the file has: sound that starts later is preceded by
silence, gaps are filled with silence, and earlier sound is left out. Our own files carry AAC: every browser plays it.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from workbench.clips.records import Sound
from workbench.clips.video_files import JUMP_BACK, opened, opened_sound, probe
from workbench.errors import DataError
from workbench.workspace import replacing

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Samples = NDArray[np.float32]
else:
    Samples = Any

LAYOUTS = {1: "mono", 2: "stereo"}
# Sample rates in Hz that an AAC encoder takes, up to the highest that people hear.
RATES = (8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000)
BITS_A_SECOND = 96_000  # per channel; nothing is heard missing, even where a part is cut and encoded a second time
CHUNK = 1024  # samples of silence written at once
PREROLL = 0.5  # seconds decoded before a start in the middle, so that the decoder has settled
GAP = 0.02  # seconds: timestamps rounded to milliseconds jitter by less
LONGEST_GAP = 7200.0  # seconds
DAMAGED = "the sound of {} cannot be read ({}): copy the file again, or save it without sound"


def has_sound(path: Path) -> bool:
    """Whether a video has a sound track that can be decoded. Raises DataError if the file is no video."""
    with opened(path) as (container, _):
        return _track(container) is not None


def read_sound(
    path: Path,
    *,
    start: float = 0.0,
    seconds: float | None = None,
    rate: int = 16000,
    channels: int = 2,
    alone: bool = False,
) -> Samples:
    """Read a video's sound, resampled.

    Args:
        start: Seconds after the first picture at which to start.
        seconds: How much to read, padded with silence where the sound is shorter; None to read to the sound's end.
        rate: Samples a second.
        channels: 1 or 2; others are mixed to these.
        alone: The file may be of sound alone, such as wav.

    Returns:
        float32 [channels, samples] from -1 to 1, exactly `round(seconds * rate)` samples if `seconds` is given.

    Raises:
        DataError: The file is no video, has no sound track, or its sound is damaged.
    """
    import numpy as np

    wanted = None if seconds is None else round(seconds * rate)
    parts, count = [np.zeros((channels, 0), np.float32)], 0
    for part in sound_chunks(path, start=start, rate=rate, channels=channels, alone=alone):
        parts.append(part)
        count += part.shape[1]
        if wanted is not None and count >= wanted:
            break
    samples = np.concatenate(parts, axis=1)
    if wanted is None:
        return samples
    return np.pad(samples[:, :wanted], ((0, 0), (0, max(0, wanted - count))))


def read_span(path: Path, span: tuple[float, float, float], rate: int) -> Samples:
    """Read the sound of planned frames (FramePlan.sound_span): float32 [2, samples]. Raises DataError."""
    import numpy as np

    start, there, wanted = span
    # Sound that is to become faster is read at a lower rate, which has as many samples in all.
    samples = read_sound(path, start=start, seconds=there, rate=round(rate * wanted / there))
    count = round(wanted * rate)
    return np.pad(samples[:, :count], ((0, 0), (0, max(0, count - samples.shape[1]))))


def sound_chunks(
    path: Path,
    *,
    start: float = 0.0,
    rate: int,
    channels: int,
    skipped: list[float] | None = None,
    alone: bool = False,
) -> Iterator[Samples]:
    """Yield a video's sound from `start` on in consecutive pieces, as `read_sound` does. Raises DataError.

    skipped: a list for the times of damaged places in seconds, which are then silent instead of an error.
    """
    import av
    import numpy as np

    try:
        with (opened_sound if alone else opened)(path) as (container, pictures):
            if (track := _track(container)) is None:
                raise DataError(f"{path.name} has no sound track: import a file that has one")
            mixed = min(channels, track.channels)  # FFmpeg would play mono at 0.7 of its loudness in stereo
            layout, own_rate = LAYOUTS[mixed], track.rate
            pieces = _decoded(container, track, pictures, start, layout, skipped)
            if own_rate != rate:
                pieces = _resampled(pieces, own_rate, rate, layout)
            yield from (piece if mixed == channels else np.repeat(piece, channels, axis=0) for piece in pieces)
    except (av.FFmpegError, ValueError) as error:
        raise DataError(DAMAGED.format(path.name, getattr(error, "strerror", None) or error)) from error


def _track(container: Any) -> Any:
    """Return the first sound track that can be decoded, or None."""
    tracks = (one for one in container.streams.audio if one.codec_context is not None)
    return next((one for one in tracks if one.rate and one.channels), None)


def _decoded(
    container: Any, track: Any, pictures: Any, start: float, layout: str, skipped: list[float] | None
) -> Iterator[Samples]:
    """Yield the track's own samples from `start` on, each piece [channels, n] where its timestamp says."""
    import av
    import numpy as np

    rate, channels = track.rate, 1 if layout == "mono" else 2
    origin = start if pictures is None else float((pictures.start_time or 0) * pictures.time_base) + start
    if start > PREROLL:
        container.seek(int((origin - PREROLL) / track.time_base), stream=track)
    same, kind = None, None
    due, offset = 0, 0  # in samples, counted from `start`: the next one; what was added to timestamps that went back
    for frame in _frames(container, track, origin, skipped):
        if kind != (kind := (frame.format.name, frame.layout.name, frame.sample_rate)):
            same = av.AudioResampler("fltp", layout, rate)
        at = due if frame.time is None else round((frame.time - origin) * rate) + offset
        if due and at < due - JUMP_BACK * rate:  # another recording was appended
            offset += due - at
        if due and at < due + GAP * rate:
            at = due
        if at - due > LONGEST_GAP * rate:
            raise ValueError("its timestamps make no sense")
        for one in same.resample(frame) if same else ():
            samples: Any = one.to_ndarray()[:, max(0, due - at) :]  # nothing before `start`
            at += one.samples
            if samples.shape[1]:
                for silent in range(due, at - samples.shape[1], CHUNK):
                    yield np.zeros((channels, min(CHUNK, at - samples.shape[1] - silent)), np.float32)
                yield samples
                due = at


def _frames(container: Any, track: Any, origin: float, skipped: list[float] | None) -> Iterator[Any]:
    """Decode the track's frames; note damaged ones in `skipped` if it is given. Raises FFmpegError."""
    import av

    for packet in container.demux(track):
        try:
            yield from packet.decode()
        except av.FFmpegError:
            if skipped is None:
                raise
            skipped.append(float((packet.pts or 0) * packet.time_base) - origin)


def _resampled(pieces: Iterable[Samples], own_rate: int, rate: int, layout: str) -> Iterator[Samples]:
    import av

    resampler = av.AudioResampler("fltp", layout, rate)
    for piece in pieces:
        frame = av.AudioFrame.from_ndarray(piece, "fltp", layout)
        frame.sample_rate = own_rate
        for one in resampler.resample(frame):
            yield one.to_ndarray().astype("float32", copy=False)
    for one in resampler.resample(None):
        yield one.to_ndarray().astype("float32", copy=False)


def track_of(path: Path) -> Sound | None:
    """Return what a video's header says about its sound; None without sound. Raises DataError."""
    with opened(path) as (container, pictures):
        if (track := _track(container)) is None:
            return None
        seconds = _end(track, pictures)
        if pictures.frames and pictures.average_rate:  # the last block of AAC can go beyond the last picture
            seconds = min(seconds, pictures.frames / float(pictures.average_rate))
        return Sound(seconds=round(max(0.0, seconds), 3), rate=track.rate, channels=track.channels)


def _end(track: Any, pictures: Any) -> float:
    """Return where a sound track ends according to the header, in seconds after the first picture."""
    end = ((track.start_time or 0) + (track.duration or 0)) * track.time_base
    return float(end - (pictures.start_time or 0) * pictures.time_base)


# ---- measuring -------------------------------------------------------------------------------------------------------

FULL = 0.999  # from here on a sample counts as clipped
LEAST_DB = -120.0  # digital silence
LONG, LOOK = 600.0, 0.1  # seconds: of longer videos, `waveform` reads so much of each part
WAVE_RATE = 8000  # samples a second


class Loudness(NamedTuple):
    """How loud a sound is.

    seconds: its length. rms: root mean square in dB of full scale. clipped: share of samples at full scale. peak: its
    largest sample in dB of full scale.
    """

    seconds: float
    rms: float
    clipped: float
    peak: float


def loudness(path: Path, tick: Callable[[], None] = lambda: None) -> Loudness | None:
    """Measure a video's sound; None without sound. Raises DataError."""
    import numpy as np

    if (about := track_of(path)) is None:
        return None
    channels = min(2, about.channels)
    squares, clipped, count, peak = 0.0, 0, 0, 0.0
    for piece in sound_chunks(path, rate=about.rate, channels=channels):
        squares += float(np.square(piece, dtype=np.float64).sum())
        clipped += int((np.abs(piece) >= FULL).sum())
        count += piece.size
        peak = max(peak, float(np.abs(piece).max(initial=0.0)))
        tick()
    least = 10 ** (LEAST_DB / 20)
    rms, loudest = (20 * math.log10(max(one, least)) for one in (math.sqrt(squares / max(1, count)), peak))
    seconds, share = round(count / channels / about.rate, 3), round(clipped / max(1, count), 5)
    return Loudness(seconds, round(rms, 1), share, round(loudest, 1))


def waveform(path: Path, steps: int) -> list[int]:
    """Return the largest level in each of so many equal parts of a video, 0 to 100; [] without a sound.

    Of very long videos, only the beginning of each part is read. Raises DataError.
    """
    import numpy as np

    if track_of(path) is None or not (seconds := probe(path).seconds):
        return []
    part = seconds / steps
    if seconds > LONG:
        looks = (read_sound(path, start=step * part, seconds=LOOK, rate=WAVE_RATE, channels=1) for step in range(steps))
        peaks = [float(np.abs(look).max(initial=0.0)) for look in looks]
    else:
        samples = read_sound(path, seconds=seconds, rate=WAVE_RATE, channels=1)[0]
        peaks = [float(np.abs(one).max(initial=0.0)) for one in np.array_split(samples, steps)]
    return [min(100, round(100 * peak)) for peak in peaks]


# ---- writing ---------------------------------------------------------------------------------------------------------


def write_sound(path: Path, samples: Samples, rate: int) -> None:
    """Give the mp4 at `path` a sound track, replacing any it has; its pictures and metadata stay.

    samples: float [channels, n] from -1 to 1, of one or two channels, beginning with the first picture.

    Raises DataError if the file is no mp4 or `rate` cannot be written, CannotWrite.
    """
    import numpy as np

    if samples.ndim != 2 or samples.shape[0] not in LAYOUTS:
        raise DataError(f"the sound has the shape {list(samples.shape)}, it must be [1 or 2 channels, samples]: mix it")
    mux_sound(path, path, [np.clip(samples, -1, 1)], rate, samples.shape[0])


def amplify(video: Path, target: Path, gain: float, tick: Callable[[], None] = lambda: None) -> None:
    """Write an mp4 to `target` with its sound louder by so many dB, softer if negative; the pictures are copied.

    Raises DataError if it has no sound or one that is damaged, CannotWrite.
    """
    import numpy as np

    if (about := track_of(video)) is None:
        raise DataError(f"{video.name} has no sound track: check again")
    channels, factor = min(2, about.channels), np.float32(10 ** (gain / 20))

    def pieces() -> Iterator[Samples]:
        for piece in sound_chunks(video, rate=about.rate, channels=channels):
            tick()
            yield np.clip(factor * piece, -1, 1)

    mux_sound(video, target, pieces(), about.rate, channels)


def mux_sound(video: Path, target: Path, pieces: Iterable[Samples], rate: int, channels: int) -> None:
    """Write `video` with this sound in place of its own to the mp4 `target`; the pictures are copied, not encoded.

    pieces: float [channels, n], consecutive. Raises DataError, CannotWrite.
    """
    import av
    import numpy as np

    if rate not in RATES:
        raise DataError(f"the sound's rate is {rate} Hz, an mp4 takes {', '.join(map(str, RATES))}: resample it")
    with replacing(target) as temporary:
        try:
            with (
                opened(video) as (container, stream),
                av.open(str(temporary), "w", "mp4", {"movflags": "+faststart"}) as file,
            ):
                file.metadata.update(container.metadata)
                pictures: Any = file.add_stream_from_template(stream)
                sound: Any = file.add_stream("aac", rate=rate, layout=LAYOUTS[channels])
                sound.bit_rate = BITS_A_SECOND * channels
                sound.codec_context.thread_count = 1

                def encoded() -> Iterator[Any]:
                    count = 0
                    for piece in pieces:
                        data = np.ascontiguousarray(piece, np.float32)
                        frame = av.AudioFrame.from_ndarray(data, "fltp", LAYOUTS[channels])
                        frame.sample_rate, frame.pts, frame.time_base = rate, count, Fraction(1, rate)
                        count += data.shape[1]
                        yield from sound.encode(frame)
                    yield from sound.encode()

                packets = encoded()
                waiting = next(packets, None)
                for packet in container.demux(stream):
                    if packet.dts is None:  # the last one is empty
                        continue
                    time = float(packet.dts * packet.time_base)
                    while waiting is not None and float(waiting.pts * waiting.time_base) <= time:
                        file.mux(waiting)
                        waiting = next(packets, None)
                    packet.stream = pictures
                    file.mux(packet)
                for rest in itertools.chain([waiting] if waiting is not None else [], packets):
                    file.mux(rest)
        except (av.FFmpegError, ValueError) as error:
            if isinstance(error, OSError):  # such as a full disk
                raise
            reason = getattr(error, "strerror", None) or error
            raise DataError(f"{video.name} cannot be given a sound ({reason}): use an mp4") from error


LATE = 0.05  # seconds that a sound may go on after the last picture


def is_canonical(path: Path, seconds: float, tick: Callable[[], None] = lambda: None) -> bool:
    """Whether a video's sound can stay: one AAC track, intact and no longer than the pictures. Raises DataError."""
    with opened(path) as (container, pictures):
        track = _track(container)
        if (
            track is None
            or len(container.streams.audio) > 1
            or (track.codec_context.name, track.channels in LAYOUTS, track.rate in RATES) != ("aac", True, True)
            or _end(track, pictures) > seconds + LATE
        ):
            return False
        rate, channels = track.rate, track.channels
    try:
        for _ in sound_chunks(path, rate=rate, channels=channels):
            tick()
    except DataError:
        return False
    return True


def carry(
    source: Path,
    target: Path,
    spans: Sequence[tuple[float, float]],
    tick: Callable[[], None] = lambda: None,
    skipped: list[float] | None = None,
) -> bool:
    """Give the mp4 at `target` the sound of some spans of `source`, one after the other, in at most two channels.

    Args:
        spans: (start, end) of each in seconds after the first picture of `source`, in order.
        tick: Called now and then, as a heartbeat.
        skipped: As in `sound_chunks`.

    Returns:
        Whether there was any sound; if not, the file stays as it is.

    Raises:
        DataError: The sound of `source` is damaged. CannotWrite.
    """
    with opened(source) as (container, _):
        if (track := _track(container)) is None:
            return False
        rate = next((one for one in RATES if one >= track.rate), RATES[-1])
        channels = min(2, track.channels)
    pieces = _in_spans(source, spans, rate, channels, tick, skipped)
    if (first := next(pieces, None)) is None:
        return False
    mux_sound(target, target, itertools.chain([first], pieces), rate, channels)
    return True


def _in_spans(
    source: Path,
    spans: Sequence[tuple[float, float]],
    rate: int,
    channels: int,
    tick: Callable[[], None],
    skipped: list[float] | None,
) -> Iterator[Samples]:
    """Yield the sound in some spans. Each but the last is padded with silence to its full length."""
    import numpy as np

    for number, (start, end) in enumerate(spans):
        left = round((end - start) * rate)
        for piece in sound_chunks(source, start=start, rate=rate, channels=channels, skipped=skipped):
            tick()
            if (kept := piece[:, :left]).shape[1]:
                yield kept
            left -= kept.shape[1]
            if not left:
                break
        while left and number + 1 < len(spans):
            silence = min(CHUNK, left)
            yield np.zeros((channels, silence), np.float32)
            left -= silence
