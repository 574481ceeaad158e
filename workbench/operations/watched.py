"""What elements ask for: any operation by "NOUN/VERB", once or again and again at little cost."""

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

SECONDS = 1.0  # between two looks at what is watched
BUG = "Something went wrong inside the workbench; see the terminal where it was started. Nothing was lost."
LOG = logging.getLogger("workbench")


def named(name: str) -> Operation:
    """Return the operation of "NOUN/VERB". Raises ConfigError for one that there is not."""
    operations()
    noun, _, verb = name.partition("/")
    if (found := REGISTRY.get((noun, verb))) is None:
        raise ConfigError(f"there is no operation {name[:80]!r}: docs/api_calls.md lists them")
    return found


class Watched:
    """An answer that several tabs may show: read again at most once a second, for a tenth of the time at most."""

    def __init__(self, operation: Operation, read: Callable[[], Any]) -> None:
        self._operation, self._read = operation, read
        self._lock = threading.Lock()
        self._until, self._text = 0.0, ""
        self.asked = time.monotonic()

    @property
    def fresh(self) -> bool:
        """Whether `text` need not be read anew."""
        return time.monotonic() < self._until

    def text(self) -> str:
        """Return the answer as JSON between braces: "value" or "problem"."""
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
                except Exception:  # a bug; what else is watched goes on
                    LOG.exception("in %s/%s", self._operation.noun, self._operation.verb)
                    self._text = f'"problem":{json.dumps(BUG)}'
                ended = time.monotonic()
                self._until = ended + max(SECONDS / 2, 10 * (ended - began))
            return self._text

    def forget(self) -> None:
        """Let the next who asks read it anew."""
        self._until = 0.0


def watched(workspace: Workspace, name: str, values: Mapping[str, Any]) -> Watched:
    """Return what reads an operation's answer again and again. Raises ConfigError for one that changes something."""
    one = named(name)
    if one.changes:
        raise ConfigError(f"{name} changes something: it is called, not watched")
    reader = cache(lambda: one.reader(workspace, values))  # bad input is refused at each reading, and not kept
    return Watched(one, lambda: reader()())
