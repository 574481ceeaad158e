"""What operations of several nouns have in common: notes, groups and checks."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from workbench.operations.registry import Snapshot
from workbench.workspace.folders import NotedFolder

Text = Annotated[str | None, Field(description='The new notes; "" removes them. Without it they stay as they are.')]
Label = Annotated[str | None, Field(description='The new group; "" for none. Without it the group stays as it is.')]


class Note(Snapshot):
    """What a person wrote about something."""

    name: str
    """What commands take."""

    own_notes: str
    """What a person wrote about it; "" for nothing."""


class Group(Snapshot):
    """The label under which lists show something."""

    name: str
    """What commands take."""

    group: str
    """That it is in now; "" for none."""


def noted(one: NotedFolder, text: str | None) -> Note:
    """Replace the notes unless the text is None; return them as they are then."""
    if text is not None:
        one.write_notes(text)
    return Note(name=one.name, own_notes=one.notes)


def grouped(one: NotedFolder, label: str | None) -> Group:
    """Put it into another group unless the label is None; return the group that it is in then."""
    if label is not None:
        one.set_group(label)
    return Group(name=one.name, group=one.group)


class Check(Snapshot):
    """One thing that was looked at."""

    title: str
    """What was looked at."""

    found: str
    """What was found."""

    remedy: str = ""
    """What to do; "" when all is well."""


def said(check: Check) -> list[str]:
    """Return a check as people read it, with its remedy on a second line."""
    line = f"{'!' if check.remedy else ' '} {check.title:<22}  {check.found}"
    return [line, f"  {'':<22}  -> {check.remedy}"] if check.remedy else [line]
