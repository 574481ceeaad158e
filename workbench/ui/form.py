"""A settings class as a web form: components from the declarations, checked settings from the components.

Few fields are in sight, the advanced ones are folded away, by section. The components never judge a value: the settings
do, and their sentences are shown below the form. Not covered: the rules themselves (settings, families, runs.check).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, Generic, TypeVar

import gradio as gr

from workbench.dataset_builder.captioners import captioners
from workbench.errors import ConfigError
from workbench.families import find_model, models
from workbench.settings import Settings, Spec, parse, specs
from workbench.trainer.runs import Run
from workbench.ui import render
from workbench.workspace import Workspace

S = TypeVar("S", bound=Settings)
Choices = list[tuple[str, str]]
SHORT = ("integer", "number", "switch", "choice")
NONE = ("none", "")
OWN = "the model's own"


def choices(workspace: Workspace, source: str) -> Choices:
    """What a setting with a source can be set to now: (shown, value)."""
    if source == "models":
        return [(model.title, model.id) for model in models()]
    if source == "captioners":
        return [(kind.title, name) for name, kind in captioners().items()]
    if source == "caption_models":
        return [(choice.title, choice.id) for kind in captioners().values() for choice in kind.choices]
    if source == "loras":
        return [(run.name, run.name) for run in Run.all(workspace) if run.lora]
    return sorted((path.parent.name,) * 2 for path in workspace.datasets.glob("*/metadata.jsonl"))


class Form(Generic[S]):
    """The form of one settings class. Build it where it shall stand; `inputs` then go into a listener."""

    def __init__(self, settings: type[S], workspace: Workspace, start: S) -> None:
        """start: what the fields hold when the page opens"""
        self.settings = settings
        self.workspace = workspace
        self.specs = specs(settings)
        values = start.model_dump(mode="json")
        self._components = {}
        for spec, component in self._build([spec for spec in self.specs if not spec.advanced], values):
            self._components[spec.name] = component
        with gr.Accordion("More settings", open=False, elem_classes="more"):
            for section, members in groupby([s for s in self.specs if s.advanced], key=lambda spec: spec.section):
                gr.HTML(f'<h4 class="section">{render.escaped(section)}</h4>')
                for spec, component in self._build(list(members), values):
                    self._components[spec.name] = component
        self.inputs: list[Any] = [self._components[spec.name] for spec in self.specs]
        self.problems = gr.HTML(elem_classes="problems-box")

    def _build(self, members: Sequence[Spec], values: Mapping[str, Any]) -> Iterator[tuple[Spec, Any]]:
        """Components in their order; short ones that follow one another share a row."""
        for short, together in groupby(members, key=lambda spec: spec.kind in SHORT):
            if short:
                with gr.Row(elem_classes="fields"):
                    for spec in together:
                        yield spec, self._component(spec, values[spec.name])
            else:
                for spec in together:
                    yield spec, self._component(spec, values[spec.name])

    def _component(self, spec: Spec, value: Any) -> Any:
        unit = f" ({spec.unit})" if spec.unit and spec.unit not in spec.title.lower() else ""
        common = {
            "label": spec.title + unit,
            "info": spec.help,
            "interactive": True,
            "elem_id": f"{self.settings.__name__}-{spec.name}",
            "min_width": 150 if spec.kind in SHORT else 240,
        }
        shown = to_component(spec, value)
        if spec.source:
            return gr.Dropdown(
                self._options(spec), value=shown, multiselect=spec.kind == "texts", allow_custom_value=True, **common
            )
        if spec.kind in ("integer", "number"):
            # A number field cannot be empty: it would say 0.
            return gr.Textbox(value=shown, placeholder=OWN, **common) if spec.optional else gr.Number(shown, **common)
        if spec.kind == "switch":
            return gr.Checkbox(value=shown, **common)
        if spec.kind == "choice":
            return gr.Dropdown(list(spec.choices), value=shown, **common)
        return gr.Textbox(value=shown, lines=spec.lines, max_lines=max(8, spec.lines), **common)

    def _options(self, spec: Spec) -> Choices:
        return ([NONE] if spec.optional else []) + choices(self.workspace, spec.source or "")

    def read(self, values: Sequence[Any]) -> dict[str, Any]:
        """Component values as raw settings, unchecked."""
        return {spec.name: from_component(spec, value) for spec, value in zip(self.specs, values, strict=True)}

    def parse(self, values: Sequence[Any]) -> S:
        """Component values as checked settings. Raises ConfigError."""
        return parse(self.settings, self.read(values))

    def write(self, settings: Mapping[str, Any]) -> list[Any]:
        """Updates for `inputs` that fill in settings; names that are not given stay as they are."""
        named = [(spec, settings.get(spec.name)) for spec in self.specs]
        return [
            gr.update(value=to_component(spec, value)) if spec.name in settings else gr.skip() for spec, value in named
        ]

    @property
    def sourced(self) -> list[Any]:
        """The components whose choices come from the workspace."""
        return [self._components[spec.name] for spec in self.specs if spec.source]

    def refreshed(self) -> list[Any]:
        """Updates for `sourced`: the choices as they are now."""
        return [gr.update(choices=self._options(spec)) for spec in self.specs if spec.source]

    @property
    def model(self) -> Any:
        """The component that chooses the model."""
        return self._components["model"]

    @property
    def hinted(self) -> list[Any]:
        """The fields that may stay empty."""
        return [self._components[spec.name] for spec in self._may_be_empty]

    @property
    def _may_be_empty(self) -> list[Spec]:
        return [spec for spec in self.specs if spec.optional and spec.kind in ("integer", "number")]

    def hints(self, model_name: str) -> list[Any]:
        """Updates for `hinted`: what the chosen model makes of an empty field."""
        try:
            _, model = find_model(model_name)
        except ConfigError:
            return [gr.skip()] * len(self.hinted)
        own = [getattr(model, spec.name.removeprefix("preview_"), None) for spec in self._may_be_empty]
        return [gr.update(placeholder=OWN if value is None else f"{OWN}: {value}") for value in own]


def to_component(spec: Spec, value: Any) -> Any:
    """A setting's JSON value as its component holds it."""
    if spec.kind == "texts":
        return list(value or ()) if spec.source else "\n".join(value or ())
    if spec.optional:
        return "" if value is None else str(value)
    return value


def from_component(spec: Spec, value: Any) -> Any:
    """What a component holds as a setting's JSON value: whole numbers as such, empty as "not set"."""
    if spec.kind == "texts":
        lines = value if isinstance(value, list) else (value or "").splitlines()
        return [line.strip() for line in lines if line.strip()]
    if isinstance(value, str):
        value = value.strip()
        if spec.optional and not value:
            return None
        if spec.kind in ("integer", "number"):
            with contextlib.suppress(ValueError):  # what is no number is refused by the setting, with its sentence
                value = float(value)
    if spec.kind == "integer" and isinstance(value, float) and value.is_integer():
        return int(value)
    return "" if value is None and spec.kind == "text" else value


def sentences(error: ConfigError, settings: type[Settings]) -> str:
    """The problems of a form, a line each, with the names that the form shows."""
    titles = {spec.name: spec.title for spec in specs(settings)}
    if not error.problems:
        return render.problems([str(error)])
    return render.problems(f"{titles.get(name, name)}: {sentence}" for name, sentence in error.problems.items())
