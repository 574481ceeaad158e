"""The two routes of the page's elements: call any operation, and watch everything a tab shows over one event stream.

    POST /call/NOUN/VERB   inputs as a JSON object, result as JSON, whether the operation changes anything or not
    GET  /watch?what=[[1, "runs/show", {"name": "cats"}], ...]

The stream sends {"number": 1, "value": result} right away and after each change, or {"number": 1, "problem": sentence}
on an error. Tabs that show the same thing share one reading. A call that changes something triggers a new one.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any

from fastapi import Request
from pydantic import TypeAdapter

from workbench.errors import ConfigError, WorkbenchError
from workbench.operations.watched import BUG, LOG, SECONDS, Watched, named, watched
from workbench.workspace import Workspace

SILENT_SECONDS = 15.0  # after this, send a comment so that proxies and browsers keep the stream open
MOST_STREAMS = 256
MOST_WATCHED = 24  # results in one stream
KEPT_SECONDS = 60.0  # how long to keep the reader of a result that nobody watches


class Watching:
    """The calls and event streams of one workspace."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._watched: dict[str, Watched] = {}
        self._streams = 0
        self._changed = asyncio.Event()

    async def call(self, name: str, values: Mapping[str, Any]) -> Any:
        """Call an operation. If it changes something, all streams refresh. Raises the operation's WorkbenchError."""
        one = named(name)
        try:
            result = one.plain(await asyncio.to_thread(one, self._workspace, values))
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
        return result

    def open(self, what: str) -> dict[int, Watched]:
        """Return the results that a stream watches, by number.

        what: a JSON list of [number, "noun/verb", {input: value}]. Raises ConfigError if it is malformed or too long.
        """
        try:
            asked = TypeAdapter(list[tuple[int, str, dict[str, Any]]]).validate_json(what)
        except ValueError as error:
            raise ConfigError('what must be a list of [number, "noun/verb", {input: value}]') from error
        if len(asked) > MOST_WATCHED or self._streams >= MOST_STREAMS:
            raise ConfigError(f"at most {MOST_STREAMS} streams can be open, with at most {MOST_WATCHED} results each")
        now = time.monotonic()
        for key in [key for key, one in self._watched.items() if now - one.asked > KEPT_SECONDS]:
            del self._watched[key]
        found = {}
        for number, name, values in asked:
            key = json.dumps([name, values], sort_keys=True)
            if key not in self._watched:
                self._watched[key] = watched(self._workspace, name, values)
            found[number] = self._watched[key]
        return found

    async def events(self, shown: Mapping[int, Watched], request: Request) -> AsyncIterator[str]:
        """Yield server-sent events until the browser disconnects."""
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
