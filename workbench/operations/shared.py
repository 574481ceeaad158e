"""What several nouns have in common: the notes and the group that a person gives a run or a dataset."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from workbench.notes import NotedFolder
from workbench.operations.registry import Snapshot

NotesText = Annotated[str | None, Field(title="Text", description='The new notes; "" removes them.')]
Group = Annotated[str | None, Field(title="Group", description='The new group; "" for none.')]


class Noted(Snapshot):
    """What a person wrote about it, as it is now."""

    name: str
    """What commands take."""

    group: str
    """The label that lists show it under; "" for none."""

    own_notes: str
    """What a person wrote about it; "" for nothing."""


def noted(folder: NotedFolder, text: str | None) -> Noted:
    """Replace the notes, None: leave them. Raises ConfigError where they are too long, CannotWrite."""
    if text is not None:
        folder.write_notes(text)
    return Noted(name=folder.name, group=folder.group, own_notes=folder.notes)


def grouped(folder: NotedFolder, group: str | None) -> Noted:
    """Put it into a group, None: leave it where it is. Raises ConfigError for a label that cannot be used."""
    if group is not None:
        folder.set_group(group)
    return Noted(name=folder.name, group=folder.group, own_notes=folder.notes)


class Check(Snapshot):
    """One thing that was looked at."""

    title: str
    """What was looked at."""

    found: str
    """What was found."""

    remedy: str = ""
    """What to do; "" when all is well."""


def said(check: Check) -> str:
    """Return a check as people read it, with its remedy on a second line."""
    remedy = f"\n  {'':<22}  -> {check.remedy}" if check.remedy else ""
    return f"{'!' if check.remedy else ' '} {check.title:<22}  {check.found}{remedy}"
