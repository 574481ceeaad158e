"""Bring a foreign video's pictures to the canonical form: upright, square pixels, even size, progressive, 8-bit SDR.

FFmpeg's filters do it; a picture that has the form already goes through none and keeps its colours untouched. Not
covered: time (timing), still pictures (pictures).
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Iterable, Iterator
from fractions import Fraction
from typing import Any

from workbench.clips.media import VideoFacts
from workbench.dataset_builder.ingest.timing import Timed
from workbench.errors import DataError

Size = tuple[int, int]
REWRITE = "save it again as an ordinary mp4"
NEAR_SHAPE = 0.02  # by which proportions may differ, for odd sizes rounded to even ones
RGB = 0
PLAIN_MATRICES = (1, 2, 5, 6)  # BT.709, not said, BT.601 twice: what every player shows rightly


def square_size(about: VideoFacts) -> Size:
    """(width, height) as stored, enlarged so that pixels are square: nothing is lost."""
    width, height = (about.height, about.width) if about.rotation % 180 == 90 else (about.width, about.height)
    aspect = about.sample_aspect
    return (round(width * aspect), height) if aspect >= 1 else (width, round(height / aspect))


def reduced(size: Size, longest_side: int | None) -> Size:
    """The size scaled down, not up, to the longest side that was asked for."""
    if longest_side is None or max(size) <= longest_side:
        return size
    width, height = (max(2, round(side * longest_side / max(size))) for side in size)
    return width, height


def picture_changes(about: VideoFacts, longest_side: int | None = None) -> list[str]:
    """What has to be changed about the pictures, in words; none for a picture of canonical form."""
    changes = []
    width, height = size = square_size(about)
    if about.flipped:
        changes.append("turned and mirrored as its file says")
    elif about.rotation:
        changes.append("turned upright")
    if about.sample_aspect != 1:
        changes.append(f"stretched pixels made square (stored as {about.width}x{about.height}, now {width}x{height})")
    if (smaller := reduced(size, longest_side)) != size:
        changes.append(f"scaled down from {width}x{height} as asked")
    if any(side % 2 for side in smaller):
        changes.append("cut by one row or column to an even size")
    if about.interlaced:
        changes.append("interlaced lines joined to whole pictures")
    if about.hdr:
        changes.append("HDR colours brought to ordinary ones")
    elif about.bits > 8:
        changes.append(f"{about.bits}-bit colours brought to 8 bits")
    if about.matrix not in (*PLAIN_MATRICES, RGB) and not about.hdr:
        changes.append("rare colours brought to those that every player shows rightly (BT.709)")
    if about.full_range:
        changes.append("full-range colours brought to video range")
    if about.alpha:
        changes.append("transparent parts made white" if about.codec in ("gif", "apng") else "transparency removed")
    return changes


class SizeChanged(Exception):
    """The picture changes its size, to one for which the conversion was not made."""


def alike(one: Size, other: Size) -> bool:
    """Whether two sizes have the same proportions, but for rounding to whole pixels."""
    return abs(one[0] * other[1] / (one[1] * other[0]) - 1) < NEAR_SHAPE


def converted(
    frames: Iterable[Timed], about: VideoFacts, longest_side: int | None = None, mixed: bool = False
) -> Iterator[Timed]:
    """The frames in the canonical form. mixed: whether those of other sizes are scaled to that of `about`.

    Raises SizeChanged, DataError.
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
            # Another kind of pixels halfway through: what is plain at first may be full of colours later.
            steps = steps or (_filters(about, longest_side, True) if kind is not None else [])
            graph, kind = _graph(steps, frame) if steps else None, new
        if graph is None:
            yield time, frame
        else:
            waiting.append(time)
            yield from _pushed(graph, frame, about, waiting)
    if graph is not None:
        yield from _pushed(graph, None, about, waiting)


def _filters(about: VideoFacts, longest_side: int | None, needed: bool = False) -> list[tuple[str, str]]:
    """FFmpeg's filters that bring the picture to the canonical form; none when it has it, unless they are `needed`."""
    if not needed and about.pixel_format == "yuv420p" and not picture_changes(about, longest_side):
        return []
    width, height = reduced(square_size(about), longest_side)
    colours = "out_range=tv"
    if about.hdr or about.matrix not in PLAIN_MATRICES:
        colours += ":out_color_matrix=bt709"
    if about.hdr:
        colours += ":out_primaries=bt709:out_transfer=bt709:intent=perceptual"
    turns = {90: [("transpose", "cclock")], 180: [("hflip", ""), ("vflip", "")], 270: [("transpose", "clock")]}
    return [
        *([("bwdif", "mode=send_frame")] if about.interlaced else []),
        ("scale", f"w={width}:h={height}:flags=lanczos+accurate_rnd:{colours}"),
        *turns.get(about.rotation, []),
        *([("hflip", "")] if about.flipped else []),
        ("crop", "trunc(iw/2)*2:trunc(ih/2)*2:0:0"),
        ("format", "pix_fmts=yuv420p"),
    ]


def _graph(steps: list[tuple[str, str]], first: Any) -> Any:
    import av

    graph = av.filter.Graph()
    last = graph.add_buffer(
        width=first.width, height=first.height, format=first.format, time_base=first.time_base or Fraction(1, 1000)
    )
    for name, arguments in (*steps, ("buffersink", "")):
        node = graph.add(name, arguments) if arguments else graph.add(name)
        last.link_to(node)
        last = node
    graph.configure()
    return graph


def _pushed(graph: Any, frame: Any, about: VideoFacts, waiting: deque[float]) -> Iterator[Timed]:
    """What the filters hand out after one more frame, or None for the end. Raises DataError."""
    import av

    try:
        graph.push(frame)
        yield from _pull(graph, waiting)
    except (av.FFmpegError, ValueError) as error:
        kind = f"{about.pixel_format}, matrix {about.matrix}" + (", HDR" if about.hdr else "")
        raise DataError(f"its colours are of a rare kind that cannot be converted ({kind}): {REWRITE}") from error


def _pull(graph: Any, waiting: deque[float]) -> Iterator[Timed]:
    """What the filters hand out: one frame for each one taken in, some with a delay."""
    import av

    with contextlib.suppress(BlockingIOError, av.EOFError):
        while waiting:
            frame = graph.pull()
            yield waiting.popleft(), frame
