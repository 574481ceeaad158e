"""`python -m workbench.remote RUN_DIR`: the process that stands here for a run elsewhere. No torch."""

from __future__ import annotations

import sys
from pathlib import Path

from workbench.remote.backends import make
from workbench.remote.job import Leave, RemoteJob
from workbench.remote.record import RemoteRecord
from workbench.remote.sync import Mirror
from workbench.workspace import Workspace


def main() -> int:
    folder = Path(sys.argv[1]).resolve()
    with RemoteJob(folder) as job:
        record = RemoteRecord.load(folder)
        mirror = Mirror(folder, job, make(Workspace.open(folder.parent.parent), folder.name, record), record)
        try:
            job.ended(mirror.go())
        except Leave as words:
            sys.stdout.write(f"{words}\n")
            raise
        finally:
            mirror.close()
    return int(job.exit_code)


if __name__ == "__main__":
    sys.exit(main())
