"""A grid's jobs: `python -m workbench.grids of videos/NAME/.numbers` measures, `NAME/.export` writes files to show."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from workbench import jobs
from workbench.compare import export, measurements
from workbench.compare.grid import EXPORTING, Grid
from workbench.compare.settings import GridExportSettings
from workbench.workspace import Workspace


def main(folder: Path) -> int:
    """Do what the folder's name says, in the grid that holds it; the exit code says how it ended."""
    os.nice(5)
    with jobs.Job(folder) as job:
        grid = Grid.open(Workspace.open(folder.parent.parent.parent), folder.parent.name)
        if folder.name == EXPORTING:
            export.export(grid, GridExportSettings.load(folder / jobs.CONFIG), job)
        else:
            measurements.follow(grid, job)
    return int(job.exit_code)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
