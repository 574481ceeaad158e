"""The runs that wait for the device, next first, and buttons that move the chosen one.

Not covered: the order itself (runs.queue), which each waiting run follows by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gradio as gr

from workbench.html import escaped
from workbench.runs import queue
from workbench.runs.run import Run
from workbench.runs.snapshot import RunSnapshot
from workbench.ui.train.part import TrainHost, TrainPart


class QueuePart(TrainPart):
    """A list, and three buttons for the run that is shown, while that one waits."""

    def __init__(self) -> None:
        self.waiting = gr.HTML(elem_id="queue")
        with gr.Row(elem_classes="buttons", visible=False) as self.row:
            self.up = gr.Button("Move up", size="sm", elem_id="queue-up")
            self.down = gr.Button("Move down", size="sm", elem_id="queue-down")
            self.remove = gr.Button("Remove", size="sm", elem_id="queue-remove")
        self.view = {"waiting": self.waiting, "row": self.row, "up": self.up, "down": self.down}

    def values(self, snapshot: RunSnapshot) -> dict[str, Any]:
        first, last = snapshot.position == 1, snapshot.position == len(snapshot.queue)
        return {
            "waiting": waiting_runs(snapshot.queue, snapshot.name),
            "row": self.visibility(snapshot.position is not None),
            "up": (first, lambda: gr.update(interactive=not first)),
            "down": (last, lambda: gr.update(interactive=not last)),
        }

    def wire(self, host: TrainHost) -> None:
        def moved(by: int) -> Any:
            def move(run: Run) -> None:
                order = queue.order(host.workspace)
                position = order.index(run.name) + 1 if run.name in order else 1
                queue.move(host.workspace, run.name, max(1, position + by))

            return move

        host.act(self.up.click, moved(-1))
        host.act(self.down.click, moved(1))
        host.act(self.remove.click, remove)


def remove(run: Run) -> str:
    """Let a waiting run end before it began; it can be started again."""
    run.stop()
    return f"{run.name} leaves the queue; Go on appends it again."


def waiting_runs(order: Sequence[str], chosen: str) -> str:
    """The waiting runs as a numbered list; nothing where none waits."""
    if not order:
        return ""
    lines = "".join(f'<li class="{"chosen" if name == chosen else ""}">{escaped(name)}</li>' for name in order)
    hint = "" if chosen in order else "<p>Choose one of them among the runs to move it.</p>"
    return f'<div class="queue"><h4>Waiting for the device, next first</h4><ol>{lines}</ol>{hint}</div>'
