"""The measuring job of a grid: `python -m workbench.compare grids/NAME/.measurements`."""

from __future__ import annotations

import sys

from workbench import jobs
from workbench.compare import measurements
from workbench.compare.grid import Grid
from workbench.jobs import platform
from workbench.workspace import Workspace


def run(job: jobs.Job) -> None:
    """Measure the grid that holds the job's folder."""
    platform.lower_priority(5)
    folder = job.folder
    measurements.run(Grid.open(Workspace.open(folder.parent.parent.parent), folder.parent.name), job)


if __name__ == "__main__":
    sys.exit(jobs.Job.main(run))
