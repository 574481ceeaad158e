"""`python -m workbench.sampler FOLDER` runs the sampling worker of a workspace; see workbench.sampler.queue."""

import contextlib
import sys

from workbench import jobs
from workbench.sampler.worker import serve

if __name__ == "__main__":
    # Outermost, so that the worker's final lock lasts until result.json is written, and no request slips in between.
    with contextlib.ExitStack() as leaving:
        sys.exit(jobs.Job.main(lambda job: serve(job, leaving)))
