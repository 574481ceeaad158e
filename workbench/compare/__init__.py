"""Grids: videos of the same prompts and seeds in rows, what differs in columns, played in lock-step.

grid = Grid.create(workspace, GridSettings(run="cats", scales=("0.5", "1")))
grid.generate()                      # requests what is missing
grid.wait()                          # grid.state() at any time
"""

from workbench.compare.axes import Column, Row
from workbench.compare.grid import Cell, CellState, Grid, GridState
from workbench.compare.settings import GridSettings

__all__ = ["Cell", "CellState", "Column", "Row", "GridState", "Grid", "GridSettings"]
