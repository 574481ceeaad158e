"""What operations of several nouns have in common: notes, groups, checks, and what is read again and again."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Annotated, Any, Generic, TypeVar

from pydantic import Field

from workbench.errors import ConfigError
from workbench.families.model import Model
from workbench.operations.registry import Snapshot
from workbench.workspace.folders import NotedFolder

T = TypeVar("T")
Text = Annotated[str | None, Field(description='The new notes; "" removes them. Without it they stay as they are.')]
Label = Annotated[str | None, Field(description='The new group; "" for none. Without it the group stays as it is.')]


class Note(Snapshot):
    """The notes on something."""

    name: str
    """What commands take."""

    own_notes: str
    """Notes someone wrote about it; "" for none."""


class Group(Snapshot):
    """The group under which lists show something."""

    name: str
    """What commands take."""

    group: str
    """The group; "" for none."""


def takes(model: Model, frames: int, height: int, width: int) -> bool:
    """Whether a model takes videos of this shape."""
    with contextlib.suppress(ConfigError):
        model.check_shape(frames, height, width)
        return True
    return False


def noted(one: NotedFolder, text: str | None) -> Note:
    """Replace the notes unless the text is None; return the notes."""
    if text is not None:
        one.write_notes(text)
    return Note(name=one.name, own_notes=one.notes)


def grouped(one: NotedFolder, label: str | None) -> Group:
    """Put it into another group unless the label is None; return its group."""
    if label is not None:
        one.set_group(label)
    return Group(name=one.name, group=one.group)


class FormState(Snapshot):
    """What is wrong with the values in a form."""

    problems: dict[str, str]
    """Setting -> what is wrong with it and what to do, one sentence; {} when nothing is."""

    without_effect: tuple[str, ...]
    """Settings that have no effect with these values."""

    notes: tuple[str, ...]
    """A sentence for each given setting that has no effect."""


class Written(Snapshot):
    """A file that was written."""

    file: str
    """Its path."""


class Check(Snapshot):
    """The result of one check."""

    title: str
    """What was checked."""

    found: str
    """What was found."""

    remedy: str = ""
    """What to do; "" when all is well."""


def said(check: Check) -> list[str]:
    """Format a check for people, with its remedy on a second line."""
    line = f"{'!' if check.remedy else ' '} {check.title:<22}  {check.found}"
    return [line, f"  {'':<22}  -> {check.remedy}"] if check.remedy else [line]


class Kept(Generic[T]):
    """What a watched operation made of each thing; made again once the thing's mark has changed."""

    def __init__(self) -> None:
        self._kept: dict[str, tuple[Any, T]] = {}

    def of(self, name: str, mark: Any, make: Callable[[], T]) -> T:
        """Return what was made of it, now if its mark is another one."""
        if name not in self._kept or self._kept[name][0] != mark:
            self._kept[name] = mark, make()
        return self._kept[name][1]

    def forget(self, name: str) -> None:
        """Let it be made again."""
        self._kept.pop(name, None)
