"""`python -m workbench.trainer RUN_DIR`: the process of one training run. See workbench.jobs for the protocol.

It waits for its turn before it loads torch, so that a long queue costs next to nothing, and holds the device from then
to its end.
"""

from __future__ import annotations

import gc
import sys
import time
from pathlib import Path

from workbench import jobs, processes
from workbench.devices import pick_device
from workbench.trainer import run_queue
from workbench.trainer.failures import BEGIN
from workbench.trainer.settings import TrainSettings
from workbench.trainer.watchdog import Watchdog
from workbench.workspace import Workspace


def main() -> int:
    folder = Path(sys.argv[1]).resolve()
    with jobs.Job(folder) as job:
        sys.stdout.write(f"{BEGIN}{time.strftime('%Y-%m-%d %H:%M:%S')}\n")
        settings = TrainSettings.load(folder / jobs.CONFIG)
        device = pick_device(settings.device)
        workspace = Workspace.open(folder.parent.parent)
        with run_queue.turn(workspace, device, job), Watchdog(job, settings.hang_minutes):
            job.beat("loading torch")
            with processes.loading():
                from workbench.trainer.loop import train
            gc.freeze()  # what was imported stays: later collections need not look at it

            train(folder, job)
    return int(job.exit_code)


if __name__ == "__main__":
    sys.exit(main())
