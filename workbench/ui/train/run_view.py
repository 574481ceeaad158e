"""The head of a run as HTML of its snapshot: state, progress, diagnosis, facts and notes.

Not covered: everything below the head (the other parts of workbench.ui.train), what the snapshot holds (runs.snapshot).
"""

from __future__ import annotations

from workbench.html import badge, escaped, facts
from workbench.runs.snapshot import RunSnapshot
from workbench.ui.core import render


def empty() -> str:
    return render.note(
        "No run is chosen. Fill in the form on the left and press Start training, or train the demo first.", "empty"
    )


def head(snapshot: RunSnapshot) -> str:
    """Name, state, progress, and what is known of the run."""
    return (
        f'<div class="run-head"><div class="title"><h2>{escaped(snapshot.name)}</h2>'
        f"{badge(snapshot.headline, snapshot.tone)}"
        f'<span class="left">{escaped(snapshot.time_left)}</span></div>'
        f"{render.bar(snapshot.share, snapshot.tone)}<p>{escaped(snapshot.activity)}</p>{diagnosis(snapshot)}"
        f"{facts((fact.label, fact.text) for fact in snapshot.facts)}{notes(snapshot)}</div>"
    )


def diagnosis(snapshot: RunSnapshot) -> str:
    """How the run goes; nothing before the first measurement."""
    found = snapshot.diagnosis
    if found is None:
        return ""
    text = f"<b>{escaped(found.sentence)}</b> {escaped(found.advice)}"
    return f'<div class="note diagnosis {found.tone}">{text}</div>'


def notes(snapshot: RunSnapshot) -> str:
    return "".join(
        render.note(note.text, "bad") if note.tone == "bad" else f'<p class="run-note">{escaped(note.text)}</p>'
        for note in snapshot.notes
    )
