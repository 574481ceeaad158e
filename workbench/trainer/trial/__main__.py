"""`python -m workbench.trainer.trial FOLDER`: measures a run's settings. fit.measurement describes the folder.

It waits until its device is free, as runs do, before it loads torch.
"""

from __future__ import annotations

import sys
from pathlib import Path

from workbench import jobs
from workbench.fit import measurement
from workbench.jobs import gpu_lock, processes
from workbench.jobs.devices import pick_device
from workbench.runs import optimizer_options
from workbench.runs.settings import TrainSettings
from workbench.workspace import Workspace


def main() -> int:
    folder = Path(sys.argv[1]).resolve()
    workspace = Workspace.open(folder.parent.parent)
    job = measurement.TrialJob(folder)
    with job:
        settings = TrainSettings.load(folder / jobs.CONFIG)
        device = pick_device(settings.device)
        with gpu_lock.hold_for(job, workspace.locks, device.uuid, "a measurement"):
            job.beat("loading torch")
            compiler = settings.compile or bool(optimizer_options.package(settings))
            with processes.without_compiler(compiler):
                with processes.loading():
                    from workbench.trainer.trial.measure import measure
                found = measure(folder, job, settings, device)
        measurement.keep(workspace, settings, device, found)
    return int(job.exit_code)


if __name__ == "__main__":
    sys.exit(main())
