"""What to do once a run is over: the LoRA of a finished one, the card of a failed one with its buttons.

Not covered: why a run failed and what helps (runs.failures).
"""

from __future__ import annotations

from typing import Any

import gradio as gr

from workbench.errors import ConfigError
from workbench.families import find_model
from workbench.jobs import State
from workbench.runs import failures
from workbench.runs.failures import Action, Failure
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.ui.core import render
from workbench.ui.core.live import Snapshot
from workbench.ui.train.part import TrainHost, TrainPart
from workbench.workspace import Workspace

BUTTONS = 3
PRESSED = ("go on", "from start", "fork", "new run")  # what a button can do; the other kinds are said in words


def card_of(snapshot: Snapshot) -> Failure | None:
    """The card of a run that failed or died; None of any other."""
    return failures.card(snapshot.status, snapshot.log, snapshot.checkpoints, snapshot.settings)


class FailurePart(TrainPart):
    """The note under the head, and the buttons of a failed run."""

    def __init__(self) -> None:
        self.ending = gr.HTML(elem_id="run-ending")
        with gr.Row(elem_classes="buttons", visible=False) as self.row:
            self.buttons = [
                gr.Button(visible=False, variant="secondary" if place else "primary", elem_id=f"card-action-{place}")
                for place in range(BUTTONS)
            ]
        self.view = {"ending": self.ending, "row": self.row}
        self.view |= {f"button{place}": button for place, button in enumerate(self.buttons)}

    def values(self, snapshot: Snapshot) -> dict[str, Any]:
        card = card_of(snapshot)
        labels = [action.label for action in _pressable(card)] if card else []
        found: dict[str, Any] = {
            "ending": drawn(card, snapshot) if card else ending(snapshot),
            "row": (bool(labels), lambda: gr.update(visible=bool(labels))),
        }
        for place in range(BUTTONS):
            label = labels[place] if place < len(labels) else None
            look = {"visible": label is not None, "value": label or ""}
            found[f"button{place}"] = (label, lambda look=look: gr.update(**look))
        return found

    def wire(self, host: TrainHost) -> None:
        def press(run: Run, label: str) -> Run | TrainSettings:
            return pressed(host.workspace, host.shown(run.name), label)

        for button in self.buttons:
            host.act(button.click, press, [button], fills=True)


def pressed(workspace: Workspace, snapshot: Snapshot, label: str) -> Run | TrainSettings:
    """Do what the card's button of that label says: the run to show from then on, or settings for the form.

    Raises ConfigError when the card has no such button any more.
    """
    card, run = card_of(snapshot), snapshot.run
    action = next((one for one in _pressable(card) if one.label == label), None) if card else None
    if card is None or action is None:
        raise ConfigError(f"{run.name} has gone on meanwhile: look at it again")
    if action.kind in ("go on", "from start"):
        run.start(from_start=action.kind == "from start")
        return run
    settings = run.settings.changed(**action.settings)
    if action.kind == "new run" or card.checkpoint is None:
        return settings
    fork = run.fork(workspace, card.checkpoint, settings)
    fork.start()
    return fork


def _pressable(card: Failure) -> list[Action]:
    return [action for action in card.actions if action.kind in PRESSED][:BUTTONS]


# ---- as HTML


def drawn(card: Failure, snapshot: Snapshot) -> str:
    """The card: what happened, the run's own sentence, what is safe, what to do, the last lines."""
    said = [card.sentence, card.facts, f"{card.saved} {card.advice}", *_ways(card, snapshot)]
    lines = "".join(f"<p>{render.escaped(line)}</p>" for line in said if line)
    log = f"<details><summary>The log's last lines</summary>{render.log_box(card.tail)}</details>"
    return f'<div class="note bad card"><h3>{render.escaped(card.cause)}</h3>{lines}{log}</div>'


def _ways(card: Failure, snapshot: Snapshot) -> list[str]:
    """What no button of this page can do, in words."""
    model = snapshot.settings.model if snapshot.settings else ""
    words = {
        "log in": f"Terms and access: https://huggingface.co/{_source(model)}. To log in: hf auth login, in a terminal "
        "on the machine that trains; a token never goes through this page.",
        "free space": "Under Checkpoints below stands what can go; the folder named cache in the workspace holds only "
        "copies, which are made again.",
        "dataset": "The dataset is in the Dataset tab; under Check there it says what is wrong with which clip.",
    }
    return [words[action.kind] for action in card.actions if action.kind in words]


def _source(model: str) -> str:
    try:
        return find_model(model)[1].source
    except ConfigError:
        return model


def ending(snapshot: Snapshot) -> str:
    """What came of a run that did not fail; empty while it goes on."""
    status = snapshot.status
    if status.state is State.FINISHED and snapshot.lora:
        size = snapshot.lora.stat().st_size / 1e6
        link = render.download(snapshot.lora, f"{status.name}.safetensors")
        said = f"<b>The LoRA is ready.</b> {link} ({size:.1f} MB): it loads in diffusers as it is."
        return f'<div class="note good">{said}</div>'
    if status.state is State.STOPPED:
        return render.note(f"{status.message or 'Stopped as asked.'} {_saved(snapshot)}")
    return ""


def _saved(snapshot: Snapshot) -> str:
    saved = snapshot.checkpoints
    return f"The last checkpoint is of step {saved[-1]}." if saved else "No checkpoint was written yet."
