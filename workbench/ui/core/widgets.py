"""Components that several tabs use: those with a half in the browser, and the question before something is done."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import gradio as gr

from workbench.ui.core import render
from workbench.ui.core.boundary import QUIET


def component(
    elem_id: str, value: Any, js: str, css: str = "components", functions: Sequence[Callable[..., Any]] = ()
) -> gr.HTML:
    """A component whose elements are made in the browser from its value, by `js`.

    css: name of its style sheet;  functions: those that the browser may call (boundary.answering)
    """
    return gr.HTML(
        value=value,
        html_template="",
        css_template=render.style(css),
        js_on_load=js,
        apply_default_css=False,
        server_functions=list(functions),
        elem_id=elem_id,
    )


class Confirm:
    """A question, such as what would be removed, and below it two buttons: do it, or not."""

    def __init__(self, yes: str, no: str, note_id: str, button_id: str) -> None:
        self.note = gr.HTML(elem_id=note_id)
        with gr.Row(elem_classes="buttons question", visible=False) as self.row:
            self.yes = gr.Button(yes, variant="stop", elem_id=button_id)
            self.no = gr.Button(no)
        self.components = [self.note, self.row]

    @staticmethod
    def question(note: str, possible: bool = True) -> list[Any]:
        """Updates for `components`."""
        return [f'<div role="alert">{note}</div>' if note else "", gr.update(visible=possible)]

    def wire(self, *done: Any) -> None:
        """Hide them after these events, and at the second button."""
        for event in (*(one.then for one in done), self.no.click):
            event(lambda: self.question("", False), None, self.components, **QUIET)
