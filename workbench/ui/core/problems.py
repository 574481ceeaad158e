"""What is wrong with a form: sentences at its button and at the fields, as assets/problems.js shows them.

Refused settings put them there: the first field is opened, brought into view and focused, and screen readers announce
the sentences. A sentence goes when its field changes. One whose cause is elsewhere (an empty dataset) goes with it: the
browser asks.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gradio as gr

from workbench.errors import WorkbenchError
from workbench.settings import Settings, specs
from workbench.ui.core import render
from workbench.ui.core.boundary import listed, on

NO_PROBLEMS: dict[str, Any] = {"problems": [], "at": 0}
Beside = Mapping[str, Any]
NOTHING_BESIDE: Beside = {}


def problems_box(settings: type[Settings] | None = None) -> gr.HTML:
    """The component of a form's problems, or of those of fields that are no form's."""
    return gr.HTML(
        value=NO_PROBLEMS,
        html_template="",
        js_on_load=render.script("problems"),
        apply_default_css=False,
        prefix=f"{settings.__name__}-" if settings else "-",
        elem_classes="problems-box",
    )


def described(
    error: WorkbenchError, settings: type[Settings] | None = None, beside: Beside = NOTHING_BESIDE
) -> list[dict[str, str]]:
    """The problems one by one: the sentence, its field's title before it, and the field's name, "" for none.

    beside: name -> field that is no setting's; its name here is "#" and its id
    """
    titles = {spec.name: spec.title for spec in specs(settings)} if settings else {}
    names = {name: name for name in titles} | {name: f"#{field.elem_id}" for name, field in beside.items()}
    titles |= {name: str(field.label) for name, field in beside.items()}
    if not error.problems:
        return [{"name": "", "text": str(error)}]
    return [
        {"name": names.get(name, ""), "text": f"{titles.get(name, name)}: {sentence}"}
        for name, sentence in error.problems.items()
    ]


def refused(problems: Sequence[Mapping[str, str]], lasting: Sequence[Mapping[str, str]] = ()) -> dict[str, Any]:
    """The component's value; `at` tells that the same problems were found once more.

    lasting: problems that a check finds for as long as they last; the browser asks again and again whether they do
    """
    found = [{**one, "lasts": one in lasting} for one in problems]
    return {"problems": found, "at": time.time_ns() // 1_000_000}


def remaining(present: Mapping[str, Any], lasting: Sequence[Mapping[str, str]]) -> dict[str, Any]:
    """The component's value without the lasting ones that the check does not find any more."""
    left = [
        one for one in present["problems"] if not one["lasts"] or {"name": one["name"], "text": one["text"]} in lasting
    ]
    return {**present, "problems": left}


class Fields:
    """Fields that are no form's, with a button: what it refuses stands at both, as with a form."""

    def __init__(self, **fields: Any) -> None:
        """fields: by the names that errors give them. Made where the problems shall stand, which is at the button."""
        self._fields = fields
        self.problems = problems_box()

    def submit(
        self,
        events: Any,
        action: Callable[..., Any],
        inputs: Sequence[Any] = (),
        outputs: Sequence[Any] = (),
        **more: Any,
    ) -> Any:
        """Call `action(*inputs)` at an event; what it raises appears there, and `outputs` stay as they are."""

        @functools.wraps(action)
        def listener(*arguments: Any) -> Any:
            try:
                done = listed(action(*arguments), len(outputs))
            except WorkbenchError as error:
                return {self.problems: refused(described(error, beside=self._fields))}
            return [NO_PROBLEMS, *done] if done else NO_PROBLEMS

        return on(events, listener, inputs, [self.problems, *outputs], **more)
