"""Snapshots that operations of several nouns share: notes, groups, the state of a form, files, questions."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, Field

from workbench import jobs
from workbench.display.quantities import moment
from workbench.jobs.snapshot import JobSnapshot
from workbench.settings import Settings
from workbench.snapshots import Shown, Snapshot
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
    """The values of a form: what is wrong with them, and what the model makes of them."""

    problems: dict[str, str]
    """Setting -> what is wrong with it and how to fix it, in one sentence; {} if nothing is wrong."""

    without_effect: tuple[str, ...]
    """Settings that have no effect given the other values."""

    notes: tuple[str, ...]
    """One sentence for each setting that was given but has no effect, and what to know of the model: a license with
    conditions, that it is distilled, and the parts to download."""

    own: dict[str, Any] = {}
    """Setting -> the model's default, which applies while the setting is empty."""

    model: str = ""
    """The model in one line; "" if the form has none or it is unknown."""


class Written(Snapshot):
    """A file that was written."""

    file: str
    """Path of the file."""


class Question(JobSnapshot):
    """A question that a background job answers."""

    STOP: ClassVar[str]  # the command that stops the job

    activity: str
    """What it is doing and how long that will take; "" when it is over."""

    share: float | None
    """Share of the work that is done, 0 to 1; null while unknown."""

    answered: Annotated[float | None, Shown(text=moment)]
    """When it was answered, as Unix time; null until then."""

    @classmethod
    def of(cls, status: jobs.Status, settings: Settings, answer: Any, **own: Any) -> Self:
        """Fill the fields from the answer, or from the question's settings while there is none.

        Args:
            own: Values of fields that neither has by that name.
        """
        going = status.state.alive
        return cls.from_objects(
            *filter(None, [answer]),
            settings,
            status,
            id=status.name,
            state=jobs.State.FINISHED if answer else status.state,
            message="" if going or answer else status.message or jobs.log_tail(status.folder, 1),
            activity=" · ".join(filter(None, (status.phase or "starting", status.left))) if going else "",
            share=status.share if going else None,
            answered=answer.time if answer else None,
            **own,
        )

    @property
    def goes_on(self) -> str:
        stop = f"workbench {self.STOP} {self.id}"
        return f"It continues in the background. The same command shows the answer. To stop it: {stop}"
