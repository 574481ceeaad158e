"""What a run's process does with its tracker, without the training: python -m tests.trainer.tracked CALLS.

CALLS is JSON: [[RUN, TRACKER, FIRST, LAST, VIDEO?], ...] logs steps FIRST to LAST, a measurement and a preview; [RUN]
alone forgets that the tracker knows the run.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from accelerate import Accelerator

from workbench.runs.settings import TrainSettings
from workbench.trainer import trackers


def log(run: Path, tracker: str, first: int, last: int, video: Path | None = None) -> list[str]:
    """Log steps and return what was said."""
    said: list[str] = []
    settings = TrainSettings(dataset="cats", tracker=tracker, tracker_project="tests")  # type: ignore[arg-type]
    accelerator = Accelerator(cpu=True, **trackers.accelerator_options(run, settings))
    tracked = trackers.Tracker(accelerator, run, settings, first - 1, said.append)
    for step in range(first, last + 1):
        tracked.log({"step": step, "time": 0.0, "loss": 1 / step, "samples": [[500, 1 / step]]})
    tracked.log({"step": last, "time": 0.0, "held_out_loss": 0.5, "held_out_bands": [0.75, 0.25]})
    if video:
        tracked.show(last, [("a cat", video)])
    tracked.finish()
    return said


if __name__ == "__main__":
    for call in json.loads(sys.argv[1]):
        run, *rest = call
        if rest:
            tracker, first, last, *video = rest
            print("\n".join(log(Path(run), tracker, first, last, *map(Path, video))))
        else:
            (Path(run) / trackers.RECORD).unlink()
