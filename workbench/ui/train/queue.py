"""The runs that wait for the device, next first, and what can be done about the chosen one's place.

Not covered: the order itself (runs.queue), which each waiting run follows by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gradio as gr

from workbench.runs import queue
from workbench.runs.run import Run
from workbench.ui.core import render
from workbench.ui.core.live import Snapshot
from workbench.ui.train.part import TrainHost, TrainPart


class QueuePart(TrainPart):
    """A list, and three buttons for the run that is shown, while that one waits."""

    def __init__(self) -> None:
        self.waiting = gr.HTML(elem_id="queue")
        with gr.Row(elem_classes="buttons", visible=False) as self.row:
            self.up = gr.Button("Move up", size="sm", elem_id="queue-up")
            self.down = gr.Button("Move down", size="sm", elem_id="queue-down")
            self.out = gr.Button("Take out", size="sm", elem_id="queue-out")
        self.view = {"waiting": self.waiting, "row": self.row, "up": self.up, "down": self.down}

    def values(self, snapshot: Snapshot) -> dict[str, Any]:
        name, order = snapshot.run.name, snapshot.queue
        place = order.index(name) if name in order else None
        first, last = place == 0, place == len(order) - 1
        return {
            "waiting": listed(order, name),
            "row": (place is not None, lambda: gr.update(visible=place is not None)),
            "up": (first, lambda: gr.update(interactive=not first)),
            "down": (last, lambda: gr.update(interactive=not last)),
        }

    def wire(self, host: TrainHost) -> None:
        def moved(by: int) -> Any:
            def move(run: Run) -> None:
                order = queue.order(host.workspace)
                place = order.index(run.name) + 1 if run.name in order else 1
                queue.move(host.workspace, run.name, max(1, place + by))

            return move

        host.act(self.up.click, moved(-1))
        host.act(self.down.click, moved(1))
        host.act(self.out.click, take_out)


def take_out(run: Run) -> str:
    """Let a waiting run end before it began; it can be started again."""
    run.stop()
    return f"{run.name} leaves the queue; Go on puts it back, at the end."


def listed(order: Sequence[str], shown: str) -> str:
    """The waiting runs as a numbered list; nothing where none waits."""
    if not order:
        return ""
    lines = "".join(f'<li class="{"chosen" if name == shown else ""}">{render.escaped(name)}</li>' for name in order)
    hint = "" if shown in order else "<p>Choose one of them among the runs to change its place.</p>"
    return f'<div class="queue"><h4>Waiting for the device, next first</h4><ol>{lines}</ol>{hint}</div>'
