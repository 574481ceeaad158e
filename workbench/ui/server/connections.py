"""The server's connections: one that does not send a whole request head in time is closed.

uvicorn waits for a head for ever, and a machine has a few thousand connections at most. Not covered: bodies, which have
limits of their own (bodies); answers that nobody reads, which the system's buffers bound.
"""

from __future__ import annotations

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

HEAD_SECONDS = 20.0


class Timed(H11Protocol):
    """uvicorn's protocol with a time limit from the first byte, or from the connection, to the end of the head."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._watch(True)

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
