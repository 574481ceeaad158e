"""`python -m workbench.remote RUN_DIR`: the local process of a run on a target. No torch."""

from __future__ import annotations

import sys
from pathlib import Path

from workbench.remote.base import RemoteRecord
from workbench.remote.sync import Detached, RemoteJob, RunSync
from workbench.remote.targets import make_backend
from workbench.runs import webhook
from workbench.workspace import Workspace


def main() -> int:
    folder = Path(sys.argv[1]).resolve()
    with RemoteJob(folder) as job:
        webhook.watch(folder)
        record = RemoteRecord.load(folder)
        backend = make_backend(Workspace.open(folder.parent.parent), folder.name, record)
        sync = RunSync(folder, job, backend, record)
        try:
            job.remote_result = sync.run_to_end()
        except Detached as message:
            sys.stdout.write(f"{message}\n")
            raise
        finally:
            sync.close()
    return int(job.exit_code)


if __name__ == "__main__":
    sys.exit(main())
