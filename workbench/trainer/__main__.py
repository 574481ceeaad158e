"""`python -m workbench.trainer RUN_DIR`: the process of one training run. See workbench.jobs for the protocol."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

from workbench import processes
from workbench.jobs import Job


def main() -> int:
    folder = Path(sys.argv[1]).resolve()
    with Job(folder) as job:
        job.beat("loading torch")
        with processes.loading():
            from workbench.trainer.loop import train
        gc.freeze()  # what was imported stays: later collections need not look at it

        train(folder, job)
    return int(job.exit_code)


if __name__ == "__main__":
    sys.exit(main())
