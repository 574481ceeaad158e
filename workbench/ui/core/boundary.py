"""The border between the page and the library: an error of ours becomes a sentence on the page, a bug goes to the log.

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
BUG = "Something went wrong inside the workbench; the terminal where it was started says more. Nothing was lost."
# What every listener of the page shares: nothing here is an API, and no handler works longer than a moment. Without
# `show_progress_on` Gradio's browser part looks up every output that any listener ever had, at every event of any of
# them: seconds of work for each tick on a page of this size.
QUIET: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden", "show_progress_on": []}
LATE_SECONDS = 10.0
# A result appears at the top of the page, while its button stands at the end of a long form.
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
    """Show a sentence for a moment. Gradio would render it as HTML, and names come from files of anybody's."""
    gr.Info(html.escape(sentence, quote=False), duration=seconds)


def warn(sentence: str, title: str, seconds: float | None = 12) -> None:
    """Show what was not done, and why; without seconds until it is closed."""
    gr.Warning(html.escape(sentence, quote=False), duration=seconds, title=title)


def tick(function: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a listener of the page's timer: what fails now is read again a second later, without a message."""

    @functools.wraps(function)
    def listener(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except (WorkbenchError, OSError) as error:  # a file on its way between two names
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
    """Let `event` call function(*before, *values of the fields); returns what comes after it.

    The browser puts the fields' values into one text first. A field that is an input of a listener costs the browser
    work at every event of the page ever after, and forms have a hundred.
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
    """Keep the components of `view` as `read(*inputs)` says, with each tick of the timer; None leaves all as they are.

    The last of the inputs holds the session's Seen. The browser does work for every output of a listener, changed or
    not: so a tick sends only what is `quick`, which changes all the time, and asks for the rest when any of it would
    be different.
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
    """What one open page shows already, kept with its session: only what changed is sent again.

    A tick that was under way when the person chose something else comes too late: `late` tells, so that it cannot
    paint the old choice over the new one.
    """

    def __init__(self) -> None:
        self._marks: dict[str, int] = {}
        self._choice: tuple[str | None, float] = (None, 0.0)

    def choose(self, name: str | None) -> None:
        """Another run or sample is open from now on: everything is sent anew."""
        self._marks.clear()
        self._choice = (name, time.monotonic() + LATE_SECONDS)

    def late(self, name: str | None) -> bool:
        """Whether a tick is about what was open before."""
        choice, until = self._choice
        return name != choice and time.monotonic() < until

    def would_change(self, names: Iterable[str], values: dict[str, Any]) -> bool:
        """Whether `changed` would send any of them; they count as not yet seen."""
        return any(name in values and self._marks.get(name) != _mark(values[name]) for name in names)

    def changed(self, names: Iterable[str], values: dict[str, Any]) -> list[Any]:
        """The values of these names, those that the page shows already replaced by "leave it".

        A value that is costly to make or to compare comes as (signature, function that makes it); a name without a
        value leaves its component as it is. Where one cannot be made, none counts as seen: nothing is sent.
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
    """By which a value is known again: its signature's, where it has one."""
    return hash(repr(value[0] if isinstance(value, tuple) else value))
