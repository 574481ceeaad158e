"""`python -m workbench.sampler FOLDER` runs the sampling worker of a workspace; see workbench.sampler.queue."""

import sys
from pathlib import Path

from workbench.sampler.worker import main

if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
