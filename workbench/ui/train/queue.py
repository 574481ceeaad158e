"""The runs that wait for the device, next first, and buttons that move the chosen one."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import gradio as gr

from workbench.display.html import escaped
from workbench.display.states import icon
from workbench.jobs import queue
from workbench.runs.run import Run
from workbench.runs.snapshot import RunSnapshot
from workbench.ui.core.view import visible
from workbench.ui.train.part import TrainHost, TrainPart


class QueuePart(TrainPart):
    """A list, and three buttons for the run that is shown, while that one waits."""

    def __init__(self) -> None:
        self.waiting = gr.HTML(elem_id="queue")
        with gr.Row(elem_classes="buttons", visible=False) as self.row:
            self.up = gr.Button("Move up", size="sm", elem_id="queue-up")
            self.down = gr.Button("Move down", size="sm", elem_id="queue-down")
            self.remove = gr.Button("Remove", size="sm", elem_id="queue-remove")
        self.components = [self.waiting, self.row, self.up, self.down]

    def values(self, snapshot: RunSnapshot) -> dict[Any, Any]:
        position, last = snapshot.position, len(snapshot.queue)
        return {
            self.waiting: waiting_runs(snapshot.queue, snapshot.name),
            self.row: visible(position is not None),
            self.up: gr.update(interactive=position != 1),
            self.down: gr.update(interactive=position != last),
        }

    def wire(self, host: TrainHost) -> None:
        def move(run: Run, by: int) -> None:
            order = queue.order(host.workspace)
            position = order.index(run.name) + 1 if run.name in order else 1
            queue.move(host.workspace, run.name, max(1, position + by))

        host.act(self.up.click, partial(move, by=-1))
        host.act(self.down.click, partial(move, by=1))
        host.act(self.remove.click, remove)


def remove(run: Run) -> str:
    """Let a waiting run end before it began; it can be started again."""
    run.stop()
    return f"{run.name} leaves the queue; Start again appends it."


def waiting_runs(order: Sequence[str], chosen: str) -> str:
    """The waiting runs as a numbered list; nothing where none waits."""
    if not order:
        return ""
    lines = "".join(f'<li class="{"chosen" if name == chosen else ""}">{escaped(name)}</li>' for name in order)
    hint = "" if chosen in order else "<p>Choose one of them among the runs to move it.</p>"
    return (
        f'<div class="queue"><h4>{icon("waiting")}Waiting for the device, next first</h4><ol>{lines}</ol>{hint}</div>'
    )
