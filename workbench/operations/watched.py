"""Look up operations by "NOUN/VERB", and cache their results for everyone who watches them."""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

from workbench.errors import ConfigError, WorkbenchError
from workbench.operations.registry import REGISTRY, Operation, operations
from workbench.workspace import Workspace, finite

SECONDS = 1.0  # how often a watched result is polled
BUG = "Something went wrong inside the workbench; see the terminal where it was started. Nothing was lost."
LOG = logging.getLogger("workbench")


def named(name: str) -> Operation:
    """Return the operation named "NOUN/VERB". Raises ConfigError if there is none."""
    operations()
    noun, _, verb = name.partition("/")
    if (found := REGISTRY.get((noun, verb))) is None:
        raise ConfigError(f"there is no operation {name[:80]!r}: see the list in docs/api_calls.md")
    return found


class Watched:
    """A result that several tabs may show. Readings are throttled and take at most about a tenth of the time."""

    def __init__(self, operation: Operation, read: Callable[[], Any]) -> None:
        self._operation, self._read = operation, read
        self._lock = threading.Lock()
        self._until, self._text = 0.0, ""
        self.asked = time.monotonic()

    @property
    def fresh(self) -> bool:
        """Whether `text` can be returned from the cache."""
        return time.monotonic() < self._until

    def text(self) -> str:
        """Return the result as the member of a JSON object: `"value":...` or `"problem":"sentence"`."""
        self.asked = time.monotonic()
        if self.fresh:
            return self._text
        with self._lock:
            if not self.fresh:
                began = time.monotonic()
                try:
                    value = json.dumps(finite(self._operation.plain(self._read())), separators=(",", ":"))
                    self._text = f'"value":{value}'
                except WorkbenchError as error:
                    self._text = f'"problem":{json.dumps(str(error))}'
                except Exception:  # a bug, which must not end the stream for the other results
                    LOG.exception("in %s/%s", self._operation.noun, self._operation.verb)
                    self._text = f'"problem":{json.dumps(BUG)}'
                ended = time.monotonic()
                self._until = ended + max(SECONDS / 2, 10 * (ended - began))
            return self._text

    def forget(self) -> None:
        """Discard the cached result."""
        self._until = 0.0


def watched(workspace: Workspace, name: str, values: Mapping[str, Any]) -> Watched:
    """Watch an operation's result. Raises ConfigError if the operation changes something."""
    one = named(name)
    if one.changes:
        raise ConfigError(f"{name} changes something and cannot be watched: call it instead")
    reader = cache(lambda: one.reader(workspace, values))  # lazy: a problem with the input shows up in `text`
    return Watched(one, lambda: reader()())
