"""Run a task of a dataset as a job: `python -m workbench.dataset_builder datasets/NAME/.TASK`; see tasks."""

from __future__ import annotations

import sys

from workbench import jobs
from workbench.dataset_builder.tasks import task_module
from workbench.jobs import platform


def run(job: jobs.Job) -> None:
    """Run the task in the job's folder on the dataset around it."""
    platform.lower_priority(5)
    task_module(job.folder).run(job.folder.parent, job.folder / jobs.CONFIG, job)


if __name__ == "__main__":
    sys.exit(jobs.Job.main(run))
