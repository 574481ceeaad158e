"""A grid as one HTML page with its videos and its player in it, in a notebook too; as one GIF or PNG; single videos as
mp4, GIF or PNG.

The page opens anywhere and loads nothing; a notebook carries it in a frame, since its page cannot reach the kernel's
files everywhere. Its player is that of the Compare tab (assets/grid.js, assets/grid.css).
"""

from __future__ import annotations

import base64
import html
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from workbench.clips import media
from workbench.compare.grid import CellState, Grid
from workbench.compare.snapshot import snapshot
from workbench.display.inline_html import heading, note
from workbench.errors import ConfigError
from workbench.paths import ASSETS
from workbench.workspace import finite, replacing

FOLDER = "export"
FORMATS = ("mp4", "gif", "png")  # png: of a picture, which is a video of one frame
PLAYER_LIMIT = 48 * 1024 * 1024  # bytes of videos; a notebook that carries more gets slow to open
LOWEST, ROW, HIGHEST = 420, 240, 860  # height of the player, pixels: with one row, more for each other, at most
TOO_LARGE = "These videos are too large for a notebook: export the grid, or open it in the web app."

# Nothing is loaded, whatever a prompt contains: the browser itself refuses it.
POLICY = (
    "default-src 'none'; media-src blob: data:; img-src blob: data:; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'"
)
# What the player's style sheet takes from the page around it, beside assets/tokens.css.
AROUND = """
:root { color-scheme: light dark; --input-background-fill: var(--wb-panel); --block-background-fill: var(--wb-panel);
  --button-secondary-background-fill: var(--wb-panel); --body-background-fill: var(--wb-page); }
body { margin: 0; padding: 16px; font: 15px/1.45 system-ui, sans-serif; background: var(--body-background-fill);
  color: var(--wb-text); }
"""
START = """
const data = JSON.parse(document.getElementById('grid-data').textContent);
for (const cell of data.cells.flat()) {
  if (!cell.url) continue;
  const text = document.getElementById(cell.url.slice(1)).textContent;
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  cell.url = URL.createObjectURL(new Blob([bytes], { type: 'video/mp4' }));
}
player(document.getElementById('grid'), () => {}, { value: data }, null, () => {});
"""


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
    data = snapshot(grid, state, lambda file: f"#video-{file.stem}", details=True)
    yield _head(state.title, data)
    for key, video in {cell.key: cell.video for cell in state.all if cell.video}.items():
        text = base64.b64encode(video.read_bytes()).decode()
        yield f'<script type="text/plain" id="video-{key}">{text}</script>\n'
    script = (ASSETS / "grid.js").read_text(encoding="utf-8").replace("</script", "<\\/script")
    player = f"function player(element, trigger, props, server, watch) {{\n{script}\n}}"
    yield f"<script>\n{player}\n{START}</script></body></html>\n"


def grid_html(grid: Grid) -> str:
    """The grid as it is now. Raises ConfigError when its file was damaged or the model is gone."""
    state = grid.state()
    head = heading(state.title) + note(snapshot(grid, state)["progress"]["text"])
    videos = [cell.video for cell in state.all if cell.video]
    if not videos:
        return head
    if sum(path.stat().st_size for path in videos) > PLAYER_LIMIT:
        return head + note(TOO_LARGE)
    height = min(HIGHEST, LOWEST + ROW * (len(state.rows) - 1))
    return (
        f'{head}<iframe srcdoc="{html.escape("".join(page(grid)))}" title="{html.escape(state.title)}" '
        f'style="width:100%;height:{height}px;border:0;resize:vertical" allowfullscreen></iframe>'
    )


def _head(title: str, data: dict[str, Any]) -> str:
    # What a person wrote must not end the element that holds it.
    packed = json.dumps(finite(data), ensure_ascii=False).replace("<", "\\u003c")
    tokens, css = ((ASSETS / f"{name}.css").read_text(encoding="utf-8") for name in ("tokens", "grid"))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{tokens}{AROUND}\n#grid {{ {css} }}</style></head>\n"
        f'<body><div id="grid"></div>\n<script type="application/json" id="grid-data">{packed}</script>\n'
    )
