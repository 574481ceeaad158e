"""The import job: `python -m workbench.dataset_builder JOB_FOLDER`, where JOB_FOLDER is datasets/<slug>/.import."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from workbench import jobs
from workbench.dataset_builder.dataset import Dataset
from workbench.dataset_builder.settings import ImportSettings
from workbench.dataset_builder.verdicts import Verdict


def main(folder: Path) -> int:
    """Import what config.json names into the dataset that holds the folder; the exit code says how it ended."""
    os.nice(5)
    with jobs.Job(folder) as job:
        settings = ImportSettings.load(folder / jobs.CONFIG)
        dataset = Dataset(folder.resolve().parent)
        if settings.trigger_word:
            dataset.set_trigger_word(settings.trigger_word)
        counts = {"taken": 0, "mended": 0, "known": 0, "refused": 0}
        began = time.monotonic()

        def on_progress(done: int, total: int, verdict: Verdict | None) -> None:
            if verdict is not None:
                counts[verdict.outcome] += 1
                print(verdict.sentence, flush=True)  # noqa: T201 - the job's log
            job.outcome = {"counts": dict(counts)}
            seconds = (time.monotonic() - began) / done if done else None
            job.beat("import", done, total, step_seconds=seconds, message=verdict.sentence if verdict else "")
            if job.take("stop") is not None:
                raise jobs.Stop(f"stopped after {done} of {total} files: start it again to go on")

        dataset.import_files(settings.sources, on_progress)
    return int(job.exit_code)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
