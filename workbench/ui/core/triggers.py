"""Below a field of prompts: which trigger words they lack, and a button that puts them in front."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import gradio as gr

from workbench.loras.library import inserted, lacking
from workbench.ui.core import render
from workbench.ui.core.boundary import on, tick
from workbench.ui.core.form import Form

OF_LORA = "with which the LoRA was trained: without it the LoRA may show little."


class TriggerPart:
    """A warning and a button, hidden while nothing is missing."""

    def __init__(self, words: Callable[..., list[str]], why: str = OF_LORA, prefix: str = "") -> None:
        """words: called with the values of the fields on which they depend;  why: ends the warning

        prefix: of the components' ids
        """
        self._words, self._why = words, why
        self.warning = gr.HTML(elem_id=f"{prefix}trigger-missing")
        self.insert = gr.Button("Insert", size="sm", visible=False, elem_id=f"{prefix}insert-trigger")

    def wire(self, form: Form[Any], prompt: str, depends: Sequence[str], each_line: Any = None) -> None:
        """Connect the listeners. prompt, depends: names of the form's fields

        each_line: the component that says whether every line is a prompt of its own; None: it always is
        """
        fields = [form.field(name) for name in (prompt, *depends)]
        inputs = [each_line, *fields] if each_line else fields
        look, put = (one if each_line else partial(one, True) for one in (self.look, self.put))
        form.watch((prompt, *depends), tick(look), inputs, [self.warning, self.insert])
        on(self.insert.click, put, inputs, [fields[0]])

    def look(self, each_line: bool, prompt: str, *values: Any) -> list[Any]:
        """The warning, and the button with the words on it."""
        words = self._words(*values)
        lines = prompts(prompt or "", each_line)
        names = ", ".join(dict.fromkeys(word for line in lines for word in lacking(line, words)))
        which = "The prompt lacks" if len(lines) == 1 else "A prompt lacks"
        text = f"{which} {names}, {self._why}"
        return [render.note(text, "bad") if names else "", gr.update(value=f"Insert {names}", visible=bool(names))]

    def put(self, each_line: bool, prompt: str, *values: Any) -> str:
        """The prompts with what they lack."""
        words = self._words(*values)
        return "\n".join(inserted(line, words) for line in prompts(prompt or "", each_line))


def prompts(prompt: str, each_line: bool) -> list[str]:
    """The prompts of a field, an empty one as such."""
    lines = [line for line in prompt.splitlines() if line.strip()] if each_line else []
    return lines or [prompt]
