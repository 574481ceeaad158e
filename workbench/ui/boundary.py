"""The border between the page and the library: an error of ours becomes a sentence on the page, a bug goes to the log.

Not covered: problems of single settings, which a form shows beside itself (form).
"""

from __future__ import annotations

import functools
import logging
import time
from collections.abc import Callable, Iterable
from typing import Any

import gradio as gr

from workbench.errors import WorkbenchError

LOG = logging.getLogger("workbench.ui")
BUG = "Something went wrong inside the workbench; the terminal where it was started says more. Nothing was lost."
# What every listener of the page shares: nothing here is an API, and no handler works longer than a moment.
QUIET: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden"}
LATE_SECONDS = 10.0
# What was asked for is shown at the top of the page, while the button that asked stands at the end of a long form.
UPWARDS = """() => {
    const wrong = [...document.querySelectorAll(".problems")].some((box) => box.offsetParent);
    if (!wrong) window.scrollTo({top: 0, behavior: "smooth"});
}"""
TICK: dict[str, Any] = {**QUIET, "concurrency_limit": None}


def handler(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a listener. After an error every output stays as it is, and a message says what to do."""

    @functools.wraps(function)
    def listener(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except WorkbenchError as error:
            gr.Warning(str(error), duration=12, title="Not done")
        except Exception:
            LOG.exception("in %s", function.__qualname__)
            gr.Warning(BUG, duration=None, title="A bug")
        return gr.skip()

    return listener


def tick(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a listener of the page's timer: what fails now is looked at again a second later, without a message."""

    @functools.wraps(function)
    def listener(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except (WorkbenchError, OSError) as error:  # a file on its way between two names
            LOG.debug("tick: %s", error)
            return gr.skip()

    return listener


class Seen:
    """What one open page shows already, kept with its session: only what changed is sent again.

    A tick that was under way when the person chose something else comes too late: `late` tells, so that it cannot
    paint the old choice over the new one.
    """

    def __init__(self) -> None:
        self._marks: dict[str, int] = {}
        self._choice: tuple[str | None, float] = (None, 0.0)

    def choose(self, name: str | None) -> None:
        """Something else is shown from now on: everything is sent anew."""
        self._marks.clear()
        self._choice = (name, time.monotonic() + LATE_SECONDS)

    def late(self, name: str | None) -> bool:
        """Whether a tick speaks of what was shown before."""
        choice, until = self._choice
        return name != choice and time.monotonic() < until

    def changed(self, names: Iterable[str], values: dict[str, Any]) -> list[Any]:
        """The values of these names, those that the page shows already replaced by "leave it".

        A value that is costly to make or to compare comes as (signature, function that makes it); a name without a
        value leaves its component as it is.
        """
        outputs = []
        for name in names:
            if name not in values:
                outputs.append(gr.skip())
                continue
            value = values[name]
            signature, make = value if isinstance(value, tuple) else (value, None)
            mark = hash(repr(signature))
            outputs.append(gr.skip() if self._marks.get(name) == mark else make() if make else value)
            self._marks[name] = mark
        return outputs
