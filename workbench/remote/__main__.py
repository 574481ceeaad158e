"""`python -m workbench.remote RUN_DIR`: the local process of a run on a target. No torch."""

from __future__ import annotations

import sys

from workbench.remote.base import RemoteRecord
from workbench.remote.sync import Detached, RemoteJob, RunSync
from workbench.remote.targets import make_backend
from workbench.runs import webhook
from workbench.workspace import Workspace


def run(job: RemoteJob) -> None:
    folder = job.folder
    webhook.watch(folder)
    record = RemoteRecord.load(folder)
    sync = RunSync(folder, job, make_backend(Workspace.open(folder.parent.parent), folder.name, record), record)
    try:
        job.remote_result = sync.run_to_end()
    except Detached as message:
        sys.stdout.write(f"{message}\n")
        raise
    finally:
        sync.close()


if __name__ == "__main__":
    sys.exit(RemoteJob.main(run))
