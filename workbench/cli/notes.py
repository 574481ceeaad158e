"""What a person writes on a run or a dataset, printed or written by the commands `note` and `group` of each."""

from __future__ import annotations

from workbench.cli.printing import print_json, say
from workbench.notes import NotedFolder


def print_or_write(noted: NotedFolder, text: str | None, command: str, as_json: bool) -> None:
    """Print the notes, or write `text` as them. command: such as "runs note", for the hint where there are none

    as_json: print what the notes are now
    """
    if text is not None:
        noted.write_notes(text)
    notes, hint = noted.notes, f"no notes: workbench {command} {noted.name} TEXT writes some"
    changed = f"the notes on {noted.name} are {'written' if text and text.strip() else 'removed'}"
    _answer({"name": noted.name, "own_notes": notes}, as_json, (notes or hint) if text is None else changed)


def print_or_set_group(noted: NotedFolder, label: str | None, command: str, as_json: bool) -> None:
    """Print the group, or put it into the one that `label` names. command: such as "runs group", for the hint

    as_json: print what the group is now
    """
    if label is not None:
        noted.set_group(label)
    group, hint = noted.group, f"no group: workbench {command} {noted.name} GROUP gives it one"
    changed = f"{noted.name} is in the group {group}" if group else f"{noted.name} is in no group"
    _answer({"name": noted.name, "group": group}, as_json, (group or hint) if label is None else changed)


def _answer(now: dict[str, str], as_json: bool, sentence: str) -> None:
    print_json(now) if as_json else say(sentence)
