"""Grids: videos with the same prompt and seed in rows, what differs in columns, played in sync.

grid = Grid.create(workspace, GridSettings(run="cats", scales=("0.5", "1")))
grid.generate()                      # request missing videos
grid.wait()                          # grid.state() at any time
"""

from workbench.compare.axes import Column, Row
from workbench.compare.grid import Cell, CellState, Grid, GridState
from workbench.compare.settings import GridSettings

__all__ = ["Cell", "CellState", "Column", "Row", "GridState", "Grid", "GridSettings"]
