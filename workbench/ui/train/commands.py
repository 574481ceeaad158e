"""The buttons under a run's head: go on, pause, stop, save, report; and what a silent run is doing.

Not covered: starting new runs (train_tab), previews and checkpoints, which have parts of their own.
"""

from __future__ import annotations

import time
from typing import Any

import gradio as gr

from workbench import jobs
from workbench.jobs import State
from workbench.runs.analysis.report import REPORT, write_report
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.ui.core import render
from workbench.ui.core.live import Snapshot
from workbench.ui.train import run_view
from workbench.ui.train.part import TrainHost, TrainPart
from workbench.ui.train.previews import waits

STACKS = "Show what it is doing"


class CommandsPart(TrainPart):
    """A row of buttons, of which those are there that make sense."""

    def __init__(self) -> None:
        self.hanging = gr.HTML(elem_id="run-hanging")
        with gr.Row(elem_classes="buttons"):
            self.resume = gr.Button("Go on", variant="primary", visible=False, elem_id="resume-run")
            self.try_it = gr.Button("Try it in Sample", variant="primary", visible=False, elem_id="try-run")
            self.stacks = gr.Button(STACKS, variant="primary", visible=False, elem_id="show-stacks")
            self.pause = gr.Button("Pause", visible=False, elem_id="pause-run")
            self.stop = gr.Button("Stop", variant="stop", visible=False, elem_id="stop-run")
            self.save = gr.Button("Save now", visible=False, elem_id="save-run")
            self.copy = gr.Button("Copy settings to the form", visible=False, elem_id="copy-run")
            self.write = gr.Button("Write a report", visible=False, elem_id="write-report")
            self.report = gr.HTML(elem_id="run-report", min_width=200)
        self.seen_stacks = gr.HTML(elem_id="run-stacks")
        names = ("hanging", "resume", "try_it", "stacks", "pause", "stop", "save", "copy", "write", "report")
        self.view = {name: getattr(self, name) for name in (*names, "seen_stacks")}

    def values(self, snapshot: Snapshot) -> dict[str, Any]:
        shown = snapshot.run.name
        return {
            "hanging": run_view.hanging(snapshot),
            **{name: (look, lambda look=look: gr.update(**look)) for name, look in looks(snapshot).items()},
            "report": report_link(snapshot.run),
            "seen_stacks": (shown, lambda: ""),
        }

    def wire(self, host: TrainHost) -> None:
        host.act(self.resume.click, go_on)
        host.act(self.stop.click, stop)
        host.act(self.pause.click, pause)
        host.act(self.save.click, save)
        host.act(self.copy.click, settings_of, fills=True)
        host.act(self.write.click, report)
        host.ask(self.stacks.click, stacks, [], [self.seen_stacks])


def looks(snapshot: Snapshot) -> dict[str, dict[str, Any]]:
    """Which buttons make sense now, and what they say."""
    state, saved, settings = snapshot.status.state, snapshot.checkpoints, snapshot.settings
    waiting, paused = waits(snapshot), state is State.PAUSED
    # What a failed run needs, its card offers.
    over = state in (State.NEW, State.STOPPED)
    go_on = "Start" if state is State.NEW else f"Go on from step {saved[-1]}" if saved else "Start again"
    return {
        "resume": {"visible": over, "value": go_on},
        "try_it": {"visible": state is State.FINISHED and snapshot.lora is not None or paused and bool(saved)},
        "stacks": {"visible": snapshot.status.hanging},
        "pause": {
            "visible": state in (State.RUNNING, State.PAUSED) and not waiting,
            "value": "Continue" if state is State.PAUSED else "Pause",
        },
        "stop": {"visible": state.alive, "value": "End by force" if state is State.STOPPING else "Stop"},
        "save": {"visible": state is State.RUNNING and not waiting},
        "copy": {"visible": settings is not None},
        "write": {"visible": settings is not None and bool(snapshot.curves.last)},
    }


def report_link(run: Run) -> str:
    """The report that was written last; "" before one was."""
    path = run.folder / REPORT
    if not path.exists():
        return ""
    when = time.strftime("%d %b, %H:%M", time.localtime(path.stat().st_mtime))
    return f"{render.download(path, f'{run.name}-report.html')} of {when}"


def go_on(run: Run) -> None:
    run.start()


def stop(run: Run) -> None:
    # A run that was asked before and still lives hangs in something that does not look for commands.
    run.stop(grace=0.0 if run.status.state is State.STOPPING else None)


def pause(run: Run) -> None:
    run.resume() if run.status.state is State.PAUSED else run.pause()


def save(run: Run) -> str:
    run.save()
    return "A checkpoint is written after this step."


def settings_of(run: Run) -> TrainSettings:
    return run.settings


def report(run: Run) -> str:
    write_report(run)
    return "The report is written: one file that holds all it shows."


def stacks(snapshot: Snapshot) -> list[str]:
    """What every thread of the run is doing now."""
    return [f'<h4 class="section">What it is doing now</h4>{render.log_box(jobs.stacks(snapshot.run.folder))}']
