"""The watchdog: a run that hangs is ended, and leaves what every thread was doing.

    stacks.txt      what every thread was doing when the run was ended; empty while all is well
    stacks-2.txt    the same of the second of several processes

A thread looks at when the loop last said what it does (`Job.beat`). Silence for longer than the limit ends the process
as HUNG, but for phases that said they may be silent (`patient=True`: downloads). Code that does not even let other
threads run (it holds the interpreter's lock) stops that thread, too: then a timer of `faulthandler`, which the thread
winds up at every look, runs out, writes the stacks and ends the process; such a run has no result.json, its stacks.txt
tells. Time in which the process was stopped or the machine asleep does not count, except for that timer: a process
frozen for longer than the limit may end when it thaws. Not covered: who starts the run again.
"""

from __future__ import annotations

import faulthandler
import os
import sys
import threading
from types import TracebackType
from typing import IO, Self

from workbench import jobs
from workbench.errors import ExitCode, Hung
from workbench.jobs import processes
from workbench.runs import checkpoints
from workbench.runs.failure_rules import STACKS
from workbench.workspace import writing

LOOK_SECONDS = 1.0


class Watchdog:
    """Watches a job while the context lasts.

    minutes: how long it may be silent; 0 watches nothing.  rank: of several processes each writes stacks of its own
    """

    def __init__(self, job: jobs.Job, minutes: float, rank: int = 0) -> None:
        self._job, self._limit = job, minutes * 60
        self._over = threading.Event()
        self._path = job.folder / (f"stacks-{rank + 1}.txt" if rank else STACKS)
        self._file: IO[str] | None = None
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._path.unlink(missing_ok=True)  # of an earlier hang
        if self._limit:
            with writing(self._path):
                self._file = self._path.open("w")
            self._wind_up()
            self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._over.set()
        if self._file is not None:
            self._thread.join()  # else it might wind up the timer once more
            faulthandler.cancel_dump_traceback_later()
            self._file.close()
            self._path.unlink(missing_ok=True)

    def _wind_up(self) -> None:
        assert self._file is not None
        faulthandler.dump_traceback_later(self._limit + LOOK_SECONDS, exit=True, file=self._file)

    def _watch(self) -> None:
        look = min(LOOK_SECONDS, self._limit / 4)
        silent, heard = 0.0, 0.0
        while not self._over.wait(look):
            self._wind_up()
            beat, said = self._job.last_beat
            # Looks are counted, not the clock: time in which nothing could run is nobody's silence.
            silent = 0.0 if said != heard or beat.get("patient") else silent + look
            heard = said
            if silent >= self._limit:
                self._end(str(beat["phase"]), int(beat["step"]), int(beat["total"]))

    def _end(self, phase: str, step: int, total: int) -> None:
        faulthandler.dump_traceback(self._file or sys.stderr, all_threads=True)
        saved = checkpoints.steps(self._job.folder)
        where = f" (step {step} of {total})" if total else ""
        kept = f"the last checkpoint is of step {saved[-1]}" if saved else "no checkpoint was written yet"
        error = Hung(
            f"nothing happened for {jobs.duration(self._limit)} in the phase {phase!r}{where}: {kept}. "
            f"{self._path.name} says what every thread was doing; raise stall_timeout if the machine is only slow"
        )
        sys.stderr.write(f"{error}\n{self._path.read_text()}")
        sys.stderr.flush()
        self._job.fail(error)
        processes.end_children()
        os._exit(int(ExitCode.HUNG))
