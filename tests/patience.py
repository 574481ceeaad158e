"""Waiting in tests: for a condition, and for so long that only a hang reaches the limit, on however slow a machine."""

from __future__ import annotations

import time
from collections.abc import Callable

from workbench import jobs
from workbench.runs.run import Run

PATIENCE = 400.0  # seconds


def until(condition: Callable[[], object], why: Callable[[], object] = lambda: "", every: float = 0.02) -> None:
    """Wait for a condition, looking every so many seconds. `why` says what is known when it never comes."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"it did not happen in {PATIENCE:.0f} s: {why()}"
        time.sleep(every)


def until_run(run: Run, condition: Callable[[], object]) -> None:
    """Wait for something that a living run does."""

    def there() -> object:
        true = condition()
        assert true or run.status.state.alive or condition(), f"{run.status} {jobs.log_tail(run.folder)}"
        return true

    until(there, lambda: jobs.log_tail(run.folder))
