"""Export a grid: as an HTML page with its videos and player, as one GIF or PNG, or single videos as mp4, GIF or PNG.

The page opens anywhere and loads nothing. A notebook embeds it in a frame, because a notebook's page cannot always
reach the kernel's files. The Compare elements (assets/elements) render it.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from workbench.clips import media
from workbench.compare.grid import CellState, Grid, GridState
from workbench.compare.snapshot import snapshot
from workbench.display import elements
from workbench.display.inline_html import captioned, framed, frames, heading, note, row
from workbench.errors import ConfigError
from workbench.workspace import finite, replacing

FOLDER = "export"
FORMATS = ("mp4", "gif", "png")  # png: for images, which are videos with one frame
PLAYER_LIMIT = 48 * 1024 * 1024  # bytes of videos; with more, a notebook opens slowly
LOWEST, ROW, HIGHEST = 420, 240, 860  # player height in pixels: for one row, per additional row, and the maximum
STILL_CELLS = 24  # videos to show as stills where scripts do not run
TOO_LARGE = "These videos are too large for a notebook: export the grid, or open it in the web app."


def exported_page(grid: Grid) -> Path:
    """Return the path of a grid's page, whether it exists or not."""
    return grid.folder / FOLDER / f"{grid.name}.html"


def export_page(grid: Grid) -> Path:
    """Write the grid as a page. Raises ConfigError if no video is done yet, CannotWrite."""
    if not grid.state().count(CellState.DONE):
        raise ConfigError(f"the grid {grid.name} has no video yet: wait for the first one")
    path = exported_page(grid)
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(page(grid))
    return path


def export_cell(grid: Grid, key: str, format: str) -> Path:
    """Write one video in one of FORMATS, named after its row and column. Raises ConfigError, DataError, CannotWrite."""
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
    """Write all videos in one GIF (or PNG, for images), laid out like the grid.

    Raises ConfigError if a video is missing, DataError, CannotWrite.
    """
    state = grid.state()
    if missing := len(state.all) - state.count(CellState.DONE):
        raise ConfigError(f"{missing} of the grid's {len(state.all)} videos are missing: generate them, or use --cell")
    rows = [[state.cell(key).video for key in keys] for keys in state.plan.keys]
    path = grid.folder / FOLDER / f"{grid.name}.{format}"
    _write_tiles([[video for video in row if video is not None] for row in rows], path)
    return path


def _write_tiles(rows: list[list[Path]], path: Path) -> None:
    if path.suffix == ".png" and max(media.probe(video).frames for row in rows for video in row) > 1:
        raise ConfigError("format is png, which is for images, but this has more than one frame: choose gif")
    with replacing(path) as temporary:
        (media.write_png if path.suffix == ".png" else media.write_gif)(rows, temporary)


def contents(grid: Grid) -> tuple[dict[str, Any], dict[str, Path]]:
    """Return a grid's data and its videos by their names in the data. Raises ConfigError."""
    state = grid.state()
    data = snapshot(grid, state, lambda file: file.name, details=True)
    return finite(data), {cell.video.name: cell.video for cell in state.all if cell.video}


def page(grid: Grid) -> Iterator[str]:
    """Yield the page in pieces; each video is read when its piece is requested. Raises ConfigError, OSError."""
    data, videos = contents(grid)
    yield from elements.exported(data["title"], "wb-exported-grid", {"grid": data}, videos)


def _pictures(state: GridState) -> str:
    """Render stills of the first videos, laid out like the grid, for GitHub and others that run no scripts."""
    parts, left = [], STILL_CELLS
    for of_row, cells in zip(state.rows, state.cells, strict=True):
        names = (" · ".join(filter(None, column.labels)) for column in state.columns)
        found = [(name, cell.video) for name, cell in zip(names, cells, strict=True) if cell.video][:left]
        left -= len(found)
        shown = [captioned(frames(media.stills(video, 1), name), name) for name, video in found]
        parts += [note(of_row.label), row(shown)] if shown else []
    return "".join(parts)


def grid_html(grid: Grid) -> str:
    """Show the grid as it is now. Raises ConfigError if its file is damaged or the model is missing."""
    state = grid.state()
    head = heading(state.title) + note(snapshot(grid, state)["progress"]["text"]) + _pictures(state)
    videos = [cell.video for cell in state.all if cell.video]
    if not videos:
        return head
    if sum(path.stat().st_size for path in videos) > PLAYER_LIMIT:
        return head + note(TOO_LARGE)
    height = min(HIGHEST, LOWEST + ROW * (len(state.rows) - 1))
    return head + framed(page(grid), state.title, height)
