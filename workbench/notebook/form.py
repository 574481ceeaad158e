"""A form from a settings class: a few fields in sight, the rest under Advanced. Rules and sentences are the settings'.

Not covered: rules that need the model or the dataset (legal frames and sizes); whoever starts the job checks those.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

import ipywidgets as widgets

from workbench.dataset_builder.captioners import captioners
from workbench.errors import ConfigError
from workbench.families import models
from workbench.notebook.drawing import escaped, note
from workbench.notebook.live import Panel, folded
from workbench.sampler.loras import available_loras
from workbench.settings import Settings, Spec, parse, specs
from workbench.workspace import Workspace

S = TypeVar("S", bound=Settings)
LABEL, FIELD, ROOM = "190px", "300px", "310px"
NONE = "(none)"


class Form(Panel, Generic[S]):
    """A settings object as fields. `settings` reads it (or raises the sentence), `set` fills it."""

    def __init__(
        self,
        settings_class: type[S],
        workspace: Workspace | None = None,
        values: Mapping[str, Any] | None = None,
    ) -> None:
        """workspace: where choices such as datasets come from;  values: in place of the defaults."""
        self.settings_class = settings_class
        self.workspace = workspace
        self._specs = {spec.name: spec for spec in specs(settings_class)}
        self.fields: dict[str, widgets.Widget] = {
            spec.name: _field(spec, choices(spec.source, workspace)) for spec in self._specs.values()
        }
        shown = list(self._specs.values())
        advanced = _sections([spec for spec in shown if spec.advanced], self.fields)
        super().__init__(
            [
                widgets.VBox([_row(spec, self.fields[spec.name]) for spec in shown if not spec.advanced]),
                *([folded("Advanced", widgets.VBox(advanced))] if advanced else []),
            ]
        )
        self.box.children = (*self.box.children, self.said)
        self.set({spec.name: spec.default for spec in self._specs.values()} | dict(values or {}))
        for field in self.fields.values():
            field.observe(lambda _: self.check(), names="value")

    @property
    def values(self) -> dict[str, Any]:
        """What the fields say now, unchecked, as JSON values."""
        return {name: _read(self._specs[name], field) for name, field in self.fields.items()}

    @property
    def settings(self) -> S:
        """The checked settings. Raises ConfigError."""
        return parse(self.settings_class, self.values)

    def set(self, values: Mapping[str, Any]) -> None:
        """Fill fields; others stay as they are. Raises ConfigError for a name that is no setting."""
        unknown = [name for name in values if name not in self._specs]
        if unknown:
            parse(self.settings_class, {name: values[name] for name in unknown})
        for name, value in values.items():
            _write(self._specs[name], self.fields[name], value)

    def check(self) -> bool:
        """Whether the settings keep their rules; shows what does not."""
        try:
            parse(self.settings_class, self.values)
        except ConfigError as error:
            problems = error.problems.values() or [str(error)]
            self.said.value = "".join(note(text, "error") for text in problems)
            return False
        self.say("")
        return True

    def refresh_choices(self) -> None:
        """Look again which datasets, models and LoRAs there are."""
        for name, field in self.fields.items():
            spec = self._specs[name]
            if spec.source and isinstance(field, widgets.Dropdown):
                now = field.value
                field.options = _options(spec, choices(spec.source, self.workspace), now)
                field.value = now


def form(settings_class: type[S], workspace: Workspace | None = None, **values: Any) -> Form[S]:
    """A form of any settings class, filled with the values given, else the defaults. Raises ConfigError."""
    return Form(settings_class, workspace, values)


def choices(source: str | None, workspace: Workspace | None) -> list[str]:
    """What a setting with a `source` may be set to right now."""
    if source == "models":
        return [model.id for model in models()]
    if source == "captioners":
        return list(captioners())
    if source == "caption_models":
        return [choice.id for kind in captioners().values() for choice in kind.choices]
    if workspace is None or source is None:
        return []
    if source == "datasets":
        return sorted(path.parent.name for path in workspace.datasets.glob("*/metadata.jsonl"))
    return available_loras(workspace)


# ---- one setting as one field ---------------------------------------------------------------------------------------


def _field(spec: Spec, available: Sequence[str]) -> widgets.Widget:
    layout = widgets.Layout(width=FIELD)
    if spec.kind == "switch":
        return widgets.Checkbox(indent=False, layout=widgets.Layout(width="40px"))
    if spec.kind == "choice":
        return widgets.Dropdown(options=spec.choices, layout=layout)
    if spec.source == "datasets":
        return widgets.Dropdown(options=_options(spec, available, None), layout=layout)
    if spec.source in ("models", "captioners", "caption_models"):
        return widgets.Combobox(options=tuple(available), ensure_option=False, layout=layout)
    placeholder = ("one a line: " + ", ".join(available[:3])) if spec.source and available else _placeholder(spec)
    if spec.kind == "texts" or spec.lines > 1:
        return widgets.Textarea(rows=spec.lines, placeholder=placeholder, layout=layout)
    if spec.kind == "text" or spec.optional:
        return widgets.Text(placeholder=placeholder, layout=layout)
    number = widgets.IntText if spec.kind == "integer" else widgets.FloatText
    return number(layout=widgets.Layout(width="140px"))


def _placeholder(spec: Spec) -> str:
    """What an empty field of a number means, as the setting's help says it."""
    if spec.kind in ("text", "texts"):
        return ""
    return spec.help.partition("Empty: ")[2].rstrip(".") or "the model's own"


def _options(spec: Spec, available: Sequence[str], now: str | None) -> list[tuple[str, str | None]]:
    """Choices of a drop-down; what is chosen stays choosable even when it is gone from the disk."""
    nothing: str | None = None if spec.optional else ""
    gone = [now] if now and now not in available else []
    return [(NONE, nothing), *((name, name) for name in (*available, *gone))]


def _read(spec: Spec, field: widgets.Widget) -> Any:
    value = field.value
    if spec.kind == "texts":
        return [line.strip() for line in value.splitlines() if line.strip()]
    if spec.kind in ("integer", "number") and isinstance(value, str):
        return _number(value)
    return value


def _number(text: str) -> Any:
    """A number as JSON reads it; None for an empty field; else the text itself, for the rule to refuse."""
    if not text.strip():
        return None
    try:
        return json.loads(text)
    except ValueError:
        return text


def _write(spec: Spec, field: widgets.Widget, value: Any) -> None:
    if spec.kind == "texts":
        field.value = "\n".join(value)
    elif isinstance(field, widgets.Text | widgets.Textarea):
        field.value = "" if value is None else str(value)
    else:
        if isinstance(field, widgets.Dropdown) and spec.source and value not in [option for _, option in field.options]:
            field.options = _options(spec, [option for _, option in field.options if option], value)
        field.value = value


def _row(spec: Spec, field: widgets.Widget) -> widgets.Widget:
    # "Steps (steps)" says nothing twice.
    said = not spec.unit or spec.unit in spec.title.lower()
    unit = "" if said else f" <span style='opacity:.6'>({escaped(spec.unit)})</span>"
    tooltip = escaped(f"{spec.help} Allowed: {spec.rule}.")
    label = widgets.HTML(
        f'<div title="{tooltip}" style="line-height:1.3">{escaped(spec.title)}{unit}</div>',
        layout=widgets.Layout(width=LABEL),
    )
    help = widgets.HTML(
        f'<div style="opacity:.65;font-size:88%;line-height:1.3">{escaped(spec.help)}</div>',
        layout=widgets.Layout(flex="1 1 200px", min_width="180px"),
    )
    # All fields take the same room, however wide they are, so that the help stands in one column.
    room = widgets.Box([field], layout=widgets.Layout(width=ROOM))
    return widgets.HBox([label, room, help], layout=widgets.Layout(align_items="center"))


def _sections(shown: Sequence[Spec], fields: Mapping[str, widgets.Widget]) -> list[widgets.Widget]:
    parts: list[widgets.Widget] = []
    for section in dict.fromkeys(spec.section for spec in shown):
        parts.append(widgets.HTML(f"<b>{escaped(section)}</b>"))
        parts += [_row(spec, fields[spec.name]) for spec in shown if spec.section == section]
    return parts
