"""Protect the server's connections and log: a time limit for request heads, and at most one log line per second.

uvicorn would wait for a head forever, and a machine has only a few thousand connections.
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
    """Let one line per second through, because strangers cause these lines. The next line counts the omitted ones."""

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
            record.msg, record.args = f"{record.getMessage()} (omitted since the last line: {self._left_out:,})", ()
            self._left_out = 0
        return True


def log_sparingly() -> None:
    """Limit the server's loggers to one line per second in total."""
    sparing = Sparing()
    for logger in map(logging.getLogger, LOGGERS):
        logger.filters[:] = [one for one in logger.filters if not isinstance(one, Sparing)]
        logger.addFilter(sparing)


class Timed(H11Protocol):
    """uvicorn's protocol with a time limit for the head of a request."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._watch(True)

    def handle_events(self) -> None:
        try:
            super().handle_events()
        except UnicodeDecodeError:  # h11 accepts bytes in an address that uvicorn decodes as ASCII
            self.send_400_response("Invalid HTTP request received.")

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        # Leftover data between requests is the beginning of a head.
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
