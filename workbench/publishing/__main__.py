"""The job of a push: `python -m workbench.publishing FOLDER`."""

from __future__ import annotations

import os
import sys

from workbench import jobs
from workbench.publishing import push


def main() -> None:
    """Run the push, then exit without waiting for threads: a stopped upload may still wait for the network."""
    os.environ["TQDM_POSITION"] = "-1"  # makes huggingface_hub count progress without a terminal
    code = jobs.Job.main(push.run)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main()
