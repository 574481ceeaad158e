"""The stall timeout: end a run that makes no progress, and write down the stack of every thread.

    stacks.txt      what every thread was doing when the run was ended; empty while all is well
    stacks-2.txt    the same for the second of several processes

A thread checks when the loop last reported progress (`Job.beat`). If the last report is older than the limit, the
process ends as STALLED, except in phases that may take long (`patient=True`, such as downloads). Code that holds the
interpreter lock also blocks that thread. Then a timer of `faulthandler`, which the thread resets at every check, runs
out, writes the stacks and ends the process; such a run has a stacks.txt but no result.json. Time while the process is
stopped or the machine asleep does not count, except for that timer: a process frozen for longer than the limit may end
when it resumes.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
from typing import IO, Self

from workbench import jobs
from workbench.display.quantities import duration
from workbench.errors import ExitCode, Stalled
from workbench.jobs import processes
from workbench.runs import checkpoints
from workbench.runs.failures import STACKS
from workbench.workspace import writing

CHECK_SECONDS = 1.0


class StallTimeout:
    """Watches a job while the context lasts.

    minutes: the longest time without a report; 0 turns the timeout off.
    rank:    of several processes, each of which writes its own stacks.
    """

    def __init__(self, job: jobs.Job, minutes: float, rank: int = 0) -> None:
        self._job, self._limit = job, minutes * 60
        self._over = threading.Event()
        self._path = job.folder / (f"stacks-{rank + 1}.txt" if rank else STACKS)
        self._file: IO[str] | None = None
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._path.unlink(missing_ok=True)  # from an earlier stall
        if self._limit:
            with writing(self._path):
                self._file = self._path.open("w", encoding="utf-8")
            self._reset_timer()
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._file is not None:
            self._thread.join()  # or it might reset the timer once more
            faulthandler.cancel_dump_traceback_later()
            self._file.close()
            self._path.unlink(missing_ok=True)

    def _reset_timer(self) -> None:
        assert self._file is not None
        faulthandler.dump_traceback_later(self._limit + CHECK_SECONDS, exit=True, file=self._file)

    def _watch(self) -> None:
        interval = min(CHECK_SECONDS, self._limit / 4)
        silent, last = 0.0, 0.0
        while not self._over.wait(interval):
            self._reset_timer()
            beat, reported = self._job.last_beat
            # Count checks instead of reading the clock, so that time in which nothing could run does not count.
            silent = 0.0 if reported != last or beat.get("patient") else silent + interval
            last = reported
            if silent >= self._limit:
                self._end(str(beat["phase"]), int(beat["step"]), int(beat["total"]))

    def _end(self, phase: str, step: int, total: int) -> None:
        faulthandler.dump_traceback(self._file or sys.stderr, all_threads=True)
        saved = checkpoints.steps(self._job.folder)
        where = f" (step {step} of {total})" if total else ""
        kept = f"the last checkpoint is from step {saved[-1]}" if saved else "no checkpoint was written yet"
        error = Stalled(
            f"nothing happened for {duration(self._limit)} in the phase {phase!r}{where}: {kept}. "
            f"{self._path.name} has the stack of every thread; raise stall_timeout if the machine is only slow"
        )
        sys.stderr.write(f"{error}\n{self._path.read_text(encoding='utf-8')}")
        sys.stderr.flush()
        self._job.fail(error)
        processes.end_children()
        os._exit(int(ExitCode.STALLED))
