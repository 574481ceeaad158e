"""What operations of several nouns have in common: notes, groups, checks, and what is read again and again."""

from __future__ import annotations

import contextlib
from typing import Annotated

from pydantic import Field

from workbench.errors import ConfigError
from workbench.families.model import Model
from workbench.operations.registry import Snapshot
from workbench.workspace.folders import NotedFolder

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
