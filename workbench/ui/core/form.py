"""A settings class as a web form: components from the declarations, checked settings from the components.

Advanced fields are folded away, by section; a long form has a search (assets/find_settings.js). Components check no
value: the settings do.
"""

from __future__ import annotations

import contextlib
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial, wraps
from itertools import groupby
from typing import Any, Generic, TypeVar

import gradio as gr

from workbench.choices import choices_of
from workbench.errors import ConfigError, WorkbenchError
from workbench.form_rules import without_effect
from workbench.settings import Settings, Spec, parse, specs
from workbench.ui.core import render
from workbench.ui.core.boundary import PACK, QUIET, PackedFields, handler, listed, on, packed_text, send, sources, tick
from workbench.ui.core.lora_stack import lora_stack
from workbench.ui.core.model_part import EMPTY, UNSET, ModelPart
from workbench.ui.core.problems import NO_PROBLEMS, NOTHING_BESIDE, Beside, described, problems_box, refused, remaining
from workbench.workspace import Workspace

S = TypeVar("S", bound=Settings)
Choices = list[tuple[str, str]]
SHORT = ("integer", "number", "switch", "choice")
NONE = ("none", "")
# In the browser: what is typed is kept by the settings' names, once what was kept is in the form again.
KEEP = """(...values) => {{
    const names = {names};
    if (window.workbenchRestored?.has({key}))
        localStorage.setItem({key}, JSON.stringify(Object.fromEntries(names.map((name, at) => [name, values[at]]))));
    return JSON.stringify(values.slice(0, {count}));
}}"""
# Only what differs from the fields' values: the browser looks for each field that it is told of among all of the page.
RESTORE = """() => {{
    const names = {names}, start = {start};
    let kept = {{}};
    try {{ kept = JSON.parse(localStorage.getItem({key})) ?? {{}}; }} catch {{ /* written by something else */ }}
    setTimeout(() => (window.workbenchRestored ??= new Set()).add({key}));
    const same = (name, at) => !(name in kept) || JSON.stringify(kept[name]) === JSON.stringify(start[at]);
    return names.map((name, at) => ({{ __type__: 'update', ...(same(name, at) ? {{}} : {{ value: kept[name] }}) }}));
}}"""


class Form(Generic[S]):
    """The form of one settings class, built where it is created; `inputs` are the inputs of a listener."""

    def __init__(
        self,
        settings: type[S],
        workspace: Workspace,
        start: S | None = None,
        search: bool = False,
        unset: str = UNSET,
        without: Sequence[str] = (),
        beside: Beside = NOTHING_BESIDE,
    ) -> None:
        """start: what the fields hold when the page opens, as a rule the defaults
        unset: what an empty number field says;  without: settings that have no field
        beside: name -> field that is no setting's, of which an action may say what is wrong with it
        search: a form with a search, which hides settings that have no effect beside the given values
        """
        self.settings = settings
        self.workspace = workspace
        self.specs = [spec for spec in specs(settings) if spec.name not in without]
        self.finder: Any = None
        self.of_model: ModelPart | None = None
        self._unset, self._pack, self._packed = unset, PACK, packed_text()
        self._check: Callable[[S], object] | None = None
        self._others = beside
        self._beside: list[Any] = []  # fields that are kept with its own
        self.fold: Any = None  # the accordion around it, if it stands in one: it opens when the form is filled in
        self._of_all: list[tuple[Any, list[Any], list[Any]]] = []
        # Changes whenever a form that is watched is filled in: fields that are folded away do not report it.
        self._filled: list[Any] = [gr.State(0)] if search else []
        self._defaults = settings().model_dump(mode="json")
        self._components = {}
        values = start.model_dump(mode="json") if start else self._defaults
        with gr.Column(elem_classes="form-parts"):
            if search:
                self.finder = self._finder()
            for spec, component in self._build([spec for spec in self.specs if not spec.advanced], values):
                self._components[spec.name] = component
            advanced = [spec for spec in self.specs if spec.advanced]
            with gr.Accordion("More settings", open=False, elem_classes="more", visible=bool(advanced)):
                self._above_advanced()
                for section, members in groupby(advanced, key=lambda spec: spec.section):
                    with gr.Column(elem_classes="setting-section"):
                        gr.HTML(f'<h4 class="section">{render.escaped(section)}</h4>')
                        for spec, component in self._build(list(members), values):
                            self._components[spec.name] = component
        self.inputs: list[Any] = [self._components[spec.name] for spec in self.specs]
        self.problems = problems_box(settings)

    def _finder(self) -> Any:
        """The search. It gets the texts of the fields once; its value follows their values."""
        return gr.HTML(
            value={"unneeded": [], "changed": []},
            html_template="",
            js_on_load=render.script("find_settings"),
            apply_default_css=False,
            prefix=f"{self.settings.__name__}-",
            texts={spec.name: f"{spec.title} {spec.help} {spec.section} {spec.also}" for spec in self.specs},
            in_view=[spec.name for spec in self.specs if not spec.advanced],
            elem_classes="finder",
        )

    def problems_here(self) -> None:
        """Move the problems to this place of the page: they stand at the button, which may be far below the fields."""
        self.problems.unrender()
        self.problems.render()

    def field(self, name: str) -> Any:
        """The component of a setting."""
        return self._components[name]

    def wire(self, opened: Any) -> None:
        """Connect fields that depend on one another; `opened`: the event when a person comes to the form."""
        if self.of_model:
            self.of_model.wire(self, opened)
        # Evaluated after that, too: to read all fields takes the browser longer than all else as a tab opens.
        sourced = [*self.sourced, *self._filled]
        opened(lambda: dict(zip(sourced, [*self.refreshed(), *self._moment()], strict=True)), None, sourced, **QUIET)
        if self.finder:
            # The browser's half tells changes of all fields: a listener for each makes the page slow to open.
            changes = [self.finder.input, *(field.change for field in [*self._beside, *self._filled])]
            event, fields = partial(gr.on, changes), [*self.inputs, *self._beside]
            packed = PackedFields(event, fields, self._pack, self._packed, trigger_mode="always_last")
            packed.call(tick(self.effects), self.finder)
            for listener, before, outputs in self._of_all:
                packed.call(listener, outputs, before)

    def remember(self, key: str, load: Any, beside: Mapping[str, Any] = {}) -> None:
        """Keep in the browser what is typed: it is there after a reload and a restart of the server. Before `wire`.

        beside: name -> field, kept with the form's own;  of forms with a search, which follows every change
        """
        self._beside = list(beside.values())
        names = json.dumps([*(spec.name for spec in self.specs), *beside])
        texts = {"key": json.dumps(f"workbench-form-{key}"), "names": names, "count": len(self.specs)}
        self._pack = KEEP.format(**texts)
        start = json.dumps([field.value for field in self.inputs])
        load(None, None, [*self.inputs, *self._beside], js=RESTORE.format(start=start, **texts), **QUIET)

    def submit(
        self,
        events: Any,
        action: Callable[..., Any],
        inputs: Sequence[Any] = (),
        outputs: Sequence[Any] = (),
        **more: Any,
    ) -> Any:
        """Call `action(*inputs, settings)` at an event, or at any of several, with the form's checked settings.

        What is wrong with them, or what the action raises, appears in `problems` and at the fields, and `outputs` stay
        as they are. They get what the action returns, as a list where there are several.
        """

        def listener(*arguments: Any) -> Any:
            given, values = arguments[: len(inputs)], arguments[len(inputs) :]
            try:
                done = listed(action(*given, self.parse(values)), len(outputs))
            except WorkbenchError as error:
                found = described(error, self.settings, self._others)
                return {self.problems: refused(found, self._refused_now(values) or ())}
            return [NO_PROBLEMS, *done] if done else NO_PROBLEMS

        listener.__qualname__ = action.__qualname__
        event = partial(gr.on, events) if isinstance(events, list) else events
        return self.send(event, handler(listener, sources(events)), [self.problems, *outputs], inputs, **more)

    def send(
        self,
        event: Callable[..., Any],
        function: Callable[..., Any],
        outputs: Any,
        before: Sequence[Any] = (),
        **more: Any,
    ) -> Any:
        """Let `event` call function(*before, *values of the form), as boundary.send does."""
        return send(event, function, self.inputs, outputs, before, self._packed, **more)

    def check_again(self, check: Callable[[S], object]) -> None:
        """Ask `check` again while what it refuses is shown: that goes with its cause, which may be on another tab."""
        self._check = check
        self.send(self.problems.again, tick(self._checked_again), self.problems, [self.problems])

    def _checked_again(self, present: Mapping[str, Any], *values: Any) -> Any:
        now = self._refused_now(values)
        return gr.skip() if now is None else remaining(present, now)

    def _refused_now(self, values: Sequence[Any]) -> list[dict[str, str]] | None:
        """What the check refuses now; None where it cannot be asked, as while a field's value breaks a rule."""
        try:
            settings = self.parse(values)
        except ConfigError:
            return None
        try:
            if self._check:
                self._check(settings)
        except WorkbenchError as error:
            return described(error, self.settings)
        return []

    def fill(
        self,
        events: Any,
        action: Callable[..., Any],
        inputs: Sequence[Any] = (),
        outputs: Sequence[Any] = (),
        parsed: bool = False,
        unfold: bool = True,
    ) -> Any:
        """Fill in the settings that `action(*inputs)` returns at an event; before them stand the values of `outputs`.

        parsed: it is called with the form's own settings, too, as `submit` does
        unfold: whether the fold of the form opens
        """

        @wraps(action)
        def listener(*arguments: Any) -> list[Any]:
            *answers, settings = listed(action(*arguments), 1 + len(outputs))
            now = [*self._moment(), *(gr.update(open=True) for _ in fold)]
            return [*([] if parsed else [NO_PROBLEMS]), *answers, *self.write(settings), *now]

        fold = [self.fold] if self.fold and unfold else []
        filled = [*outputs, *self.inputs, *self._filled, *fold]
        if parsed:
            return self.submit(events, listener, inputs, filled)
        return on(events, listener, inputs, [self.problems, *filled])

    def follow(self, event: Any) -> None:
        """Evaluate again once `event` has filled in the form by itself."""
        for filled in self._filled:
            event.then(time.monotonic_ns, None, filled, **QUIET)

    def _moment(self) -> list[int]:
        """A value of `_filled` that it never had."""
        return [time.monotonic_ns() for _ in self._filled]

    def watch(self, names: Sequence[str], listener: Any, inputs: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Call `listener` after each change of one of these settings, or of the whole form. Of forms with a search."""
        changes = [field.change for field in [*(self._components[name] for name in names), *self._filled]]
        send(partial(gr.on, changes), listener, inputs, list(outputs), trigger_mode="always_last")

    def watch_all(self, listener: Any, before: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Call listener(*before, *values of the form) after each change, and as a person comes to it. Before `wire`.

        Of forms with a search, which follows every change as well: both share one list of events, each of whose
        members costs the browser time when the page opens.
        """
        self._of_all.append((listener, list(before), list(outputs)))

    def effects(self, *values: Any) -> dict[str, list[str]]:
        """For the search: fields without effect, and fields that differ from their defaults."""
        now = self.read(values)
        changed = [name for name, value in now.items() if value != self._defaults[name]]
        return {"unneeded": without_effect(self.settings, now), "changed": changed}

    def _above_advanced(self) -> None:
        """Fields of no setting that are folded away with the advanced ones; as a rule none."""

    def _build(self, members: Sequence[Spec], values: Mapping[str, Any]) -> Iterator[tuple[Spec, Any]]:
        """Components in their order; short ones that follow one another share a row."""
        for short, together in groupby(members, key=self._shares_row):
            same = list(together)
            with gr.Row(elem_classes="fields") if short and len(same) > 1 else contextlib.nullcontext():
                for spec in same:
                    yield spec, self._component(spec, values[spec.name])
            if self.finder and any(spec.source == "models" for spec in same):
                self.of_model = ModelPart(self.settings.__name__)

    def _shares_row(self, spec: Spec) -> bool:
        """Whether its field takes one line, so that several can stand side by side."""
        return spec.kind in SHORT or (spec.kind == "text" and spec.lines == 1)

    def _component(self, spec: Spec, value: Any, **more: Any) -> Any:
        unit = f" ({spec.unit})" if spec.unit and spec.unit not in spec.title.lower() else ""
        common = {
            "label": spec.title + unit,
            "info": spec.help,
            "interactive": True,
            "elem_id": f"{self.settings.__name__}-{spec.name}",
            "min_width": 150 if spec.kind in SHORT else 240,
            **more,
        }
        content = to_component(spec, value)
        if spec.source == "loras" and spec.kind == "texts":
            return lora_stack(self.workspace, content, common["elem_id"])
        if spec.source:
            return gr.Dropdown(
                self._options(spec),
                value=content,
                multiselect=spec.kind == "texts",
                allow_custom_value=True,
                elem_classes="wide",
                **common,
            )
        if spec.kind in ("integer", "number"):
            # A number field cannot be empty: it would become 0.
            return (
                gr.Textbox(value=content, placeholder=EMPTY.get(spec.name, self._unset), **common)
                if spec.optional
                else gr.Number(content, step=step_of(spec), **common)
            )
        if spec.kind == "switch":
            return gr.Checkbox(value=content, **common)
        if spec.kind == "choice":
            return gr.Dropdown(self._options(spec), value=content, **common)
        wide = "wide" if spec.kind == "text" else None
        return gr.Textbox(value=content, lines=spec.lines, max_lines=max(8, spec.lines), elem_classes=wide, **common)

    def _options(self, spec: Spec, values: Mapping[str, Any] = {}) -> Choices:
        found = choices_of(spec, self.workspace, values)
        return [*([NONE] if spec.optional else []), *((choice.title, choice.value) for choice in found)]

    def read(self, values: Sequence[Any]) -> dict[str, Any]:
        """Component values as raw settings, unchecked."""
        return {spec.name: from_component(spec, value) for spec, value in zip(self.specs, values, strict=True)}

    def parse(self, values: Sequence[Any]) -> S:
        """Component values as checked settings. Raises ConfigError."""
        return parse(self.settings, self.read(values))

    def write(self, settings: Settings | Mapping[str, Any]) -> list[Any]:
        """Updates for `inputs` that fill in settings; names that are not given stay as they are."""
        if isinstance(settings, Settings):
            settings = settings.model_dump(mode="json")
        named = [(spec, settings.get(spec.name)) for spec in self.specs]
        return [
            gr.update(value=to_component(spec, value)) if spec.name in settings else gr.skip() for spec, value in named
        ]

    @property
    def sourced(self) -> list[Any]:
        """The components whose choices come from the workspace; the rows of LoRAs load their own."""
        return [self._components[spec.name] for spec in self._sourced]

    def refreshed(self) -> list[Any]:
        """Updates for `sourced`: the current choices."""
        return [gr.update(choices=self._options(spec)) for spec in self._sourced]

    @property
    def _sourced(self) -> list[Spec]:
        return [spec for spec in self.specs if spec.source and not (spec.source == "loras" and spec.kind == "texts")]

    @property
    def model(self) -> Any:
        """The component that chooses the model."""
        return self._components["model"]


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
        return ("" if not spec.may_be_blank else None) if value is None else str(value)
    return value


def from_component(spec: Spec, value: Any) -> Any:
    """What a component holds as a setting's JSON value: whole numbers as such, empty as "not set"."""
    if spec.kind == "texts":
        lines = value if isinstance(value, list) else (value or "").splitlines()
        return [line.strip() for line in lines if line.strip()]
    if isinstance(value, str):
        value = value.strip()
        if spec.optional and not value and not spec.may_be_blank:
            return None
        if spec.kind in ("integer", "number"):
            with contextlib.suppress(ValueError):  # the setting refuses what is no number
                value = float(value)
    if spec.kind == "integer" and isinstance(value, float) and value.is_integer():
        return int(value)
    return "" if value is None and spec.kind == "text" and not spec.optional else value


def sentences(error: ConfigError, settings: type[Settings]) -> str:
    """The problems of a form, a line each, with the titles of its fields."""
    return render.problems(problem["text"] for problem in described(error, settings))
