"""Settings, each declared once: JSON, flags, forms, docs and error messages are derived from the declaration.

A settings class subclasses `Settings` and declares each attribute with `field(...)`; the string below an attribute is
its help text. `specs(cls)` lists every setting as plain data. `parse(cls, values)` turns raw values into a checked,
frozen object or raises a `ConfigError` whose sentences name setting, value, rule and remedy.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from pydantic.fields import FieldInfo

from workbench.errors import ConfigError
from workbench.snapshots import Snapshot
from workbench.workspace import named_paths, read_json, write_json

Source = Literal[
    "models",
    "captioners",
    "caption_models",
    "maker_models",
    "detectors",
    "mask_models",
    "datasets",
    "runs",
    "exported_runs",
    "loras",
    "loras_or_none",
    "lora_formats",
    "schedulers",
    "checkpoints",
    "devices",
]
Kind = Literal["integer", "number", "switch", "text", "choice", "texts", "numbers", "object"]
S = TypeVar("S", bound="Settings")
RULES: list[Callable[[Settings], None]] = []  # extra checks on all settings of this process; each may raise ConfigError


def field(  # noqa: PLR0913 - a declaration, every part of it named
    default: Any,
    *,
    title: str,
    section: str = "",
    unit: str | None = None,
    advanced: bool = False,
    low: float | None = None,
    high: float | None = None,
    source: Source | None = None,
    lines: int = 1,
    path: bool = False,
    own: bool = False,
    labels: Sequence[str] = (),
) -> Any:
    """Declare one setting; the string below it is its help text.

    Args:
        section: its heading in forms, if not its class's SECTION.
        low, high: inclusive bounds.
        source: what its value is chosen from at run time (see `workbench.choices`).
        lines: height of its text box.
        path: whether it may name a file or folder of this machine.
        own: whether only some models have it (see `families.settings`).
        labels: what forms call its choices, in their order; empty if by their values.
    """
    extra: dict[str, Any] = {
        "section": section,
        "unit": unit,
        "advanced": advanced,
        "source": source,
        "lines": lines,
        "path": path,
        "own": own,
        "labels": labels,
    }
    return Field(default, title=title, ge=low, le=high, json_schema_extra=extra)


class Settings(BaseModel):
    """Base of all settings: strict types, frozen, unknown keys refused."""

    SECTION: ClassVar[str] = ""
    ALSO: ClassVar[Mapping[str, str]] = {}  # setting -> its names in other trainers, separated by commas
    model_config = ConfigDict(
        strict=True,
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        validate_default=True,
        use_attribute_docstrings=True,
    )

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a JSON file. Raises ConfigError."""
        return parse(cls, read_values(path), given=())

    @classmethod
    def load_or_default(cls, path: Path) -> Self:
        """Read a JSON file; return the defaults if it is missing or damaged."""
        with contextlib.suppress(ConfigError):
            return cls.load(path)
        return cls()

    def save(self, path: Path) -> None:
        """Write the settings as JSON, atomically."""
        write_json(path, self.model_dump(mode="json"))

    def changed(self, **values: Any) -> Self:
        """Return a checked copy with some values replaced. Raises ConfigError."""
        return parse(type(self), {**self.model_dump(mode="json"), **values}, given=values)

    def difference(self, other: Self) -> dict[str, Any]:
        """Return the values of `other` that differ from these, as JSON values by name."""
        now = self.model_dump(mode="json")
        return {name: value for name, value in other.model_dump(mode="json").items() if value != now[name]}


class Spec(Snapshot):
    """A setting."""

    name: str
    """Name of the setting, as files, flags and calls take it."""

    title: str
    """Display name."""

    help: str
    """What it does."""

    section: str
    """Section of the form."""

    kind: Kind
    """`integer`, `number`, `switch`, `text`, `choice`, `texts`, `numbers` or `object`."""

    default: Any
    """Its default."""

    rule: str
    """The values it accepts, in words."""

    choices: tuple[str, ...]
    """The values it accepts, if they are fixed."""

    labels: tuple[str, ...]
    """What forms call its choices, in their order; [] if by their values."""

    low: float | None
    """Its minimum; null for none."""

    high: float | None
    """Its maximum; null for none."""

    unit: str | None
    """Its unit; null for none."""

    optional: bool
    """Whether it can be null."""

    advanced: bool
    """Whether forms hide it at first."""

    source: Source | None
    """What its value is chosen from, such as models or datasets (see `choices`); null if its rule says it all."""

    also: str
    """Its names in other programs, separated by commas."""

    rows: int
    """Height of its text field in lines."""

    path: bool
    """Whether it also accepts the path of a file or a folder."""

    own: Annotated[bool, Field(exclude=True)]
    """Whether only some models have it."""

    required: Annotated[bool, Field(exclude=True)]
    """Whether it has no default."""

    @property
    def many(self) -> bool:
        """Whether its value is a list."""
        return self.kind in ("texts", "numbers")

    @property
    def may_be_blank(self) -> bool:
        """Whether an empty text is a value of its own, different from "not set"."""
        return self.kind == "text" and self.optional and self.source is None


def _rule(kind: Kind, choices: Sequence[str], low: float | None, high: float | None, unit: str | None) -> str:
    """Return the legal values in words, like "1 to 256" or "constant, cosine or linear"."""
    if choices:
        *most, last = (one or "empty" for one in choices)
        return ", ".join(most) + f" or {last}" if most else last
    unit = f" {unit}" if unit else ""
    if low is not None and high is not None:
        return f"{_number(low)} to {_number(high)}{unit}"
    if low is not None:
        return f"{_number(low)}{unit} or more"
    if high is not None:
        return f"{_number(high)}{unit} or less"
    names = {
        "integer": "a whole number",
        "number": "a number",
        "switch": "true or false",
        "texts": "a list of texts",
        "numbers": "a list of numbers",
        "object": "an object",
    }
    return names.get(kind, "text")


def _number(value: float) -> str:
    """Format a bound the way people write it: 1000000 rather than 1e+06, 0.95, 1e-08."""
    return str(int(value)) if value == int(value) else f"{value:g}"


@functools.cache
def specs(cls: type[Settings]) -> tuple[Spec, ...]:
    """List all settings of a class in the order of their declaration."""
    classes = [base for base in reversed(cls.__mro__) if issubclass(base, Settings)]
    sections = {name: base.SECTION for base in classes for name in inspect.get_annotations(base)}
    return tuple(_spec(name, info, sections[name], cls.ALSO.get(name, "")) for name, info in cls.model_fields.items())


def _spec(name: str, info: FieldInfo, section: str, also: str) -> Spec:
    kind, choices, optional = _kind(info.annotation)
    bounds = {type(rule).__name__: rule for rule in info.metadata}
    low, high = getattr(bounds.get("Ge"), "ge", None), getattr(bounds.get("Le"), "le", None)
    extra: Any = info.json_schema_extra or {}
    return Spec(
        name=name,
        title=info.title or name,
        help=" ".join((info.description or "").split()),
        kind=kind,
        default=None if info.is_required() else info.get_default(),
        optional=optional,
        choices=choices,
        labels=tuple(extra.get("labels") or ()),
        low=low,
        high=high,
        rule=_rule(kind, choices, low, high, extra.get("unit")),
        section=extra.get("section") or section,
        also=also,
        rows=extra.get("lines") or 1,
        required=info.is_required(),
        unit=extra.get("unit"),
        source=extra.get("source"),
        advanced=bool(extra.get("advanced")),
        path=bool(extra.get("path")),
        own=bool(extra.get("own")),
    )


def _kind(annotation: Any) -> tuple[Kind, tuple[str, ...], bool]:
    """Return (kind, choices, may be None) of a type annotation."""
    if get_origin(annotation) in (Union, types.UnionType):
        inner = [arg for arg in get_args(annotation) if arg is not type(None)]
        assert len(inner) == 1, f"a setting has one type, or one type and None: {annotation}"
        return *_kind(inner[0])[:2], True
    if get_origin(annotation) is Literal:
        return "choice", get_args(annotation), False
    if get_origin(annotation) is tuple:
        return "numbers" if get_args(annotation)[0] in (int, float) else "texts", (), False
    if get_origin(annotation) is dict:
        return "object", (), False
    plain: dict[Any, Kind] = {int: "integer", float: "number", bool: "switch", str: "text"}
    return plain[annotation], (), False


def parse(cls: type[S], values: Mapping[str, Any], given: Collection[str] | None = None) -> S:
    """Check raw JSON values and build the settings. Raises ConfigError with a sentence for each wrong setting.

    Args:
        given: names of the settings that a person gives now, whose paths must be allowed on this server. None means
            all of them, () none, as when settings are read back from disk.
    """
    try:
        made = cls.model_validate_json(json.dumps(values))
    except (TypeError, ValueError) as error:
        if not isinstance(error, ValidationError):
            raise ConfigError(f"the settings cannot be written as JSON: {error}") from error
        known = {spec.name: spec for spec in specs(cls)}
        problems: dict[str, str] = {}
        for item in error.errors(include_url=False):
            name = str(item["loc"][0]) if item["loc"] else "settings"
            problems.setdefault(name, _sentence(name, known, item["input"], item["type"], item["msg"]))
        raise ConfigError("; ".join(problems.values()), problems) from None
    for rule in RULES:
        rule(made)
    for spec in specs(cls):
        if spec.path and (given is None or spec.name in given):
            named_paths.check_setting(spec.name, getattr(made, spec.name))
    return made


def read_values(path: Path) -> dict[str, Any]:
    """Read the settings in a JSON file, unchecked. Raises ConfigError unless it holds an object."""
    values = read_json(path)
    if not isinstance(values, dict):
        raise ConfigError(f"{path.name} must hold a JSON object of settings: write it as {{...}}")
    return values


def from_text(spec: Spec, text: str) -> Any:
    """Convert text from a command line or a URL to a value. Invalid text stays text, which `parse` refuses."""
    if spec.optional and text == "" and not spec.may_be_blank:
        return None
    if spec.kind == "switch":
        return {"true": True, "false": False}.get(text, text)
    if spec.kind == "object":
        with contextlib.suppress(ValueError):
            return json.loads(text)
    if spec.kind in ("integer", "number", "numbers"):
        for number in (int, float):
            try:
                return number(text)
            except ValueError:
                continue
    return text


def value_text(value: Any, unit: str | None = None) -> str:
    """Format a setting's value for people: "none", "on", "512 / 768", "1 step"."""
    if value is None or value in ("", [], ()):
        return "none"
    if isinstance(value, bool):
        return "on" if value else "off"
    text = " / ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    if not unit:
        return text
    return f"{text} {unit.removesuffix('s') if value == 1 else unit}"


def _sentence(name: str, known: dict[str, Spec], value: Any, kind: str, message: str) -> str:
    """Word one of pydantic's errors: setting, value, rule, remedy."""
    if kind == "extra_forbidden":
        import difflib

        other_name = name.replace("_", " ").casefold()
        synonyms = [spec.name for spec in known.values() if other_name in spec.also.casefold().split(", ")]
        meant = synonyms or difflib.get_close_matches(name, known, n=1)
        return f"{name} is not a setting: " + (f"did you mean {meant[0]}?" if meant else "remove it")
    if kind == "missing":
        return f"{name} is not set and has no default: give {known[name].rule}" if name in known else message
    if kind == "value_error":
        return message.removeprefix("Value error, ")
    spec = known.get(name)
    text = json.dumps(value) if isinstance(value, (str, list, dict)) else str(value)
    if spec is None:
        return f"{name} is {text[:80]}: {message}"
    default = "" if spec.default is None else f": the default is {spec.default}"
    return f"{name} is {text[:80]}, must be {spec.rule}{default}"
