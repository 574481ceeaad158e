"""What follows the choice of a model in a form: its facts, its defaults in empty fields, what it changed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import gradio as gr

from workbench.families import known_model
from workbench.form_rules import adapted, own_values, summary
from workbench.settings import Spec
from workbench.ui.core import render
from workbench.ui.core.boundary import QUIET, handler

if TYPE_CHECKING:
    from workbench.ui.core.form import Form

OWN, UNSET = "the model's", "none"  # placeholders of empty fields
EMPTY = {"seed": "random"}  # placeholders of settings whose empty value means something else
FACTS = {"preview_steps": "steps", "preview_guidance": "guidance_scale"}  # setting -> the model's default for it


class ModelPart:
    """A line, built where it is created."""

    def __init__(self, prefix: str) -> None:
        """prefix: of the line's id in the page"""
        self.changes = gr.HTML(elem_id=f"{prefix}-changed-by-model")

    def wire(self, form: Form[Any], opened: Any) -> None:
        """Connect the line and the fields that may stay empty; `opened`: when a person comes to the form."""
        empty = [spec for spec in form.specs if spec.optional and spec.kind in ("integer", "number")]
        help_of_model = next(spec.help for spec in form.specs if spec.name == "model")
        outputs = [form.model, *(form.field(spec.name) for spec in empty)]

        def follow(name: str) -> list[Any]:
            return [gr.update(info=about(help_of_model, name)), *hints(empty, name)]

        for event in (opened, form.model.change):
            event(follow, form.model, outputs, **QUIET)

        def adapt(*values: Any) -> list[Any]:
            found = adapted(form.settings, form.read(values))
            return ["".join(map(render.note, found.notes)), *form.write(found.values)]

        form.follow(form.send(form.model.input, handler(adapt), [self.changes, *form.inputs]))


def about(help_of_model: str, name: str) -> str:
    """The help of the field, with the facts of the chosen model where it is known."""
    facts = summary(name)
    return f"{help_of_model} Chosen: {facts}." if facts else help_of_model


def hints(empty: Sequence[Spec], name: str) -> list[Any]:
    """Updates for fields that may stay empty: placeholders with the chosen model's defaults."""
    if (found := known_model(name)) is None:
        return [gr.skip()] * len(empty)
    own = own_values(name)
    facts = [FACTS.get(spec.name, spec.name) for spec in empty]
    texts = [
        own.get(fact) or (str(getattr(found.model, fact)) if hasattr(found.model, fact) else EMPTY.get(fact, UNSET))
        for fact in facts
    ]
    return [gr.update(placeholder=text) for text in texts]
