"""A settings class as a web form: components from the declarations, checked settings from the components.

Advanced fields are folded away, by section; a long form has a search (assets/find_settings.js). Components check no
value: the settings do, and problems appear below the form. Not covered: the rules (settings, families,
runs.checks), which settings have no effect (applies).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any, Generic, TypeVar

import gradio as gr

from workbench.choices import choices_of
from workbench.errors import ConfigError
from workbench.families import find_model
from workbench.settings import Settings, Spec, parse, specs
from workbench.ui.core import render
from workbench.ui.core.boundary import QUIET, send, tick
from workbench.workspace import Workspace

S = TypeVar("S", bound=Settings)
Choices = list[tuple[str, str]]
Unneeded = Callable[[Mapping[str, Any]], list[str]]
SHORT = ("integer", "number", "switch", "choice")
NONE = ("none", "")
OWN, UNSET = "the model's", "none"  # placeholders of empty fields
EMPTY = {"seed": "random"}  # placeholders of settings whose empty value means something else
FACTS = {"preview_steps": "steps", "preview_guidance": "guidance_scale"}  # setting -> the model's default for it


class Form(Generic[S]):
    """The form of one settings class, built where it is created; `inputs` are the inputs of a listener."""

    def __init__(self, settings: type[S], workspace: Workspace, start: S, unneeded: Unneeded | None = None) -> None:
        """start: what the fields hold when the page opens

        unneeded: makes a form with a search: the settings without effect beside the given values, which are hidden
        """
        self.settings = settings
        self.workspace = workspace
        self.specs = specs(settings)
        self.finder: Any = None
        self._unneeded = unneeded
        self._watchers: list[tuple[Any, list[Any], list[Any]]] = []
        self._defaults = settings().model_dump(mode="json")
        self._components = {}
        values = start.model_dump(mode="json")
        with gr.Column(elem_classes="form-parts"):
            if unneeded:
                self.finder = self._finder()
            for spec, component in self._build([spec for spec in self.specs if not spec.advanced], values):
                self._components[spec.name] = component
            advanced = [spec for spec in self.specs if spec.advanced]
            with gr.Accordion("More settings", open=False, elem_classes="more", visible=bool(advanced)):
                for section, members in groupby(advanced, key=lambda spec: spec.section):
                    with gr.Column(elem_classes="setting-section"):
                        gr.HTML(f'<h4 class="section">{render.escaped(section)}</h4>')
                        for spec, component in self._build(list(members), values):
                            self._components[spec.name] = component
        self.inputs: list[Any] = [self._components[spec.name] for spec in self.specs]
        self.problems = gr.HTML(elem_classes="problems-box")

    def _finder(self) -> Any:
        """The search. It gets the texts of the fields once; its value follows their values."""
        return gr.HTML(
            value={"unneeded": [], "changed": []},
            html_template="",
            js_on_load=render.script("find_settings"),
            apply_default_css=False,
            prefix=f"{self.settings.__name__}-",
            texts={spec.name: f"{spec.title} {spec.help} {spec.section}" for spec in self.specs},
            advanced=[spec.name for spec in self.specs if spec.advanced],
            elem_classes="finder",
        )

    def wire(self, load: Any) -> None:
        """Connect fields that depend on one another; `load` is the page's load event."""
        for event in (load, self.model.change):
            event(self.hints, self.model, self.hinted, **QUIET)
        load(self.refreshed, None, self.sourced, **QUIET)
        if self.finder:
            changes = [load, *(component.change for component in self.inputs)]
            send(partial(gr.on, changes), tick(self.effects), self.inputs, self.finder, trigger_mode="always_last")

    def follow(self, event: Any) -> None:
        """Evaluate again once `event` has filled in the form: fields that are folded away do not report a change."""
        if self.finder:
            send(event.then, tick(self.effects), self.inputs, self.finder)
        for listener, inputs, outputs in self._watchers:
            send(event.then, listener, inputs, outputs)

    def watch(self, names: Sequence[str], listener: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Call `listener` after each change of one of these settings, or of the whole form."""
        self._watchers.append((listener, list(inputs), list(outputs)))
        changes = [self._components[name].change for name in names]
        send(partial(gr.on, changes), listener, inputs, list(outputs), trigger_mode="always_last")

    def effects(self, *values: Any) -> dict[str, list[str]]:
        """For the search: fields without effect, and fields that differ from their defaults."""
        now = self.read(values)
        changed = [name for name, value in now.items() if value != self._defaults[name]]
        return {"unneeded": self._unneeded(now) if self._unneeded else [], "changed": changed}

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
        content = to_component(spec, value)
        if spec.source:
            return gr.Dropdown(
                self._options(spec), value=content, multiselect=spec.kind == "texts", allow_custom_value=True, **common
            )
        if spec.kind in ("integer", "number"):
            # A number field cannot be empty: it would become 0.
            return (
                gr.Textbox(value=content, placeholder=EMPTY.get(spec.name, UNSET), **common)
                if spec.optional
                else gr.Number(content, step=step_of(spec), **common)
            )
        if spec.kind == "switch":
            return gr.Checkbox(value=content, **common)
        if spec.kind == "choice":
            return gr.Dropdown(self._options(spec), value=content, **common)
        return gr.Textbox(value=content, lines=spec.lines, max_lines=max(8, spec.lines), **common)

    def _options(self, spec: Spec, values: Mapping[str, Any] = {}) -> Choices:
        found = choices_of(spec, self.workspace, values)
        return [*([NONE] if spec.optional else []), *((choice.title, choice.value) for choice in found)]

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
        """Updates for `sourced`: the current choices."""
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
        """Updates for `hinted`: placeholders with the chosen model's defaults."""
        try:
            _, model = find_model(model_name)
        except ConfigError:
            return [gr.skip()] * len(self.hinted)
        names = [FACTS.get(spec.name, spec.name) for spec in self._may_be_empty]
        own = [f"{getattr(model, name)}, {OWN}" if hasattr(model, name) else EMPTY.get(name, UNSET) for name in names]
        return [gr.update(placeholder=text) for text in own]


def step_of(spec: Spec) -> float:
    """The step of a number field: the default's magnitude, so that 0.0001 does not become 1.0001."""
    if spec.kind == "integer":
        return 1
    return float(10 ** math.floor(math.log10(spec.default))) if spec.default else 0.01


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
            with contextlib.suppress(ValueError):  # the setting refuses what is no number
                value = float(value)
    if spec.kind == "integer" and isinstance(value, float) and value.is_integer():
        return int(value)
    return "" if value is None and spec.kind == "text" else value


def sentences(error: ConfigError, settings: type[Settings]) -> str:
    """The problems of a form, a line each, with the titles of its fields."""
    titles = {spec.name: spec.title for spec in specs(settings)}
    if not error.problems:
        return render.problems([str(error)])
    return render.problems(f"{titles.get(name, name)}: {sentence}" for name, sentence in error.problems.items())
