"""How a run ended: the LoRA of a finished one; of a failed one its cause, and a button for each action that helps.

Not covered: why a run failed and what helps (runs.failures).
"""

from __future__ import annotations

from functools import partial
from typing import Any

import gradio as gr

from workbench.html import escaped
from workbench.runs.actions import Action
from workbench.runs.failures import Failure
from workbench.runs.snapshot import RunSnapshot
from workbench.ui.core import render
from workbench.ui.train.part import TrainHost, TrainPart

BUTTONS = 3


class FailurePart(TrainPart):
    """The note under the head, and the buttons of a failed run."""

    def __init__(self) -> None:
        self.ending = gr.HTML(elem_id="run-ending")
        with gr.Row(elem_classes="buttons", visible=False) as self.row:
            self.buttons = [
                gr.Button(visible=False, variant="secondary" if number else "primary", elem_id=f"failure-{number}")
                for number in range(BUTTONS)
            ]
        self.view = {"ending": self.ending, "row": self.row}
        self.view |= {f"button{number}": button for number, button in enumerate(self.buttons)}

    def values(self, snapshot: RunSnapshot) -> dict[str, Any]:
        actions = pressable(snapshot)
        return {
            "ending": ending(snapshot),
            "row": self.visibility(bool(actions)),
            **{f"button{number}": self.button(_nth(snapshot, number)) for number in range(BUTTONS)},
        }

    def wire(self, host: TrainHost) -> None:
        for number, button in enumerate(self.buttons):
            host.perform(button.click, partial(_nth, number=number), fills=True)


def pressable(snapshot: RunSnapshot) -> list[Action]:
    """The actions of its failure that a button can do; the others are explained by their hints."""
    actions = snapshot.failure.actions if snapshot.failure else ()
    return [action for action in actions if not action.hint][:BUTTONS]


def _nth(snapshot: RunSnapshot, number: int) -> Action | None:
    return dict(enumerate(pressable(snapshot))).get(number)


# ---- as HTML


def ending(snapshot: RunSnapshot) -> str:
    """Why the run failed, or what came of it; empty while it goes on."""
    if snapshot.failure:
        return failure(snapshot.failure)
    if snapshot.outcome is None:
        return ""
    lora = snapshot.run.lora
    link = f" {render.download(lora, f'{snapshot.name}.safetensors')}" if lora else ""
    return f'<div class="note {snapshot.outcome.tone}">{escaped(snapshot.outcome.text)}{link}</div>'


def failure(found: Failure) -> str:
    """The cause, the run's own message, what is safe, what to do, the last lines."""
    lines = "".join(f"<p>{escaped(text)}</p>" for text in found.sentences)
    log = f"<details><summary>The log's last lines</summary>{render.log_box(found.tail)}</details>"
    return f'<div class="note bad failure"><h3>{escaped(found.cause)}</h3>{lines}{log}</div>'
