"""A grid in a notebook: its videos side by side in lock-step, by the page's own player, in a frame of its own.

The player and the videos travel inside the notebook's page, which cannot reach the kernel's files everywhere. Not
covered: generating videos (grid), the page with the player (export).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.compare import export
from workbench.compare.snapshot import snapshot
from workbench.html import escaped
from workbench.inline_html import heading, note

if TYPE_CHECKING:
    from workbench.compare.grid import Grid

PLAYER_LIMIT = 48 * 1024 * 1024  # bytes of videos; a notebook that carries more gets slow to open
LOWEST, ROW, HIGHEST = 420, 240, 860  # height of the player, pixels: with one row, more for each other, at most
TOO_LARGE = "These videos are too large for a notebook: export the grid, or open it in the web app."


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
    page = "".join(export.page(grid))
    return (
        f'{head}<iframe srcdoc="{escaped(page)}" title="{escaped(state.title)}" '
        f'style="width:100%;height:{height}px;border:0;resize:vertical" allowfullscreen></iframe>'
    )
