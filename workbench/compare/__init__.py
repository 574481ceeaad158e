"""The grid: videos of the same prompts and seeds in rows, what differs in columns, played in lock-step.

    grid = Grid.create(workspace, GridSettings(run="cats", scales=("0.5", "1")))
    grid.ask()                # draws what is missing; grid.look() says how far it is

A grid is a folder that can be reopened, given further columns and rows, and exported. Not covered: drawing
(workbench.sampler), the page (ui.compare).
"""

from workbench.compare.axes import Column, Row
from workbench.compare.grid import Grid
from workbench.compare.settings import GridSettings
from workbench.compare.state import Cell, CellState, GridState

__all__ = ["Cell", "CellState", "Column", "Row", "GridState", "Grid", "GridSettings"]
