"""A grid as one HTML page with its videos and its player in it: opens anywhere, asks nothing of any network.

The player is the page's own (assets/grid.js, assets/grids.css). Not covered: what the player is given (view).
"""

from __future__ import annotations

import base64
import html
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from workbench.compare.grid import Grid
from workbench.compare.state import GridState
from workbench.compare.view import data, details
from workbench.paths import ASSETS
from workbench.workspace import writing

# Nothing is fetched, whatever a prompt says: the browser itself is told so.
POLICY = (
    "default-src 'none'; media-src blob: data:; img-src blob: data:; style-src 'unsafe-inline'; "
    "script-src 'unsafe-inline'"
)
COLOURS = """
:root { --wb-line: #d9dfea; --wb-soft: #f4f6fa; --wb-text: #1d2738; --wb-faint: #5d6a80; --wb-going: #2f6fd0;
  --wb-good: #1f8a4c; --wb-bad: #c23434; --wb-bad-soft: #fdeeee; --wb-good-soft: #e8f6ee;
  --input-background-fill: #fff; --button-secondary-background-fill: #fff; --block-background-fill: #fff;
  --body-background-fill: #fff; color-scheme: light; }
@media (prefers-color-scheme: dark) { :root { --wb-line: #37445c; --wb-soft: #1b2436; --wb-text: #e6ebf4;
  --wb-faint: #9aa8c0; --wb-going: #5d97f2; --wb-good: #45b878; --wb-bad: #ef6b6b; --wb-bad-soft: #3a1b1e;
  --wb-good-soft: #14301f; --input-background-fill: #1b2436; --button-secondary-background-fill: #1b2436;
  --block-background-fill: #131a28; --body-background-fill: #0f1522; color-scheme: dark; } }
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


def page(grid: Grid, view: GridState, tell: Callable[[int, int], None] = lambda done, total: None) -> Iterator[str]:
    """The page's text, piece by piece: a video is read when its piece is asked for. Raises OSError, what `tell` raises.

    tell: called with how many videos are done, of how many
    """
    shown = data(grid, view, lambda file: f"#video-{file.stem}")
    for cells, drawn in zip(shown["cells"], view.cells, strict=True):
        for cell, one in zip(cells, drawn, strict=True):
            cell.pop("picture", None)
            cell["details"] = details(one)
    videos = {cell.key: cell.video for cell in view.all if cell.video}
    yield _head(view.title, shown)
    for number, (key, video) in enumerate(videos.items()):
        tell(number, len(videos))
        text = base64.b64encode(video.read_bytes()).decode()
        yield f'<script type="text/plain" id="video-{key}">{text}</script>\n'
    yield _tail()


def write(grid: Grid, view: GridState, path: Path, tell: Callable[[int, int], None]) -> None:
    """Write the file, whole or not at all. Raises CannotWrite, what `tell` raises."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with writing(path):
        try:
            with temporary.open("w", encoding="utf-8") as file:
                file.writelines(page(grid, view, tell))
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        finally:
            temporary.unlink(missing_ok=True)


def _head(title: str, shown: dict[str, Any]) -> str:
    # What a person wrote must not end the element that holds it.
    packed = json.dumps(shown, ensure_ascii=False).replace("<", "\\u003c")
    css = (ASSETS / "grid.css").read_text(encoding="utf-8")
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<style>{COLOURS}\n#grid {{ {css} }}</style></head>\n"
        f'<body><div id="grid"></div>\n<script type="application/json" id="grid-data">{packed}</script>\n'
    )


def _tail() -> str:
    script = (ASSETS / "grid.js").read_text(encoding="utf-8").replace("</script", "<\\/script")
    player = f"function player(element, trigger, props, server, watch) {{\n{script}\n}}"
    return f"<script>\n{player}\n{START}</script></body></html>\n"
