"""A run's time limit: is it time to save and stop? The waiting for the device does not count, a pause does."""

from __future__ import annotations

import time


class Deadline:
    """`minutes` from now; None is never."""

    def __init__(self, minutes: float | None) -> None:
        self.minutes = minutes
        self._end = None if minutes is None else time.monotonic() + 60 * minutes

    def over(self) -> bool:
        """Whether the time is up."""
        return self._end is not None and time.monotonic() >= self._end
