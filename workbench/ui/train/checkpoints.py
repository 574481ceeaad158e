"""The checkpoints of a run: which exist, why they are kept, which go; and forks, which begin at one.

Nothing is removed or started before the page has listed it: the second button does it. Not covered: the rules
(runs.retention, runs.forks).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import gradio as gr

from workbench import html
from workbench.errors import ConfigError
from workbench.runs import retention
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.runs.snapshot import RunSnapshot
from workbench.settings import specs, value_text
from workbench.ui.core import render
from workbench.ui.core.boundary import QUIET
from workbench.ui.core.form import sentences
from workbench.ui.train.part import TrainHost, TrainPart

NEWEST = ("the newest", "")
REMOVE = "Remove old checkpoints now"
FORK_HELP = (
    "A fork is a new run that goes on from a checkpoint with other settings or clips. Copy this run's settings to the "
    "form, change there what shall be different, choose the step, and look at what would change."
)


class CheckpointsPart(TrainPart):
    """A table; star, remove, fork."""

    def __init__(self) -> None:
        with gr.Accordion("Checkpoints", open=False, elem_id="checkpoints"):
            self.table = gr.HTML(elem_id="checkpoint-table")
            with gr.Row(elem_classes="choosing"):
                self.step = gr.Dropdown(
                    [NEWEST], value="", label="Checkpoint", allow_custom_value=True, elem_id="checkpoint-step"
                )
                self.star = gr.Button("Star", elem_id="star-checkpoint")
                self.unstar = gr.Button("Unstar", elem_id="unstar-checkpoint")
                self.remove = gr.Button(REMOVE, elem_id="remove-checkpoints")
            self.removing = gr.HTML(elem_id="removing")
            with gr.Row(elem_classes="buttons", visible=False) as self.confirm:
                self.removed = gr.Button("Remove them", variant="stop", elem_id="remove-for-good")
                self.kept = gr.Button("Keep them")
            gr.HTML(f'<h4 class="section">Go on differently</h4><p class="hint">{FORK_HELP}</p>')
            with gr.Row(elem_classes="choosing"):
                self.name = gr.Textbox("", label="Name of the fork", placeholder="this run's name, numbered", scale=1)
                self.compare = gr.Button("What would change", elem_id="compare-fork")
            self.differences = gr.HTML(elem_id="fork-differences")
            self.fork = gr.Button("Start the fork", variant="primary", visible=False, elem_id="start-fork")
        names = ("table", "step", "removing", "confirm", "differences", "fork")
        self.view = {name: getattr(self, name) for name in names}

    def values(self, snapshot: RunSnapshot) -> dict[str, Any]:
        name, saved = snapshot.name, snapshot.saved
        choices = [NEWEST, *((f"step {step}", str(step)) for step in reversed(saved))]

        def hidden() -> Any:  # what was shown of another run
            return gr.update(visible=False)

        return {
            "table": ((name, snapshot.checkpoints), lambda: table(snapshot)),
            "step": ((name, saved), lambda: gr.update(choices=choices)),
            "removing": (name, lambda: ""),
            "confirm": (name, hidden),
            "differences": (name, lambda: ""),
            "fork": (name, hidden),
        }

    def wire(self, host: TrainHost) -> None:
        def fork(run: Run, step: str, name: str, *values: Any) -> Run:
            made = run.fork(host.workspace, chosen_step(run, step), host.form.parse(values), name.strip() or None)
            made.start()
            return made

        def compare(snapshot: RunSnapshot, step: str, *values: Any) -> list[Any]:
            return differences(snapshot, step, host.form.read(values))

        host.act(self.star.click, star, [self.step])
        host.act(self.unstar.click, unstar, [self.step])
        host.ask(self.remove.click, about_to_go, [], [self.removing, self.confirm])
        for event in (host.act(self.removed.click, remove).then, self.kept.click):
            event(lambda: ["", gr.update(visible=False)], None, [self.removing, self.confirm], **QUIET)
        host.ask(self.compare.click, compare, [self.step, *host.form.inputs], [self.differences, self.fork])
        host.act(self.fork.click, fork, [self.step, self.name, *host.form.inputs])


# ---- commands


def chosen_step(run: Run, step: str | None) -> int:
    """The step that the field says; empty is the newest. Raises ConfigError."""
    saved = run.checkpoints
    if not saved:
        raise ConfigError(f"{run.name} has no checkpoint yet: press Save now, or wait for the first")
    text = (step or "").removeprefix("step").strip()
    if text and (text not in map(str, saved)):
        known = ", ".join(map(str, saved))
        raise ConfigError(f"checkpoint is {text[:20]!r}, which {run.name} does not have: choose one of {known}")
    return int(text) if text else saved[-1]


def star(run: Run, step: str) -> str:
    found = chosen_step(run, step)
    retention.star(run.folder, found)
    return f"The checkpoint of step {found} is kept for good."


def unstar(run: Run, step: str) -> str:
    found = chosen_step(run, step)
    retention.unstar(run.folder, found)
    return f"The checkpoint of step {found} goes with the others."


def about_to_go(snapshot: RunSnapshot) -> list[Any]:
    """What the rules would remove now, before anything is."""
    settings = snapshot.run.settings
    going = retention.doomed(snapshot.run.folder, settings.keep_checkpoints, settings.keep_every)
    if not going:
        return [render.note("Nothing would go: every checkpoint is kept by a rule."), gr.update(visible=False)]
    steps = ", ".join(str(one.step) for one in going)
    size = sum(one.bytes for one in going) / 1e6
    text = f"{len(going)} would go, {size:.1f} MB: the checkpoints of step {steps}."
    return [render.note(text, "bad"), gr.update(visible=True)]


def remove(run: Run) -> str:
    settings = run.settings
    gone = retention.retire_now(run.folder, settings.keep_checkpoints, settings.keep_every)
    return f"{len(gone)} checkpoints removed, {sum(one.bytes for one in gone) / 1e6:.1f} MB."


# ---- as HTML


def table(snapshot: RunSnapshot) -> str:
    """A line a checkpoint, the newest first: step, size, why it is kept or that it goes."""
    rows = [(f"step {one.step}", one.size, ", ".join(one.reasons)) for one in reversed(snapshot.checkpoints)]
    return html.table(["checkpoint", "size", ""], rows) or render.note("No checkpoint was written yet.", "empty")


def differences(snapshot: RunSnapshot, step: str, form: Mapping[str, Any]) -> list[Any]:
    """What a fork with the form's settings would change, and whether its button is there."""
    at, old = chosen_step(snapshot.run, step), snapshot.run.settings.model_dump(mode="json")
    changed = [spec for spec in specs(TrainSettings) if form[spec.name] != old[spec.name]]
    rows = [[spec.title, value_text(old[spec.name]), value_text(form[spec.name])] for spec in changed]
    try:
        snapshot.run.settings.changed(**{spec.name: form[spec.name] for spec in changed})
    except ConfigError as error:
        return [sentences(error, TrainSettings), gr.update(visible=False)]
    text = html.table([f"from step {at} on", snapshot.name, "the fork"], rows) or render.note(
        f"The form has this run's settings: the fork goes on from step {at} with nothing changed."
    )
    return [text, gr.update(visible=True, value=f"Fork from step {at} and start")]
