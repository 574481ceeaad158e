"""`python -m workbench.trainer.decoding runs/NAME/.decode`: previews that were kept as latents become videos. A job."""

from __future__ import annotations

import sys
from pathlib import Path

from workbench.devices import pick_device
from workbench.jobs import Job
from workbench.trainer.settings import TrainSettings


def main() -> int:
    folder = Path(sys.argv[1]).resolve()
    with Job(folder) as job:
        job.beat("loading torch")
        from workbench.trainer.previews import decode_latents

        run = folder.parent
        device = pick_device(TrainSettings.load(run / "config.json").device)
        count = decode_latents(run, device, lambda done, total: job.beat("decoding previews", done, total))
        job.outcome = {"decoded": count}
    return int(job.exit_code)


if __name__ == "__main__":
    sys.exit(main())
