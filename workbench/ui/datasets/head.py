"""The head of the Dataset tab: the dataset in numbers, and what is still to do. Strings of HTML."""

from __future__ import annotations

from workbench.dataset_builder.snapshot import DatasetSnapshot
from workbench.ui.core import render


def empty() -> str:
    return render.note(
        "No dataset yet. Give one a title on the left, then drop video files: ten short clips of the same new thing "
        "are a good start.",
        "empty",
    )


def summary(found: DatasetSnapshot) -> str:
    """The dataset in numbers, and what is still to do."""
    title = f'<div class="title"><h2>{render.escaped(found.title)}</h2></div>'
    facts = render.facts(found.facts.items()) if found.facts else ""
    return f'<div class="run-head">{title}{facts}</div>{"".join(map(render.note, found.next_steps))}'
