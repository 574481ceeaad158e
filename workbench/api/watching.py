"""What the elements ask for: any operation by its noun and verb, and one stream of events for all that a tab shows.

    POST /call/NOUN/VERB   the inputs as a JSON object, the answer as JSON; whether it changes anything or not
    GET  /watch?what=[[1, "runs/show", {"name": "cats"}], ...]

The stream sends {"number": 1, "value": answer} at once and after each change, or {"number": 1, "problem": sentence}
where there is no answer now. However many tabs show the same, it is read once, and it is read again at once after any
call that changes something.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any

from fastapi import Request, Response
from pydantic import TypeAdapter

from workbench.errors import ConfigError, WorkbenchError
from workbench.operations.watched import BUG, LOG, SECONDS, Watched, named, watched
from workbench.workspace import Workspace

SILENT_SECONDS = 15.0  # then a comment is sent, so that proxies and browsers know that the stream is alive
COMPRESSED_BYTES = 2000  # an answer of more is sent compressed
MOST_STREAMS = 256
MOST_WATCHED = 24  # of one stream
KEPT_SECONDS = 60.0  # for which an answer that nobody watches keeps its reader


class Watching:
    """All streams of a workspace."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._watched: dict[str, Watched] = {}
        self._streams = 0
        self._changed = asyncio.Event()

    async def call(self, name: str, values: Mapping[str, Any]) -> Any:
        """Call an operation; whoever watches something sees at once what it has changed.

        Raises:
            WorkbenchError: What the operation raises.
        """
        one = named(name)
        try:
            answer = one.plain(await asyncio.to_thread(one, self._workspace, values))
        except WorkbenchError:
            raise
        except Exception as error:
            LOG.exception("in %s", name)
            raise WorkbenchError(BUG) from error
        if one.changes:
            for each in self._watched.values():
                each.forget()
            self._changed.set()
            self._changed = asyncio.Event()
        return answer

    def open(self, what: str) -> dict[int, Watched]:
        """Return what a stream shows, by its number.

        Raises:
            ConfigError: It is no list of numbers, operations and their inputs, or too much is watched.
        """
        try:
            asked = TypeAdapter(list[tuple[int, str, dict[str, Any]]]).validate_json(what)
        except ValueError as error:
            raise ConfigError('what: a list of [number, "noun/verb", {input: value}]') from error
        if len(asked) > MOST_WATCHED or self._streams >= MOST_STREAMS:
            raise ConfigError(f"{MOST_WATCHED} answers in each of {MOST_STREAMS} streams can be watched, no more")
        now = time.monotonic()
        for key in [key for key, one in self._watched.items() if now - one.asked > KEPT_SECONDS]:
            del self._watched[key]
        return {number: self._of(name, values) for number, name, values in asked}

    def _of(self, name: str, values: Mapping[str, Any]) -> Watched:
        key = json.dumps([name, values], sort_keys=True)
        if key not in self._watched:
            self._watched[key] = watched(self._workspace, name, values)
        return self._watched[key]

    async def events(self, shown: Mapping[int, Watched], request: Request) -> AsyncIterator[str]:
        """Yield server-sent events until the browser has gone."""
        sent: dict[int, str] = {}
        silent = time.monotonic()
        self._streams += 1
        try:
            while not await request.is_disconnected():
                changed = self._changed
                for number, one in shown.items():
                    text = one.text() if one.fresh else await asyncio.to_thread(one.text)
                    if text != sent.get(number):
                        sent[number] = text
                        silent = time.monotonic()
                        yield f'data: {{"number":{number},{text}}}\n\n'
                if time.monotonic() - silent > SILENT_SECONDS:
                    silent = time.monotonic()
                    yield ": nothing new\n\n"
                try:
                    await asyncio.wait_for(changed.wait(), SECONDS)
                except TimeoutError:
                    continue
        finally:
            self._streams -= 1


async def called(watching: Watching, name: str, request: Request, answer: Callable[[Any, int], Response]) -> Response:
    """Respond to POST /call/NOUN/VERB."""
    try:
        values = json.loads(await request.body() or b"{}")
    except ValueError as error:
        raise ConfigError(f"the body is no JSON ({error}): send an object of the operation's fields") from error
    if not isinstance(values, dict):
        raise ConfigError("the body is no JSON object: send one with the operation's fields")
    response = answer(await watching.call(name, values), 200)
    if len(response.body) > COMPRESSED_BYTES and "gzip" in request.headers.get("accept-encoding", ""):
        response.body = await asyncio.to_thread(gzip.compress, bytes(response.body), 6)
        response.headers.update({"content-encoding": "gzip", "content-length": str(len(response.body))})
    return response
