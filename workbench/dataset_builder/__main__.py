"""Run a task of a dataset as a job: `python -m workbench.dataset_builder datasets/NAME/.TASK`; see tasks."""

from __future__ import annotations

import sys
from pathlib import Path

from workbench import jobs
from workbench.dataset_builder.tasks import task_module
from workbench.jobs import platform


def main(folder: Path) -> int:
    """Run the task in its folder on the dataset around it; return the exit code."""
    platform.lower_priority(5)
    with jobs.Job(folder) as job:
        task_module(folder).run(folder.resolve().parent, folder / jobs.CONFIG, job)
    return int(job.exit_code)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
