"""The job of a push: `python -m workbench.publishing FOLDER`."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from workbench import jobs
from workbench.publishing import push


def main() -> int:
    os.environ["TQDM_POSITION"] = "-1"  # huggingface_hub then keeps its bars where there is no terminal, and counts
    with jobs.Job(Path(sys.argv[1]).resolve()) as job:
        push.run(job.folder, job)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(int(job.exit_code))  # an upload that was stopped may still wait for the network


if __name__ == "__main__":
    main()
