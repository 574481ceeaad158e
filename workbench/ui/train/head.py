"""The head of a run: its state, how it goes, how it ended, and a button for everything that can be done with it now.

The snapshot says which actions make sense and what they are called.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import gradio as gr

from workbench import jobs
from workbench.display.html import badge, escaped, facts
from workbench.display.quantities import moment
from workbench.display.states import icon
from workbench.runs.display import REPORT, write_report
from workbench.runs.run import Action, Run
from workbench.runs.snapshot import RunSnapshot
from workbench.ui.core import render
from workbench.ui.core.view import visible
from workbench.ui.train.part import TrainHost, TrainPart, action_button

# A button's element -> the kinds of action that it may stand for, its looks.
BUTTONS: dict[str, tuple[tuple[str, ...], str]] = {
    "resume-run": (("go on",), "primary"),
    "sample-run": (("sample",), "primary"),
    "show-stacks": (("stacks",), "primary"),
    "pause-run": (("pause", "resume"), "secondary"),
    "stop-run": (("stop", "kill"), "stop"),
    "save-run": (("save",), "secondary"),
    "copy-run": (("new run",), "secondary"),
    "write-report": (("report",), "secondary"),
}
# The facts of the line below the progress; the others stand in the fold "All figures".
IN_SIGHT = ("loss", "held_out_loss", "step_seconds", "training_time", "stops_at")
PERFORMED = ("resume-run", "pause-run", "stop-run", "save-run", "copy-run")  # the others need more than the run
REMEDIES = 3  # buttons of a failure
EMPTY = (
    "No run is chosen. A run shows here how far it is, whether it learns, and its videos as they come. Fill in New run "
    "above, or train the demo on Home first."
)


class HeadPart(TrainPart):
    """State and numbers; how it ended, with the buttons of a failure; the row of buttons."""

    def __init__(self) -> None:
        self.head = gr.HTML(elem_id="run-head")
        self.ending = gr.HTML(elem_id="run-ending")
        with gr.Row(elem_classes="buttons", visible=False) as self.row:
            self.remedies = [
                gr.Button(visible=False, variant="secondary" if number else "primary", elem_id=f"failure-{number}")
                for number in range(REMEDIES)
            ]
        with gr.Row(elem_classes="buttons"):
            self.buttons = {
                name: gr.Button(variant=variant, visible=False, elem_id=name) for name, (_, variant) in BUTTONS.items()
            }
            self.report = gr.HTML(elem_id="run-report", min_width=200)
        self.stacks = gr.HTML(elem_id="run-stacks")
        self.figures = gr.HTML(elem_id="run-figures", render=False)
        one_of_a_kind = [self.head, self.ending, self.row, self.report, self.stacks, self.figures]
        self.components = [*one_of_a_kind, *self.remedies, *self.buttons.values()]

    def more(self) -> None:
        """Build the fold with all figures."""
        with gr.Accordion("All figures", open=False, elem_id="run-all-figures"):
            self.figures.render()

    def values(self, snapshot: RunSnapshot) -> dict[Any, Any]:
        return {
            self.head: head(snapshot),
            self.figures: facts((fact.label, fact.text) for fact in snapshot.facts),
            self.ending: ending(snapshot),
            self.row: visible(bool(remedies(snapshot))),
            **{one: action_button(remedy(snapshot, number)) for number, one in enumerate(self.remedies)},
            **{one: action_button(available(snapshot, name)) for name, one in self.buttons.items()},
            self.report: report_link(snapshot.run),
            self.stacks: (snapshot.name, lambda: ""),
        }

    def empty(self) -> dict[Any, Any]:
        """What the components show while there is no run."""
        buttons = [*self.remedies, *self.buttons.values()]
        texts = dict.fromkeys((self.ending, self.report, self.stacks, self.figures), "")
        hidden = {self.row: visible(False), **{one: action_button(None) for one in buttons}}
        return {self.head: render.note(EMPTY, "empty"), **texts, **hidden}

    def wire(self, host: TrainHost) -> None:
        for number, button in enumerate(self.remedies):
            host.perform(button.click, partial(remedy, number=number), fills=True)
        for name in PERFORMED:
            host.perform(self.buttons[name].click, partial(available, button=name), fills=name == "copy-run")
        host.act(self.buttons["write-report"].click, report)
        host.ask(self.buttons["show-stacks"].click, stacks, [], [self.stacks])


# ---- actions


def remedies(snapshot: RunSnapshot) -> list[Action]:
    """The actions of its failure that a button can do; the others are explained by their hints."""
    actions = snapshot.failure.actions if snapshot.failure else ()
    return [action for action in actions if not action.hint][:REMEDIES]


def remedy(snapshot: RunSnapshot, number: int) -> Action | None:
    return next(iter(remedies(snapshot)[number:]), None)


def available(snapshot: RunSnapshot, button: str) -> Action | None:
    """What a button of the row does now, None while it does nothing."""
    return next((action for kind in BUTTONS[button][0] if (action := snapshot.action(kind))), None)


def report(run: Run) -> str:
    write_report(run)
    return "The report is written: one file that holds all it shows."


def stacks(snapshot: RunSnapshot) -> str:
    """What every thread of the run is doing now."""
    return f'<h4 class="section">What it is doing now</h4>{render.log_box(jobs.stacks(snapshot.run.folder))}'


# ---- as HTML


def head(snapshot: RunSnapshot) -> str:
    """Name, state, progress, one line of facts, notes; the diagnosis, too, unless the run failed."""
    notes = [
        render.note(note.text, "bad") if note.tone == "bad" else f'<p class="run-note">{escaped(note.text)}</p>'
        for note in snapshot.notes
    ]
    return (
        f'<div class="run-head"><div class="title"><h2>{escaped(snapshot.name)}</h2>'
        f"{badge(snapshot.headline, snapshot.tone)}"
        f'<span class="left">{escaped(snapshot.time_left)}</span></div>'
        f"{'' if snapshot.tone == 'good' else render.bar(snapshot.share, snapshot.tone)}"
        f"<p>{escaped(snapshot.activity)}</p>"
        f"{facts((fact.label, fact.text) for fact in snapshot.facts if fact.key in IN_SIGHT)}"
        f"{'' if snapshot.failure else diagnosis(snapshot)}{''.join(notes)}</div>"
    )


def diagnosis(snapshot: RunSnapshot) -> str:
    """How the run goes; nothing before the first measurement."""
    found = snapshot.diagnosis
    if found is None:
        return ""
    text = f"<b>{icon('', found.tone)}{escaped(found.sentence)}</b> {escaped(found.advice)}"
    return f'<div class="note diagnosis {found.tone}">{text}</div>'


def ending(snapshot: RunSnapshot) -> str:
    """Why the run failed, what to do, and how it went until then; or what came of it; empty while it goes on."""
    if found := snapshot.failure:
        lines = "".join(f"<p>{escaped(text)}</p>" for text in found.sentences)
        log = f"<details><summary>The log's last lines</summary>{render.log_box(found.tail)}</details>"
        box = f'<div class="note bad failure"><h3>{icon("failed")}{escaped(found.cause)}</h3>{lines}{log}</div>'
        return box + diagnosis(snapshot)
    if snapshot.outcome is None:
        return ""
    lora = snapshot.run.lora
    link = f" {render.download(lora, f'{snapshot.name}.safetensors')}" if lora else ""
    text, tone = f"{escaped(snapshot.outcome.text)}{link}", snapshot.outcome.tone
    return f"<p>{text}</p>" if tone == "good" else f'<div class="note {tone}">{icon(snapshot.headline)}{text}</div>'


def report_link(run: Run) -> str:
    """The report that was written last; "" before one was."""
    path = run.folder / REPORT
    if not path.exists():
        return ""
    return f"{render.download(path, f'{run.name}-report.html')} of {moment(path.stat().st_mtime)}"
