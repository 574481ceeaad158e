"""Export videos as a GIF or pictures as a PNG: a single one, or a grid of them; also a strip of stills.

A picture is a video of one frame.
"""

from __future__ import annotations

import io
import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from workbench.clips.media.opening import probe
from workbench.clips.media.reading import Pixels, decode
from workbench.errors import DataError

FPS = 12.5  # the most that a GIF has
LARGEST_ONE, LARGEST = 640, 1280  # pixels: the width of one video; width and height of the grid
PIXEL_ART, ENLARGED = 128, 192  # videos up to the first width are enlarged to about the second
DEFAULT_FPS = 8.0  # for videos that do not state a rate


def write_gif(rows: Sequence[Sequence[Path]], path: Path) -> None:
    """Write a GIF of videos, at a lower frame rate, with narrow videos enlarged and wide ones reduced.

    The first video sets the tile size and the frame rate. All play at their own speed, and shorter ones hold their
    last frame. Raises DataError.
    """
    from PIL import Image, ImageOps

    facts = {video: probe(video) for row in rows for video in row}
    first, columns = facts[rows[0][0]], max(map(len, rows))
    every = max(1, round((first.fps or DEFAULT_FPS) / FPS))
    seconds = every / (first.fps or DEFAULT_FPS)
    count = max(math.ceil(one.frames / (one.fps or DEFAULT_FPS) / seconds - 1e-6) for one in facts.values())
    sharp = first.width <= PIXEL_ART
    how = Image.Resampling.NEAREST if sharp else Image.Resampling.BICUBIC
    width, height = _tile(first.width, first.height, columns, len(rows), sharp)
    tiles = []
    for top, row in enumerate(rows):
        for left, video in enumerate(row):
            fps = facts[video].fps or DEFAULT_FPS
            frames = _frames_at(video, (int(number * seconds * fps + 1e-6) for number in range(count)))
            tiles.append(((left * width, top * height), frames))
    pictures = []
    for _ in range(count):
        whole = Image.new("RGB", (columns * width, len(rows) * height), "white")
        for corner, frames in tiles:
            whole.paste(ImageOps.pad(Image.fromarray(next(frames)), (width, height), how), corner)
        pictures.append(whole.quantize(256, dither=Image.Dither.NONE))
    duration = round(1000 * seconds)
    pictures[0].save(path, "GIF", save_all=True, append_images=pictures[1:], duration=duration, loop=0)


def write_png(rows: Sequence[Sequence[Path]], path: Path) -> None:
    """Write a PNG of the videos' first frames, in tiles of the first video's size. Raises DataError."""
    from PIL import Image, ImageOps

    first = probe(rows[0][0])
    columns = max(map(len, rows))
    whole = Image.new("RGB", (columns * first.width, len(rows) * first.height), "white")
    for top, row in enumerate(rows):
        for left, video in enumerate(row):
            picture = Image.fromarray(next(_frames_at(video, [0])))
            whole.paste(ImageOps.pad(picture, (first.width, first.height)), (left * first.width, top * first.height))
    whole.save(path, "PNG")


def stills(video: Path, count: int = 3, height: int = 96) -> bytes:
    """Return a JPEG strip of evenly spaced frames, for places where no video plays; b"" if the video is unreadable.

    height: of the strip, in pixels.
    """
    from PIL import Image

    try:
        facts = probe(video)
        last = max(0, facts.frames - 1)
        indices = sorted({round(number * last / max(count - 1, 1)) for number in range(count)})
        frames = [Image.fromarray(frame) for frame in _frames_at(video, indices)]
    except DataError:
        return b""
    width = max(1, round(height * facts.width / facts.height))
    how = Image.Resampling.NEAREST if facts.width <= PIXEL_ART else Image.Resampling.BICUBIC
    whole, data = Image.new("RGB", (len(frames) * width, height)), io.BytesIO()
    for number, frame in enumerate(frames):
        whole.paste(frame.resize((width, height), how), (number * width, 0))
    whole.save(data, "JPEG", quality=85)
    return data.getvalue()


def _tile(width: int, height: int, columns: int, rows: int, sharp: bool) -> tuple[int, int]:
    """Return the (width, height) of one tile."""
    most = min(LARGEST / (columns * width), LARGEST / (rows * height))
    scale = max(1, min(round(ENLARGED / width), int(most))) if sharp else min(1.0, LARGEST_ONE / width, most)
    return max(1, round(width * scale)), max(1, round(height * scale))


def _frames_at(video: Path, indices: Iterable[int]) -> Iterator[Pixels]:
    """Yield the frames at ascending indices, repeating the last one beyond the end."""
    frames = enumerate(frame for _, frame in decode(video))
    at, frame = next(frames)
    for index in indices:
        while at < index:
            at, frame = next(frames, (index, frame))
        yield frame
