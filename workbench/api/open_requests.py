"""Requests that stay open: events, waiting for a sample, zips. At most so many at once, without a thread each."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from typing import Any

from fastapi import Request
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from workbench.errors import ConfigError
from workbench.operations.registry import Snapshot
from workbench.sampler import queue
from workbench.sampler.queue import Progress
from workbench.workspace import Workspace, finite

MOST = 32
EVENT_SECONDS = 1.0
WAIT_SECONDS = 0.2
SILENT_SECONDS = 15.0  # then a comment is sent, so that proxies and clients know that the stream is alive


class TooManyOpen(ConfigError):
    """No more requests may stay open."""


class OpenRequests:
    """Counts them."""

    def __init__(self) -> None:
        self._count = 0

    def take(self) -> None:
        """Raises TooManyOpen."""
        if self._count >= MOST:
            raise TooManyOpen(f"{self._count} requests are open already, {MOST} at most: close one, or ask again later")
        self._count += 1

    def free(self) -> None:
        self._count -= 1

    def stream(self, pieces: AsyncIterator[str] | Iterator[bytes], media_type: str) -> CountedStream:
        """Stream a response and count it until its last piece was sent. Raises TooManyOpen."""
        self.take()
        return CountedStream(pieces, media_type, self.free)

    def zip(self, pieces: Iterator[bytes], name: str) -> CountedStream:
        """The same, of a file that browsers and `curl -OJ` keep as `name`.zip."""
        answer = self.stream(pieces, "application/zip")
        answer.headers["content-disposition"] = f'attachment; filename="{name}.zip"'
        return answer

    @contextmanager
    def one(self) -> Iterator[None]:
        self.take()
        try:
            yield
        finally:
            self.free()


class CountedStream(StreamingResponse):
    """A streamed response; `done` is called when the last piece was sent or the client has gone."""

    def __init__(self, pieces: AsyncIterator[str] | Iterator[bytes], media_type: str, done: Callable[[], None]) -> None:
        super().__init__(pieces, media_type=media_type, headers={"cache-control": "no-store"})
        self._done = done

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._done()


async def events(name: str, read: Callable[[], Snapshot], request: Request) -> AsyncIterator[str]:
    """Yield a snapshot as server-sent events: at once and after each change, until it is final or the client left."""
    before, silent = "", 0.0
    while not await request.is_disconnected():
        seen = await asyncio.to_thread(read)
        text = json.dumps(finite(seen.model_dump(mode="json")))
        if text != before:
            yield f"event: {name}\ndata: {text}\n\n"
            before, silent = text, 0.0
        elif silent >= SILENT_SECONDS:
            yield ": nothing new\n\n"
            silent = 0.0
        if seen.over:
            return
        silent += EVENT_SECONDS
        await asyncio.sleep(EVENT_SECONDS)


async def wait_for_sample(workspace: Workspace, sample: str, seconds: float, request: Request) -> Progress:
    """The sample when it is over, the time is up, or the client has gone."""
    end = asyncio.get_running_loop().time() + seconds

    def look() -> Any:
        queue.revive(workspace)
        return queue.progress(workspace, sample)

    while True:
        found: Progress = await asyncio.to_thread(look)
        left = end - asyncio.get_running_loop().time()
        if found.state.over or left <= 0 or await request.is_disconnected():
            return found
        await asyncio.sleep(min(WAIT_SECONDS, left))
