"""A form made from a settings class: the usual fields first, the advanced ones folded by section, with a search.

Rules and sentences are the settings'. What has no effect beside the other values is hidden, unless somebody changed it;
another model changes what it does not have.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar

import ipywidgets as widgets

from workbench.choices import choices_of
from workbench.display.html import escaped
from workbench.display.inline_html import note
from workbench.errors import ConfigError
from workbench.form_rules import adapted, summary, without_effect
from workbench.notebook.live import Panel
from workbench.settings import Settings, Spec, parse, specs
from workbench.workspace import Workspace

S = TypeVar("S", bound=Settings)
NONE = "(none)"
LIST_ROWS = 3  # of a field with one value a line
MANY = 20  # advanced settings: from here on each section has a fold of its own, and there is a search


class SettingsForm(Panel, Generic[S]):
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
        self._layouts = _layouts()
        self.fields: dict[str, widgets.Widget] = {
            spec.name: _field(spec, self._offered(spec), self._layouts) for spec in self._specs.values()
        }
        self._rows: dict[str, widgets.Widget] = {}
        self._hidden: set[str] = set()
        usual = [self._row(spec) for spec in self._specs.values() if not spec.advanced]
        self.about_model, self._filling = widgets.HTML(), False
        super().__init__([widgets.VBox(usual), self.about_model, *self._make_advanced()])
        self.box.children += (self.message,)
        self.set({spec.name: spec.default for spec in self._specs.values()} | dict(values or {}))
        self._hide()
        for field in self.fields.values():
            field.observe(lambda _: self.check(), names="value")
        if "model" in self.fields:
            self.fields["model"].observe(lambda _: self._adapt(), names="value")
            self._adapt()

    def _make_advanced(self) -> list[widgets.Widget]:
        """A fold a section, its rows made when it is opened; where there are many settings, a search in front."""
        advanced = [spec for spec in self._specs.values() if spec.advanced]
        self.search = widgets.Text(placeholder="find a setting", layout=self._layouts["field"])
        self.found = widgets.VBox([])
        if len(advanced) < MANY:
            self._sections: dict[str, list[Spec]] = {"Advanced": advanced} if advanced else {}
        else:
            names = dict.fromkeys(spec.section for spec in advanced)
            self._sections = {name: [spec for spec in advanced if spec.section == name] for name in names}
        self.sections = widgets.Accordion(children=[widgets.VBox([]) for _ in self._sections], selected_index=None)
        self.sections.observe(lambda _: self._open_section(), names="selected_index")
        self.search.observe(lambda _: self._find(), names="value")
        if len(advanced) < MANY:
            return [self.sections] if advanced else []
        title = widgets.HTML("<b>More settings</b>", layout=self._layouts["label"])
        return [widgets.HBox([title, self.search]), self.found, self.sections]

    def _open_section(self) -> None:
        index = self.sections.selected_index
        if index is not None and not self.sections.children[index].children:
            members = list(self._sections.values())[index]
            self.sections.children[index].children = tuple(map(self._row, members))

    def _find(self) -> None:
        """Show the settings that have every word of the search in name, title, help or section."""
        words = self.search.value.lower().replace("-", " ").split()
        found = [spec for spec in self._specs.values() if words and all(word in _searched(spec) for word in words)]
        nothing = widgets.HTML(note("No setting contains these words.")) if words and not found else None
        self.found.children = (nothing,) if nothing else tuple(map(self._row, found))
        self.sections.layout.display = "none" if words else ""

    def _row(self, spec: Spec) -> widgets.Widget:
        """The setting's row; it is the same widget in its section and in a search."""
        if spec.name not in self._rows:
            row = self._rows[spec.name] = _row(spec, self.fields[spec.name], self._layouts)
            row.layout = self._layouts["hidden" if spec.name in self._hidden else "row"]
        return self._rows[spec.name]

    def _hide(self) -> None:
        """Hide what has no effect and is at its default; title each fold with how many settings it has and changed."""
        values = self.values
        changed = {name for name, spec in self._specs.items() if values[name] != _json(spec.default)}
        self._hidden = set(without_effect(self.settings_class, values)) - changed
        for name, row in self._rows.items():
            row.layout = self._layouts["hidden" if name in self._hidden else "row"]
        for index, (name, members) in enumerate(self._sections.items()):
            visible = [spec.name for spec in members if spec.name not in self._hidden]
            count = len(changed.intersection(visible))
            more = f", {count} changed" if count else ""
            self.sections.set_title(index, f"{name} ({len(visible)}{more})")  # ipywidgets 7 has no `titles`

    def _adapt(self) -> None:
        """Say what the chosen model is; what it does not have goes back to its default, and is named."""
        text = summary(self.fields["model"].value)
        notes = [] if self._filling else self._adapted()
        self.about_model.value = (f"<p style='opacity:.65'>{escaped(text)}</p>" if text else "") + "".join(
            map(note, notes)
        )

    def _adapted(self) -> list[str]:
        found = adapted(self.settings_class, self.values)
        self.set(found.values)
        return found.notes

    @property
    def values(self) -> dict[str, Any]:
        """The fields' values now, unchecked, as JSON values."""
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
        before, self._filling = self._filling, True
        try:
            for name, value in values.items():
                _write(self._specs[name], self.fields[name], value)
        finally:
            self._filling = before

    def check(self) -> bool:
        """Whether the settings keep their rules; shows a sentence for each that does not."""
        self._hide()
        try:
            parse(self.settings_class, self.values)
        except ConfigError as error:
            problems = error.problems.values() or [str(error)]
            self.message.value = "".join(note(text, "error") for text in problems)
            return False
        self.say("")
        return True

    def refresh_choices(self) -> None:
        """Offer the datasets, models and LoRAs that there are now."""
        for name, field in self.fields.items():
            spec = self._specs[name]
            if spec.source and isinstance(field, widgets.Dropdown):
                now = field.value
                field.options = _options(spec, self._offered(spec), now)
                _choose(field, now)

    def _offered(self, spec: Spec) -> list[str]:
        return [choice.value for choice in choices_of(spec, self.workspace)]


def form(settings_class: type[S], workspace: Workspace | None = None, **values: Any) -> SettingsForm[S]:
    """A form of any settings class, filled with the values given, else the defaults. Raises ConfigError."""
    return SettingsForm(settings_class, workspace, values)


# ---- one setting as one field ---------------------------------------------------------------------------------------


def _layouts() -> dict[str, widgets.Layout]:
    """The widths of a form, shared by its widgets: 80 settings would otherwise bring hundreds of equal ones."""
    widths = {"label": "190px", "field": "300px", "number": "140px", "switch": "40px", "column": "310px"}
    return {name: widgets.Layout(width=width) for name, width in widths.items()} | {
        "help": widgets.Layout(flex="1 1 200px", min_width="180px"),
        "row": widgets.Layout(align_items="center"),
        "hidden": widgets.Layout(display="none"),
    }


def _field(spec: Spec, available: Sequence[str], layouts: Mapping[str, widgets.Layout]) -> widgets.Widget:
    layout = layouts["field"]
    if spec.kind == "switch":
        return widgets.Checkbox(indent=False, layout=layouts["switch"])
    if spec.source in ("models", "captioners", "caption_models", "devices"):
        return widgets.Combobox(options=tuple(available), ensure_option=False, layout=layout)
    if spec.kind == "choice":
        return widgets.Dropdown(options=tuple(available), layout=layout)
    if spec.source in ("datasets", "runs") and spec.kind == "text":
        return widgets.Dropdown(options=_options(spec, available, None), layout=layout)
    listed = "one a line: " if spec.kind == "texts" else "such as "
    placeholder = listed + ", ".join(available[:3]) if spec.source and available else _placeholder(spec)
    if spec.kind == "texts" or spec.lines > 1:
        rows = max(spec.lines, LIST_ROWS) if spec.kind == "texts" else spec.lines
        return widgets.Textarea(rows=rows, placeholder=placeholder, layout=layout)
    if spec.kind == "text" or spec.optional:
        return widgets.Text(placeholder=placeholder, layout=layout)
    number = widgets.IntText if spec.kind == "integer" else widgets.FloatText
    return number(layout=layouts["number"])


def _placeholder(spec: Spec) -> str:
    """What an empty field means, as the setting's help says it."""
    if spec.may_be_blank:
        return "the model's own; a space: none"
    if spec.kind in ("text", "texts"):
        return ""
    return spec.help.partition("Empty: ")[2].rstrip(".") or "the model's own"


def _options(spec: Spec, available: Sequence[str], now: str | None) -> list[tuple[str, str | None]]:
    """Choices of a drop-down; the current value stays one of them even when it is gone from the disk."""
    nothing: str | None = None if spec.optional else ""
    gone = [now] if now and now not in available else []
    return [(NONE, nothing), *((name, name) for name in (*available, *gone))]


def _read(spec: Spec, field: widgets.Widget) -> Any:
    value = field.value
    if spec.kind == "texts":
        return [line.strip() for line in value.splitlines() if line.strip()]
    if spec.kind in ("integer", "number") and isinstance(value, str):
        return _number(value)
    if spec.kind == "text" and spec.optional:
        return value or None
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
        if isinstance(field, widgets.Dropdown):
            _choose(field, value)
        else:
            field.value = value


def _choose(field: widgets.Dropdown, value: Any) -> None:
    """Choose by index: the value None would leave the field blank, though one of the choices has it."""
    values = [option[1] if isinstance(option, tuple) else option for option in field.options]
    if value in values:
        field.index = values.index(value)
    else:
        field.value = value  # the widget raises its own error


def _row(spec: Spec, field: widgets.Widget, layouts: Mapping[str, widgets.Layout]) -> widgets.Widget:
    repeated = not spec.unit or spec.unit in spec.title.lower()  # as in "Steps (steps)"
    unit = "" if repeated else f" <span style='opacity:.6'>({escaped(spec.unit)})</span>"
    tooltip = escaped(f"{spec.help} Allowed: {spec.rule}.")
    label = widgets.HTML(
        f'<div title="{tooltip}" style="line-height:1.3">{escaped(spec.title)}{unit}</div>',
        layout=layouts["label"],
    )
    help = widgets.HTML(
        f'<div style="opacity:.65;font-size:88%;line-height:1.3">{escaped(spec.help)}</div>',
        layout=layouts["help"],
    )
    # A column of one width, however wide the field is, so that the help texts are in line.
    column = widgets.Box([field], layout=layouts["column"])
    return widgets.HBox([label, column, help], layout=layouts["row"])


def _searched(spec: Spec) -> str:
    """The text that a search looks into."""
    return " ".join((spec.title, spec.name.replace("_", " "), spec.section, spec.help)).lower().replace("-", " ")


def _json(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value
