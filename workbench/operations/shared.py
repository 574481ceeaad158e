"""Snapshots that operations of several nouns share: notes, groups, the state of a form, files, checks."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated

from pydantic import AfterValidator, Field

from workbench.snapshots import Snapshot
from workbench.workspace.folders import NotedFolder

LoraName = Annotated[
    str,
    Field(title="LoRA", description="runs/RUN, runs/RUN@STEP or loras/NAME.", json_schema_extra={"source": "loras"}),
]
Text = Annotated[str | None, Field(description='The new notes; "" deletes them. Omit it to leave them unchanged.')]
Label = Annotated[str | None, Field(description='The new group; "" for none. Omit it to leave the group unchanged.')]


def one_of(names: Collection[str]) -> AfterValidator:
    """Accept only these names."""

    def listed(name: str) -> str:
        if name not in names:
            raise ValueError(f"{name[:80]!r}, must be one of {', '.join(names)}")
        return name

    return AfterValidator(listed)


class Note(Snapshot):
    """The notes on an item."""

    name: str
    """Name of the item."""

    own_notes: str
    """The notes; "" for none."""


class Group(Snapshot):
    """The group of an item."""

    name: str
    """Name of the item."""

    group: str
    """The group; "" for none."""


def noted(one: NotedFolder, text: str | None) -> Note:
    """Replace the notes unless the text is None, and return them."""
    if text is not None:
        one.write_notes(text)
    return Note(name=one.name, own_notes=one.notes)


def grouped(one: NotedFolder, label: str | None) -> Group:
    """Change the group unless the label is None, and return it."""
    if label is not None:
        one.set_group(label)
    return Group(name=one.name, group=one.group)


class FormState(Snapshot):
    """What is wrong with the values in a form."""

    problems: dict[str, str]
    """Setting -> what is wrong with it and how to fix it, in one sentence; {} if nothing is wrong."""

    without_effect: tuple[str, ...]
    """Settings that have no effect given the other values."""

    notes: tuple[str, ...]
    """One sentence for each setting that was given but has no effect, and what to know of the model: a license with
    conditions, that it is distilled, and the parts to download."""


class Written(Snapshot):
    """A file that was written."""

    file: str
    """Path of the file."""
