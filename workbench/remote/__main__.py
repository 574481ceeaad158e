"""`python -m workbench.remote RUN_DIR`: the process that stands here for a run on a target. No torch."""

from __future__ import annotations

import sys
from pathlib import Path

from workbench.remote.backends import make
from workbench.remote.job import Detached, RemoteJob
from workbench.remote.record import RemoteRecord
from workbench.remote.sync import RunSync
from workbench.workspace import Workspace


def main() -> int:
    folder = Path(sys.argv[1]).resolve()
    with RemoteJob(folder) as job:
        record = RemoteRecord.load(folder)
        sync = RunSync(folder, job, make(Workspace.open(folder.parent.parent), folder.name, record), record)
        try:
            job.write_result(sync.run_to_end())
        except Detached as message:
            sys.stdout.write(f"{message}\n")
            raise
        finally:
            sync.close()
    return int(job.exit_code)


if __name__ == "__main__":
    sys.exit(main())
