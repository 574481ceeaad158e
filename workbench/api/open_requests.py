"""Requests that stay open: events, waiting for a sample, zips. Their number is limited, and none holds a thread."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from fastapi import Request
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from workbench.errors import ConfigError
from workbench.sampler import queue
from workbench.sampler.queue import Progress
from workbench.snapshots import Snapshot
from workbench.workspace import Workspace, finite

MOST = 32
EVENT_SECONDS = 1.0
WAIT_SECONDS = 0.2
SILENT_SECONDS = 15.0  # after this, send a comment so that proxies and clients keep the stream open


class TooManyOpen(ConfigError):
    """The limit of open requests is reached."""


class OpenRequests:
    """Count the open requests."""

    def __init__(self) -> None:
        self._count = 0

    @contextmanager
    def one(self) -> Iterator[None]:
        """Count a request while the block runs. Raises TooManyOpen."""
        if self._count >= MOST:
            raise TooManyOpen(f"{self._count} requests are already open, the limit is {MOST}: close one or retry later")
        self._count += 1
        try:
            yield
        finally:
            self._count -= 1

    def stream(self, chunks: AsyncIterator[str] | Iterator[bytes], media_type: str) -> CountedStream:
        """Stream a response and count it until it ends. Raises TooManyOpen."""
        counted = ExitStack()
        counted.enter_context(self.one())
        return CountedStream(chunks, media_type, counted.close)

    def zip(self, chunks: Iterator[bytes], name: str) -> CountedStream:
        """Stream a zip that browsers and `curl -OJ` save as `name`.zip. Raises TooManyOpen."""
        response = self.stream(chunks, "application/zip")
        response.headers["content-disposition"] = f'attachment; filename="{name}.zip"'
        return response


class CountedStream(StreamingResponse):
    """A streamed response that calls `done` when it ends or the client disconnects."""

    def __init__(self, chunks: AsyncIterator[str] | Iterator[bytes], media_type: str, done: Callable[[], None]) -> None:
        super().__init__(chunks, media_type=media_type, headers={"cache-control": "no-store"})
        self._done = done

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._done()


async def events(name: str, read: Callable[[], Snapshot], request: Request) -> AsyncIterator[str]:
    """Yield a snapshot as server-sent events, now and after each change, until it is over or the client disconnects."""
    before, silent = "", 0.0
    while not await request.is_disconnected():
        snapshot = await asyncio.to_thread(read)
        text = json.dumps(finite(snapshot.model_dump(mode="json")))
        if text != before:
            yield f"event: {name}\ndata: {text}\n\n"
            before, silent = text, 0.0
        elif silent >= SILENT_SECONDS:
            yield ": nothing new\n\n"
            silent = 0.0
        if snapshot.over:
            return
        silent += EVENT_SECONDS
        await asyncio.sleep(EVENT_SECONDS)


async def wait_for_sample(workspace: Workspace, sample: str, seconds: float, request: Request) -> Progress:
    """Return the sample once it is over, the time is up, or the client has disconnected."""
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
