"""The job of a grid: `python -m workbench.compare grids/NAME/.measurements` measures its videos."""

from __future__ import annotations

import sys
from pathlib import Path

from workbench import jobs
from workbench.compare import measurements
from workbench.compare.grid import Grid
from workbench.jobs import platform
from workbench.workspace import Workspace


def main(folder: Path) -> int:
    """Measure the grid that holds the job's folder; the exit code says how it ended."""
    platform.lower_priority(5)
    with jobs.Job(folder) as job:
        measurements.run(Grid.open(Workspace.open(folder.parent.parent.parent), folder.parent.name), job)
    return int(job.exit_code)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
