"""The buttons under a run's head: go on, pause, stop, save, report; and what a silent run is doing.

The snapshot says which of them make sense and what they are called. Not covered: starting new runs (tab), previews and
checkpoints, which have parts of their own.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import gradio as gr

from workbench import jobs
from workbench.runs.actions import Action
from workbench.runs.analysis.report import REPORT, write_report
from workbench.runs.facts import moment
from workbench.runs.run import Run
from workbench.runs.snapshot import RunSnapshot
from workbench.ui.core import render
from workbench.ui.train.part import TrainHost, TrainPart

# Name of a button -> the kinds of action that it may stand for, its element's id, its looks.
BUTTONS: dict[str, tuple[tuple[str, ...], str, str]] = {
    "resume": (("go on",), "resume-run", "primary"),
    "sample": (("sample",), "sample-run", "primary"),
    "stacks": (("stacks",), "show-stacks", "primary"),
    "pause": (("pause", "resume"), "pause-run", "secondary"),
    "stop": (("stop", "kill"), "stop-run", "stop"),
    "save": (("save",), "save-run", "secondary"),
    "copy": (("new run",), "copy-run", "secondary"),
    "write": (("report",), "write-report", "secondary"),
}
PERFORMED = ("resume", "pause", "stop", "save", "copy")  # the others need more than the run


class CommandsPart(TrainPart):
    """A row of buttons, of which those are there that make sense."""

    def __init__(self) -> None:
        with gr.Row(elem_classes="buttons"):
            self.buttons = {
                name: gr.Button(variant=variant, visible=False, elem_id=element)
                for name, (_, element, variant) in BUTTONS.items()
            }
            self.report = gr.HTML(elem_id="run-report", min_width=200)
        self.stacks = gr.HTML(elem_id="run-stacks")
        self.view = {**self.buttons, "report_link": self.report, "stacks_text": self.stacks}

    def values(self, snapshot: RunSnapshot) -> dict[str, Any]:
        return {
            **{name: self.button(available(snapshot, name)) for name in BUTTONS},
            "report_link": report_link(snapshot.run),
            "stacks_text": (snapshot.name, lambda: ""),
        }

    def wire(self, host: TrainHost) -> None:
        for name in PERFORMED:
            host.perform(self.buttons[name].click, partial(available, button=name), fills=name == "copy")
        host.act(self.buttons["write"].click, report)
        host.ask(self.buttons["stacks"].click, stacks, [], [self.stacks])


def available(snapshot: RunSnapshot, button: str) -> Action | None:
    """What a button of the row does now, None while it does nothing."""
    return next((action for kind in BUTTONS[button][0] if (action := snapshot.action(kind))), None)


def report_link(run: Run) -> str:
    """The report that was written last; "" before one was."""
    path = run.folder / REPORT
    if not path.exists():
        return ""
    return f"{render.download(path, f'{run.name}-report.html')} of {moment(path.stat().st_mtime)}"


def report(run: Run) -> str:
    write_report(run)
    return "The report is written: one file that holds all it shows."


def stacks(snapshot: RunSnapshot) -> list[str]:
    """What every thread of the run is doing now."""
    return [f'<h4 class="section">What it is doing now</h4>{render.log_box(jobs.stacks(snapshot.run.folder))}']
