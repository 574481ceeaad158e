"""A grid as files to show around: one video of the whole grid with captions in the picture, a GIF, one HTML page.

Frames are read, put together and written one after another, so that memory does not grow with the grid. Not covered:
the page's player (assets/grid.js), the HTML page's content (standalone).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench import jobs
from workbench.clips import media
from workbench.compare import html_page, measurements
from workbench.compare.grid import Grid
from workbench.compare.settings import GridExportSettings
from workbench.compare.state import Cell, CellState, GridState
from workbench.compare.view import heads
from workbench.workspace import writing

if TYPE_CHECKING:
    from workbench.clips.media import Pixels

WIDEST, GIF_WIDEST = 3840, 1280  # pixels
PIXEL_ART, ENLARGED = 128, 192  # videos up to this width are enlarged to about that one
SMALLEST = 48
GAP, EDGE = 10, 16
PAPER, INK, SOFT, EMPTY = (255, 255, 255), (22, 26, 34), (95, 104, 120), (232, 235, 240)
GIF_FPS = 12.5
SECONDS = 4.0  # shorter grids are repeated in the video until it is this long
LEAST = 1e-6  # seconds; rounding
Tick = Callable[[int, int], None]


@dataclass(frozen=True)
class FrameLayout:
    """Where things stand on the picture; pixels. tops: of the rows' videos."""

    width: int
    height: int
    tile: tuple[int, int]
    lefts: tuple[int, ...]
    tops: tuple[int, ...]
    size: int  # of the text


def export(grid: Grid, settings: GridExportSettings, job: jobs.Job) -> None:
    """Write the files into grids/<slug>/export/. Raises jobs.Stop, DataError, CannotWrite."""
    view = grid.look()
    folder = grid.folder / "export"
    with writing(folder):
        folder.mkdir(exist_ok=True)

    def telling(name: str) -> Tick:
        def tell(done: int, total: int) -> None:
            if job.take("stop") is not None:
                raise jobs.Stop(f"Stopped while writing the {name}.")
            job.beat(f"writing the {name}", done, total)

        return tell

    makers: dict[str, Callable[[Path, Tick], None]] = {
        "mp4": lambda path, tell: write_mp4(view, path, settings.numbers, tell),
        "gif": lambda path, tell: write_gif(view, path, settings.numbers, tell),
        "html": lambda path, tell: html_page.write(grid, view, path, tell),
    }
    for name in settings.formats:
        makers[name](folder / f"{grid.name}.{name}", telling(name))
    job.outcome = {"files": [f"{grid.name}.{name}" for name in settings.formats]}


def write_mp4(view: GridState, path: Path, with_numbers: bool, tell: Tick) -> None:
    """One video of the whole grid. Raises DataError, CannotWrite, what `tell` raises."""
    page, layout = draw_page(view, WIDEST, with_numbers)
    fps, frames = _clock(view)
    rounds = max(1, round(SECONDS * fps / frames))
    with media.VideoWriter(path, layout.width, layout.height, fps, crf=16, preset="veryfast") as writer:
        for turn in range(rounds):
            for number, picture in enumerate(pictures(view, page, layout, fps, frames)):
                tell(turn * frames + number, rounds * frames)
                writer.write(media.bt709_frame(picture))


def write_gif(view: GridState, path: Path, with_numbers: bool, tell: Tick) -> None:
    """The same as a GIF, smaller and with fewer frames. Raises DataError, CannotWrite, what `tell` raises."""
    from PIL import Image

    page, layout = draw_page(view, GIF_WIDEST, with_numbers)
    fps, frames = _clock(view)
    every = max(1, round(fps / GIF_FPS))

    def reduced() -> Iterator[Any]:
        for number, picture in enumerate(pictures(view, page, layout, fps, frames)):
            tell(number, frames)
            if number % every == 0:
                yield Image.fromarray(picture).quantize(256, dither=Image.Dither.NONE)

    kept = reduced()
    first = next(kept)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with writing(path):
        try:
            duration = round(1000 * every / fps)
            first.save(temporary, "GIF", save_all=True, append_images=kept, duration=duration, loop=0)
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


def _clock(view: GridState) -> tuple[float, int]:
    """Frames a second and frames of the whole: the fastest video's and the longest's."""
    probes = [media.probe(cell.video) for cell in view.all if cell.video]
    fps = max((one.fps or 8.0) for one in probes)
    return fps, max(1, round(max(one.frames / (one.fps or 8.0) for one in probes) * fps))


# ---- the page with its captions, once


def draw_page(view: GridState, widest: int, with_numbers: bool) -> tuple[Pixels, FrameLayout]:
    """(uint8 [H, W, 3] with every caption, places left for the videos; where they are)."""
    import numpy as np
    from PIL import Image, ImageDraw

    layout = _layout(view, widest, with_numbers)
    page = Image.new("RGB", (layout.width, layout.height), PAPER)
    draw = ImageDraw.Draw(page)
    large, small = _font(layout.size + 4), _font(layout.size)
    room = layout.width - 2 * EDGE
    draw.text((EDGE, EDGE // 2), fitted(view.title, large, room), INK, font=large)
    for line, spans in enumerate(heads(view)):
        column = 0
        for head in spans:
            width = head["span"] * (layout.tile[0] + GAP) - GAP
            place = (layout.lefts[column], EDGE + (layout.size + 6) * (line + 1) + 4)
            draw.text(place, fitted(head["text"], small, width), INK if line == 0 else SOFT, font=small)
            column += head["span"]
    for row, cells, top in zip(view.rows, view.cells, layout.tops, strict=True):
        said = row.prompt + (f"  ({row.label})" if row.label else "")
        draw.text((EDGE, top - layout.size - 8), fitted(said or "(no prompt)", small, room), SOFT, font=small)
        for cell, left in zip(cells, layout.lefts, strict=True):
            _caption(draw, cell, left, top, layout, with_numbers)
    return np.asarray(page).copy(), layout


def _caption(draw: Any, cell: Cell, left: int, top: int, layout: FrameLayout, with_numbers: bool) -> None:
    """What stands in the place of a video that is not there, and below one that is."""
    width, height = layout.tile
    small = _font(max(10, layout.size - 2))
    if cell.state is not CellState.DONE:
        draw.rectangle((left, top, left + width - 1, top + height - 1), EMPTY)
        draw.text((left + 6, top + 6), fitted("not drawn", small, width - 12), SOFT, font=small)
        return
    if with_numbers:
        for line, said in enumerate(short_numbers(cell)):
            place = (left, top + height + 3 + line * (layout.size + 2))
            draw.text(place, fitted(said, small, width), SOFT, font=small)
    if cell.starred:
        draw.text((left, top - 1), "*", INK, font=small)


def short_numbers(cell: Cell) -> list[str]:
    """The numbers of a video in lines that fit below a small picture."""
    said = {one.name: one for one in measurements.in_words(cell.numbers)}
    lines = []
    if "distance" in said:
        lines.append(f"from base {said['distance'].value}")
    pair = [f"{name} {said[name].value}" for name in ("motion", "sharpness") if name in said]
    lines += pair
    if "nearest" in said and said["nearest"].warn:
        lines.append("like a training clip!")
    return lines


def fitted(text: str, font: Any, room: int) -> str:
    """The text, cut with an ellipsis to so many pixels."""
    line = " ".join(text.split())
    if font.getlength(line) <= room:
        return line
    while line and font.getlength(line + "...") > room:
        line = line[:-1]
    return line + "..." if line else ""


def _font(size: int) -> Any:
    from PIL import ImageFont

    return ImageFont.load_default(size)


def _layout(view: GridState, widest: int, with_numbers: bool) -> FrameLayout:
    columns, rows = len(view.columns), len(view.rows)
    width, height = _largest(view)
    room = max(SMALLEST, (widest - 2 * EDGE + GAP) // columns - GAP)
    wanted = width * max(1, round(ENLARGED / width)) if width <= PIXEL_ART else width
    across = min(wanted, room)
    tile = (across - across % 2, max(2, round(across * height / width) // 2 * 2))
    size = 13 if tile[0] < 320 else 18
    lines = len(heads(view))
    below = 0
    if with_numbers:
        most = max((len(short_numbers(cell)) for cell in view.all), default=0)
        below = most * (size + 2)
    top = EDGE + (size + 6) * (lines + 1) + size + 18
    step = tile[1] + below + size + 22
    page = 2 * EDGE + columns * (tile[0] + GAP) - GAP
    total = top + rows * step - (size + 22) + EDGE
    return FrameLayout(
        page + page % 2,
        total + total % 2,
        tile,
        tuple(EDGE + place * (tile[0] + GAP) for place in range(columns)),
        tuple(top + place * step for place in range(rows)),
        size,
    )


def _largest(view: GridState) -> tuple[int, int]:
    probes = [media.probe(cell.video) for cell in view.all if cell.video]
    return max((one.width for one in probes), default=64), max((one.height for one in probes), default=64)


# ---- the frames


def pictures(view: GridState, page: Pixels, layout: FrameLayout, fps: float, frames: int) -> Iterator[Pixels]:
    """The page with every video's frame at each moment: uint8 [H, W, 3]. Raises DataError."""
    reels = [
        (VideoFrames(cell.video, layout.tile), left, top)
        for cells, top in zip(view.cells, layout.tops, strict=True)
        for cell, left in zip(cells, layout.lefts, strict=True)
        if cell.video
    ]
    for number in range(frames):
        picture = page.copy()
        for reel, left, top in reels:
            tile = reel.at(number / fps)
            picture[top : top + tile.shape[0], left : left + tile.shape[1]] = tile
        yield picture


class VideoFrames:
    """One video's frames in order, scaled into a tile; the last one stays when it is over."""

    def __init__(self, path: Path, tile: Sequence[int]) -> None:
        self._frames = media.decode(path)
        self._tile = (tile[0], tile[1])
        self._next = next(self._frames, None)
        self._shown: Pixels | None = None

    def at(self, seconds: float) -> Pixels:
        """The frame at a moment, which must not be before the last one asked for. Raises DataError."""
        import numpy as np
        from PIL import Image

        latest = None
        while self._next is not None and (self._next[0] <= seconds + LEAST or self._shown is None):
            latest = self._next[1]
            self._next = next(self._frames, None)
            if self._shown is None:
                self._shown = latest
        if latest is not None:
            how = Image.Resampling.NEAREST if latest.shape[1] <= PIXEL_ART else Image.Resampling.BICUBIC
            scale = min(self._tile[0] / latest.shape[1], self._tile[1] / latest.shape[0])
            size = (max(1, round(latest.shape[1] * scale)), max(1, round(latest.shape[0] * scale)))
            self._shown = np.asarray(Image.fromarray(latest).resize(size, how))
        assert self._shown is not None
        return self._shown
