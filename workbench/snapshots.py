"""Snapshots: what is true of an object at one moment, each field declared once with its description.

A part returns snapshots of its objects, and an operation passes them on. The page, the API, the shell's tables and
`--json`, agents' tools and docs/json.md take keys, types and descriptions from the declaration.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict


def _values(value: Any) -> Any:
    return dataclasses.asdict(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else value


# A path as text, and an object as a dictionary: fields take paths and dataclasses as they are.
Place = Annotated[str, BeforeValidator(lambda value: str(value) if isinstance(value, Path) else value)]
Values = Annotated[dict[str, Any], BeforeValidator(_values)]


@dataclass(frozen=True)
class Shown:
    """How a snapshot field is displayed to people: Annotated[int, Shown("size", byte_size)].

    Attributes:
        title: Its label; "" for the field's name.
        text: Formats the value.
        right: Whether tables align it to the right.
    """

    title: str = ""
    text: Callable[[Any], str] = str
    right: bool = False


HIDDEN = Shown(text=lambda _: "")


class Snapshot(BaseModel):
    """The return value of an operation. The string below a field is its documentation."""

    COLUMNS: ClassVar[tuple[str, ...]] = ()  # fields to show when several are printed as a table
    model_config = ConfigDict(frozen=True, from_attributes=True, use_attribute_docstrings=True)

    @classmethod
    def from_objects(cls, *sources: object, **own: Any) -> Self:
        """Fill each field with the value given for it here, or else with the attribute of that name.

        Args:
            sources: Where to look for attributes, in this order.
            own: Values by field. The others must be attributes of a source, unless they have defaults.
        """
        found = dict[str, Any]()
        for name in cls.model_fields.keys() - own.keys():
            for source in sources:
                if (value := getattr(source, name, found)) is not found:
                    found[name] = value
                    break
        return cls(**found, **own)

    def lines(self) -> Iterator[tuple[str, str]]:
        """Yield the label and the text of each field that is not empty."""
        for name in type(self).model_fields:
            if (text := self.text_of(name)) != "":
                yield type(self).shown(name).title, text

    @property
    def over(self) -> bool:
        """Whether it is final and will not change on its own."""
        return False

    def table(self) -> tuple[Sequence[str], list[Sequence[str]]] | None:
        """Return the header and rows of a table to print above the lines; None for most snapshots."""
        return None

    def text(self) -> Iterator[str]:
        """Yield the lines to print in the shell."""
        lines = list(self.lines())
        width = max((len(title) for title, text in lines if text), default=0) + 2
        yield from (f"{title:<{width}}{text}".rstrip() for title, text in lines)

    def text_of(self, name: str) -> str:
        """Format a field for people; "" if it is empty."""
        value = getattr(self, name)
        return "" if value is None or value in ("", (), [], {}) else self.shown(name).text(value)

    @classmethod
    def shown(cls, name: str) -> Shown:
        """Return how to display a field."""
        found = next((one for one in cls.model_fields[name].metadata if isinstance(one, Shown)), Shown())
        return found if found.title else Shown(name.replace("_", " "), found.text, found.right)


class Check(Snapshot):
    """The result of one check."""

    title: str
    """What was checked."""

    found: str
    """What was found."""

    remedy: str = ""
    """How to fix it; "" if nothing is wrong."""

    @classmethod
    def of(cls, title: str, found: str, remedy: str = "") -> Self:
        return cls(title=title, found=found, remedy=remedy)

    @property
    def said(self) -> list[str]:
        """One line, with its remedy on a second one."""
        line = f"{'!' if self.remedy else ' '} {self.title:<22}  {self.found}"
        return [line, f"  {'':<22}  -> {self.remedy}"] if self.remedy else [line]


def keys_of(kind: type[Snapshot]) -> dict[str, str]:
    """Map each JSON key of a snapshot to its description."""
    shown = {name: info for name, info in kind.model_fields.items() if not info.exclude}
    return {name: " ".join((info.description or "").split()) for name, info in shown.items()}
