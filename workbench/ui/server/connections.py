"""The server's connections: one that does not send a whole request head in time is closed, and what the server itself
says of requests is a line a second at most.

uvicorn waits for a head for ever, and a machine has a few thousand connections at most.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 20.0
LINE_SECONDS = 1.0
LOGGERS = ("uvicorn.error", "uvicorn.access", "uvicorn.asgi", "asyncio")


class Sparing(logging.Filter):
    """Lets a line a second through, since strangers decide how many there would be; the next says how many were not."""

    def __init__(self) -> None:
        super().__init__()
        self._next, self._left_out = 0.0, 0

    def filter(self, record: logging.LogRecord) -> bool:
        now = time.monotonic()
        if now < self._next:
            self._left_out += 1
            return False
        self._next = now + LINE_SECONDS
        if self._left_out:
            record.msg, record.args = f"{record.getMessage()} (left out since: {self._left_out:,} more)", ()
            self._left_out = 0
        return True


def log_sparingly() -> None:
    """From now on the server's own loggers write a line a second at most, all of them together."""
    sparing = Sparing()
    for logger in map(logging.getLogger, LOGGERS):
        logger.filters[:] = [one for one in logger.filters if not isinstance(one, Sparing)]
        logger.addFilter(sparing)


class Timed(H11Protocol):
    """uvicorn's protocol with a time limit from the first byte, or from the connection, to the end of the head."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._watch(True)

    def handle_events(self) -> None:
        try:
            super().handle_events()
        except UnicodeDecodeError:  # h11 lets bytes through in an address that uvicorn takes for ASCII
            self.send_400_response("Invalid HTTP request received.")

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        # What is left over while no request is under way is the beginning of a head.
        self._watch(self.conn.their_state is h11.IDLE and bool(self.conn.trailing_data[0]))

    def connection_lost(self, exc: Exception | None) -> None:
        self._watch(False)
        super().connection_lost(exc)

    def _watch(self, waiting: bool) -> None:
        if waiting and self._late is None and not self.transport.is_closing():
            self._late = self.loop.call_later(HEAD_SECONDS, self.transport.close)
        elif not waiting and self._late is not None:
            self._late.cancel()
            self._late = None
