"""Listeners of the page: an error of the library becomes a sentence on the page, a bug goes to the log.

Not covered: problems of single settings, which a form shows beside itself (form).
"""

from __future__ import annotations

import functools
import html
import json
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import gradio as gr
from pydantic import BaseModel, ValidationError

from workbench.errors import WorkbenchError

Request = TypeVar("Request", bound=BaseModel)
LOG = logging.getLogger("workbench.ui")
BUG = "Something went wrong inside the workbench; see the terminal where it was started. Nothing was lost."
# Of every listener: it is no API, and it is done in a moment. Without `show_progress_on` Gradio's browser part looks up
# the outputs of all listeners at every event: seconds of work for each tick on a page of this size.
QUIET: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden", "show_progress_on": []}
LATE_SECONDS = 10.0
# A result appears at the top of the page, its button is at the end of a long form.
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
            warn(str(error), "Not done")
        except Exception:
            LOG.exception("in %s", function.__qualname__)
            warn(BUG, "A bug", None)
        return gr.skip()

    return listener


def answering(
    name: str, model: type[Request], method: Callable[[Request], dict[str, Any]]
) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """A function that the browser calls as server.NAME; whatever goes wrong becomes {"problem": sentence}."""

    def answer(request: dict[str, Any]) -> dict[str, Any]:
        try:
            return method(model.model_validate(request))
        except WorkbenchError as error:
            return {"problem": str(error)}
        except ValidationError as error:
            fields = ", ".join(sorted({str(one["loc"][0]) for one in error.errors() if one["loc"]}))
            return {"problem": f"This request cannot be answered ({fields or 'its form'})."}
        except Exception:
            LOG.exception("in %s", name)
            return {"problem": BUG}

    answer.__name__ = name
    return answer


def tell(sentence: str, seconds: float = 5) -> None:
    """Show a sentence for a moment. It is escaped: Gradio renders it as HTML, and names come from foreign files."""
    gr.Info(html.escape(sentence, quote=False), duration=seconds)


def warn(sentence: str, title: str, seconds: float | None = 12) -> None:
    """Show what was not done, and why; without seconds until it is closed."""
    gr.Warning(html.escape(sentence, quote=False), duration=seconds, title=title)


def tick(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a listener of the timer: after an error it is called again a second later, without a message."""

    @functools.wraps(function)
    def listener(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except (WorkbenchError, OSError) as error:  # a file that is being replaced
            LOG.debug("tick: %s", error)
            return gr.skip()

    return listener


def send(
    event: Callable[..., Any],
    function: Callable[..., Any],
    fields: Sequence[Any],
    outputs: Any,
    before: Sequence[Any] = (),
    **more: Any,
) -> Any:
    """Let `event` call function(*before, *values of the fields); returns the event after it.

    The browser packs the values into one text first: each field that is an input of a listener costs the browser time
    at every event of the page, and forms have a hundred.
    """
    packed_values = gr.Textbox(visible=False)
    packed = event(None, list(fields), packed_values, js="(...values) => JSON.stringify(values)", **more, **QUIET)
    return packed.then(_unpacked(function), [*before, packed_values], outputs, **more, **QUIET)


def _unpacked(function: Callable[..., Any]) -> Callable[..., Any]:
    def listener(*arguments: Any) -> Any:
        *before, packed_values = arguments
        return function(*before, *json.loads(packed_values))

    listener.__qualname__ = function.__qualname__  # not its signature, which Gradio would check
    return listener


def watch(
    timer: gr.Timer,
    read: Callable[..., dict[str, Any] | None],
    inputs: list[Any],
    view: dict[str, Any],
    quick: tuple[str, ...] = (),
) -> None:
    """Set the components of `view` to the values of `read(*inputs)` at each tick of the timer; None changes nothing.

    The last of the inputs holds the session's Seen. Every output of a listener costs the browser time, changed or not:
    so a tick sends only `quick`, which changes all the time, and the rest only when some of it changed.
    """
    slow, pulse = [name for name in view if name not in quick], gr.State(0)

    def quick_values(*arguments: Any) -> Any:
        values, seen = read(*arguments), arguments[-1]
        if values is None:
            return gr.skip()
        moved = seen.would_change(slow, values)
        return [*seen.changed(quick, values), time.monotonic_ns() if moved else gr.skip()]

    def whole(*arguments: Any) -> Any:
        values = read(*arguments)
        return gr.skip() if values is None else arguments[-1].changed(view, values)

    timer.tick(tick(quick_values), inputs, [*(view[name] for name in quick), pulse], **TICK)
    pulse.change(tick(whole), inputs, list(view.values()), **TICK)


class Seen:
    """The values that one open page has already, kept with its session: only what changed is sent again.

    A tick may end after the person chose something else: `late` says so, so that the old choice does not overwrite the
    new one.
    """

    def __init__(self) -> None:
        self._marks: dict[str, int] = {}
        self._choice: tuple[str | None, float] = (None, 0.0)

    def choose(self, name: str | None) -> None:
        """Another run or sample is open from now on: everything is sent again."""
        self._marks.clear()
        self._choice = (name, time.monotonic() + LATE_SECONDS)

    def late(self, name: str | None) -> bool:
        """Whether a tick belongs to the choice before."""
        choice, until = self._choice
        return name != choice and time.monotonic() < until

    def would_change(self, names: Iterable[str], values: dict[str, Any]) -> bool:
        """Whether `changed` would send any of them."""
        return any(name in values and self._marks.get(name) != _mark(values[name]) for name in names)

    def changed(self, names: Iterable[str], values: dict[str, Any]) -> list[Any]:
        """The values of these names; those that the page has already are skipped.

        A value that is costly to make or to compare is given as (signature, function that makes it); a name without a
        value is skipped. When one cannot be made, none counts as sent.
        """
        outputs, marks = [], {}
        for name in names:
            if name not in values:
                outputs.append(gr.skip())
                continue
            value, mark = values[name], _mark(values[name])
            make = value[1] if isinstance(value, tuple) else None
            outputs.append(gr.skip() if self._marks.get(name) == mark else make() if make else value)
            marks[name] = mark
        self._marks |= marks
        return outputs


def _mark(value: Any) -> int:
    """The hash of a value, or of its signature where it has one."""
    return hash(repr(value[0] if isinstance(value, tuple) else value))
