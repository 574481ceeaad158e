"""A grid as one HTML page with its videos and its player in it, in a notebook too; as one GIF or PNG; single videos as
mp4, GIF or PNG.

The page opens anywhere and loads nothing; a notebook carries it in a frame, since its page cannot reach the kernel's
files everywhere. It is shown by the elements of Compare (assets/elements).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

from workbench.clips import media
from workbench.compare.grid import CellState, Grid, GridState
from workbench.compare.snapshot import snapshot
from workbench.display import elements
from workbench.display.inline_html import captioned, framed, frames, heading, note, row
from workbench.errors import ConfigError
from workbench.workspace import finite, replacing

FOLDER = "export"
FORMATS = ("mp4", "gif", "png")  # png: of a picture, which is a video of one frame
PLAYER_LIMIT = 48 * 1024 * 1024  # bytes of videos; a notebook that carries more gets slow to open
LOWEST, ROW, HIGHEST = 420, 240, 860  # height of the player, pixels: with one row, more for each other, at most
STILL_CELLS = 24  # videos of which a frame is shown where no script runs
TOO_LARGE = "These videos are too large for a notebook: export the grid, or open it in the web app."


def exported_page(grid: Grid) -> Path:
    """Where the page of a grid is, or will be."""
    return grid.folder / FOLDER / f"{grid.name}.html"


def export_page(grid: Grid) -> Path:
    """Write the grid as a page. Raises ConfigError while no video is done, CannotWrite."""
    if not grid.state().count(CellState.DONE):
        raise ConfigError(f"the grid {grid.name} has no video yet: wait for the first one")
    path = exported_page(grid)
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(page(grid))
    return path


def export_cell(grid: Grid, key: str, format: str) -> Path:
    """Write one video in one of FORMATS, under a name that says where it stands. Raises ConfigError, DataError."""
    if format not in FORMATS:
        raise ConfigError(f"format is {format[:20]!r}, must be one of {', '.join(FORMATS)}")
    state = grid.state()
    video = state.cell(key).video
    assert video is not None
    row, column = next((row, keys.index(key)) for row, keys in enumerate(state.plan.keys) if key in keys)
    path = grid.folder / FOLDER / f"{grid.name}-{row + 1}-{column + 1}.{format}"
    if format == "mp4":
        with replacing(path) as temporary:
            shutil.copyfile(video, temporary)
    else:
        _write_tiles([[video]], path)
    return path


def export_tiles(grid: Grid, format: str) -> Path:
    """Write all videos side by side, a row for each row of the grid, as a GIF or, of pictures, a PNG.

    Raises ConfigError while a video is missing, DataError, CannotWrite.
    """
    state = grid.state()
    if missing := len(state.all) - state.count(CellState.DONE):
        raise ConfigError(f"{missing} of the grid's {len(state.all)} videos are missing: generate them, or give --cell")
    rows = [[state.cell(key).video for key in keys] for keys in state.plan.keys]
    path = grid.folder / FOLDER / f"{grid.name}.{format}"
    _write_tiles([[video for video in row if video is not None] for row in rows], path)
    return path


def _write_tiles(rows: list[list[Path]], path: Path) -> None:
    if path.suffix == ".png" and max(media.probe(video).frames for row in rows for video in row) > 1:
        raise ConfigError("format is png, which shows pictures, and this has more than one frame: choose gif")
    with replacing(path) as temporary:
        (media.write_png if path.suffix == ".png" else media.write_gif)(rows, temporary)


def page(grid: Grid) -> Iterator[str]:
    """The page's text in pieces: a video is read when its piece is requested. Raises ConfigError, OSError."""
    state = grid.state()
    data = snapshot(grid, state, lambda file: file.name, details=True)
    videos = {cell.video.name: cell.video for cell in state.all if cell.video}
    yield from elements.exported(state.title, "wb-exported-grid", {"grid": finite(data)}, videos)


def _pictures(state: GridState) -> str:
    """Frames of the first videos, a row for each row of the grid: GitHub and others show no frame and no script."""
    parts, left = [], STILL_CELLS
    for of_row, cells in zip(state.rows, state.cells, strict=True):
        names = (" · ".join(filter(None, column.labels)) for column in state.columns)
        found = [(name, cell.video) for name, cell in zip(names, cells, strict=True) if cell.video][:left]
        left -= len(found)
        shown = [captioned(frames(media.stills(video, 1), name), name) for name, video in found]
        parts += [note(of_row.label), row(shown)] if shown else []
    return "".join(parts)


def grid_html(grid: Grid) -> str:
    """The grid as it is now. Raises ConfigError when its file was damaged or the model is gone."""
    state = grid.state()
    head = heading(state.title) + note(snapshot(grid, state)["progress"]["text"]) + _pictures(state)
    videos = [cell.video for cell in state.all if cell.video]
    if not videos:
        return head
    if sum(path.stat().st_size for path in videos) > PLAYER_LIMIT:
        return head + note(TOO_LARGE)
    height = min(HIGHEST, LOWEST + ROW * (len(state.rows) - 1))
    return head + framed(page(grid), state.title, height)
