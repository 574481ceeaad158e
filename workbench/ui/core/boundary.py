"""Listeners of the page: an error of the library becomes a sentence on the page, a bug goes to the log."""

from __future__ import annotations

import functools
import html
import json
import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import gradio as gr
from gradio.blocks import Block
from pydantic import BaseModel, ValidationError

from workbench.errors import WorkbenchError

Request = TypeVar("Request", bound=BaseModel)
LOG = logging.getLogger("workbench.ui")
BUG = "Something went wrong inside the workbench; see the terminal where it was started. Nothing was lost."
# Of every listener: it is no API, and it is done in a moment. Without `show_progress_on` Gradio's browser part looks up
# the outputs of all listeners at every event: seconds of work for each tick on a page of this size.
QUIET: dict[str, Any] = {"api_visibility": "private", "show_progress": "hidden", "show_progress_on": []}
# A result appears at the top of the page, its button is at the end of a long form; a question must be seen.
UPWARDS = """async () => {
    await new Promise((go) => setTimeout(go, 60));  // until problems are shown
    const shown = (name) => [...document.querySelectorAll(name)].find((box) => box.offsetParent);
    const question = shown(".question");
    question?.scrollIntoView({block: "center"});
    question?.querySelectorAll("button")[1].focus({preventScroll: true});
    if (!question && !shown(".problems")) window.scrollTo({top: 0, behavior: "smooth"});
}"""
PACK = "(...values) => JSON.stringify(values)"
TICK: dict[str, Any] = {**QUIET, "concurrency_limit": None}
# Of an event that carries a choice: by default Gradio drops one that comes while an earlier one is answered. These are
# all answered, one after the other, so that the last one counts.
EACH: dict[str, Any] = {"trigger_mode": "multiple", "concurrency_limit": 1}
# Gradio's events of a person's choice, and which count while an earlier one is answered.
CHOICES = {"upload": "multiple", **dict.fromkeys(("input", "change", "select", "blur", "release"), "always_last")}


def handler(function: Callable[..., Any], at: Sequence[Any] = ()) -> Callable[..., Any]:
    """Wrap a listener. After an error every output stays as it is, and a message says what to do (`warn`)."""

    @functools.wraps(function)
    def listener(*arguments: Any) -> Any:
        try:
            return function(*arguments)
        except WorkbenchError as error:
            warn(str(error), at)
        except Exception:
            LOG.exception("in %s", getattr(function, "__qualname__", function))
            warn(BUG, at)
        return gr.skip()

    return listener


def on(
    events: Any, function: Callable[..., Any], inputs: Sequence[Any] = (), outputs: Sequence[Any] = (), **more: Any
) -> Any:
    """Call `function(*inputs)` at an event, or at any of several, as `handler` does; returns the event after it."""
    event = functools.partial(gr.on, events) if isinstance(events, list) else events
    return event(handler(function, sources(events)), list(inputs), list(outputs), **QUIET | more)


def count_last_choices(page: gr.Blocks) -> None:
    """Let no choice of a person be lost: of those that come while a listener answers an earlier one, the last counts.

    Gradio drops them but for changes, which is right for buttons, whose second click is a slip, and for ticks. What is
    called after such an event is dropped in the same way. Every upload counts.
    """
    kept: dict[int | None, str] = {}
    for number, one in sorted(page.fns.items()):
        events = {event for _, event in one.targets}
        mode = next((CHOICES[event] for event in CHOICES if event in events), kept.get(one.trigger_after))
        if mode and one.trigger_mode == "once":
            one.trigger_mode = mode
        if mode:
            kept[number] = one.trigger_mode


def sources(events: Any) -> list[Any]:
    """The components of an event, or of several."""
    found = []
    for event in events if isinstance(events, list) else [events]:
        bound = getattr(event, "args", None) or (getattr(event, "__self__", None),)  # of what is called after an event
        found += [one for one in bound if isinstance(one, Block)]
    return found


def listed(done: Any, count: int) -> list[Any]:
    """What a listener with so many outputs returned, as a list: the value of one output is given bare."""
    return list(done) if count > 1 else [done][:count]


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


def warn(sentence: str, at: Sequence[Any] = ()) -> None:
    """Say what was not done, and why: below the first of these components that is seen, until it is used again.

    The browser takes it there out of Gradio's message (assets/page.js), which else stays until it is closed.
    """
    names = " ".join(f"at-{one.elem_id or f'component-{one._id}'}" for one in at)
    gr.Warning(f'<span class="not-done {names}">{html.escape(sentence, quote=False)}</span>', duration=None)


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


FEW, UNCHECKED = 7, (gr.Textbox, gr.Checkbox, gr.HTML)


class PackedFields:
    """The values of many fields, packed into one text by the browser when `event` happens.

    Each field that is an input of a listener costs the browser time at every event of the page, and forms have a
    hundred.
    """

    def __init__(
        self, event: Callable[..., Any], fields: Sequence[Any], js: str = PACK, text: Any = None, **more: Any
    ) -> None:
        """js: packs them;  text: a packed_text() to share;  more: options of Gradio's event"""
        self._text, self._more = text or packed_text(), more | QUIET
        self._packed = event(None, list(fields), self._text, js=js, **self._more)

    def call(self, function: Callable[..., Any], outputs: Any, before: Sequence[Any] = ()) -> Any:
        """Call function(*before, *values of the fields) then; returns the event after it."""
        return self._packed.then(_unpacked(function), [*before, self._text], outputs, **self._more)


def packed_text() -> gr.Textbox:
    """What packed values are written into. Listeners of the same fields share it: what a later one packs is newer."""
    return gr.Textbox(visible=False)


def send(
    event: Callable[..., Any],
    function: Callable[..., Any],
    fields: Sequence[Any],
    outputs: Any,
    before: Sequence[Any] = (),
    text: Any = None,
    **more: Any,
) -> Any:
    """Let `event` call function(*before, *values of the fields); returns the event after it. They are packed, into
    `text` if it is given, unless they are few and of kinds that Gradio does not check: those cost less as they are."""
    if len(fields) <= FEW and all(type(field) in UNCHECKED for field in fields):
        return event(function, [*before, *fields], outputs, **(more | QUIET))
    return PackedFields(event, fields, text=text, **more).call(function, outputs, before)


def _unpacked(function: Callable[..., Any]) -> Callable[..., Any]:
    def listener(*arguments: Any) -> Any:
        *before, packed_values = arguments
        try:
            values = json.loads(packed_values)
        except (TypeError, ValueError):
            values = None
        if not isinstance(values, list):  # of a call that no page of ours makes
            raise gr.Error("The values are not those of this form.", print_exception=False)
        return function(*before, *values)

    listener.__qualname__ = function.__qualname__  # not its signature, which Gradio would check
    return listener
