"""The checkpoints of a run: which exist, why they are kept, which go; and forks, which begin at one.

Nothing is removed or started before the page has listed it: the second button does exactly that, and where it cannot be
done any more, it says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import gradio as gr

from workbench.display import html
from workbench.display.quantities import byte_size
from workbench.errors import ConfigError
from workbench.runs import checkpoints
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.runs.snapshot import RunSnapshot
from workbench.settings import specs, value_text
from workbench.ui.core import render
from workbench.ui.core.boundary import warn
from workbench.ui.core.form import sentences
from workbench.ui.core.widgets import Confirm
from workbench.ui.train.part import TrainHost, TrainPart

NEWEST = ("the newest", "")
REMOVE, COMPARE = "Remove old checkpoints now", "What would change"
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
            self.confirm = Confirm("Remove them", "Keep them", "removing", "remove-for-good")
            self.listed = gr.State([])  # the run's name, and the steps that the question is about
            gr.HTML(f'<h4 class="section">Go on differently</h4><p class="hint">{FORK_HELP}</p>')
            with gr.Row(elem_classes="choosing"):
                self.name = gr.Textbox("", label="Name of the fork", placeholder="this run's name, numbered", scale=1)
                self.compare = gr.Button(COMPARE, elem_id="compare-fork")
            self.differences = gr.HTML(elem_id="fork-differences")
            self.fork = gr.Button("Start the fork", variant="primary", visible=False, elem_id="start-fork")
            self.compared = gr.State([])  # the run's name, step and settings of the fork that is listed
        self.components = [self.table, self.step, *self.confirm.components, self.differences, self.fork]

    def values(self, snapshot: RunSnapshot) -> dict[Any, Any]:
        name, saved = snapshot.name, snapshot.saved
        choices = [NEWEST, *((f"step {step}", str(step)) for step in reversed(saved))]
        # What was shown of another run goes when this one is chosen.
        emptied = dict.fromkeys((self.confirm.note, self.differences), (name, lambda: ""))
        hidden = dict.fromkeys((self.confirm.row, self.fork), (name, lambda: gr.update(visible=False)))
        return {
            self.table: ((name, snapshot.checkpoints), lambda: table(snapshot)),
            self.step: ((name, saved), lambda: gr.update(choices=choices)),
            **emptied,
            **hidden,
        }

    def wire(self, host: TrainHost) -> None:
        def fork(run: Run, compared: list[Any], step: str, name: str, settings: TrainSettings) -> Run | None:
            try:
                at = step_of_fork(run, compared, step, settings)
            except ConfigError as error:  # about no field of the form, at whose end it would be shown
                warn(str(error), [self.fork])
                return None
            made = run.fork(host.workspace, at, settings, name.strip() or None)
            made.start()
            return made

        def compare(snapshot: RunSnapshot, step: str, *values: Any) -> list[Any]:
            return differences(snapshot, step, host.form.read(values))

        host.act(self.star.click, star, [self.step])
        host.act(self.unstar.click, unstar, [self.step])
        host.ask(self.remove.click, about_to_go, [], [*self.confirm.components, self.listed])
        self.confirm.wire(host.act(self.confirm.yes.click, remove, [self.listed]))
        listed = [self.differences, self.fork, self.compared]
        host.ask(self.compare.click, compare, [self.step, *host.form.inputs], listed)
        host.act(self.fork.click, fork, [self.compared, self.step, self.name], form=host.form)


# ---- commands


def chosen_step(run: Run, step: str | None) -> int:
    """The step that the field says; empty is the newest. Raises ConfigError."""
    saved = run.checkpoints
    if not saved:
        raise ConfigError(f"{run.name} has no checkpoint yet: press Save now, or wait for the first")
    text = step_text(step)
    if text and (text not in map(str, saved)):
        known = ", ".join(map(str, saved))
        raise ConfigError(f"checkpoint is {text[:20]!r}, which {run.name} does not have: choose one of {known}")
    return int(text) if text else saved[-1]


def step_text(step: str | None) -> str:
    """The step in what the field says, "" for the newest."""
    return (step or "").removeprefix("step").strip()


def star(run: Run, step: str) -> str:
    found = chosen_step(run, step)
    checkpoints.star(run.folder, found)
    return f"The checkpoint of step {found} is kept for good."


def unstar(run: Run, step: str) -> str:
    found = chosen_step(run, step)
    checkpoints.unstar(run.folder, found)
    return f"The checkpoint of step {found} goes with the others."


def about_to_go(snapshot: RunSnapshot) -> list[Any]:
    """What the rules would remove now, before anything is."""
    settings = snapshot.run.settings
    going = checkpoints.doomed(snapshot.run.folder, settings.keep_checkpoints, settings.keep_every)
    if not going:
        return [*Confirm.question(render.note("Nothing would go: every checkpoint is kept by a rule."), False), []]
    steps = ", ".join(str(one.step) for one in going)
    size = byte_size(sum(one.bytes for one in going))
    text = f"{len(going)} would go, {size}: the checkpoints of step {steps}."
    return [*Confirm.question(render.note(text, "bad")), [snapshot.name, [one.step for one in going]]]


def remove(run: Run, listed: Sequence[Any]) -> str:
    """Remove the listed ones. Raises ConfigError when the run is another by now, or keeps one of them."""
    name, steps = listed or ("", [])
    keep, every = run.settings.keep_checkpoints, run.settings.keep_every
    going = [one.step for one in checkpoints.doomed(run.folder, keep, every)]
    kept = [step for step in steps if step in run.checkpoints and step not in going]
    if name != run.name or kept:
        which = f"the checkpoint of step {kept[0]} is kept by now" if kept else f"what was listed is not of {run.name}"
        raise ConfigError(f"nothing was removed: {which}. Press {REMOVE!r} again to see what would go")
    gone = checkpoints.retire(run.folder, keep, every, only=steps)
    return f"{len(gone)} checkpoints removed, {byte_size(sum(one.bytes for one in gone))}."


def step_of_fork(run: Run, compared: Sequence[Any], step: str, settings: TrainSettings) -> int:
    """The step of the fork that is listed. Raises ConfigError when something else is asked for than was listed."""
    name, at, before = compared or ("", 0, {})
    if name != run.name or step_text(step) not in ("", str(at)) or before != settings.model_dump(mode="json"):
        raise ConfigError(f"nothing was started: run, step or form is not what was listed. Press {COMPARE!r} again")
    return chosen_step(run, str(at))


# ---- as HTML


def table(snapshot: RunSnapshot) -> str:
    """A line a checkpoint, the newest first: step, size, why it is kept or that it goes."""
    rows = [(f"step {one.step}", one.size, ", ".join(one.reasons)) for one in reversed(snapshot.checkpoints)]
    return html.table(["checkpoint", "size", ""], rows) or render.note("No checkpoint was written yet.", "empty")


def differences(snapshot: RunSnapshot, step: str, form: Mapping[str, Any]) -> list[Any]:
    """What a fork with the form's settings would change, whether its button is there, and what it is about."""
    at, old = chosen_step(snapshot.run, step), snapshot.run.settings.model_dump(mode="json")
    changed = [spec for spec in specs(TrainSettings) if form[spec.name] != old[spec.name]]
    rows = [[spec.title, value_text(old[spec.name]), value_text(form[spec.name])] for spec in changed]
    try:
        settings = snapshot.run.settings.changed(**{spec.name: form[spec.name] for spec in changed})
    except ConfigError as error:
        return [sentences(error, TrainSettings), gr.update(visible=False), []]
    text = html.table([f"from step {at} on", snapshot.name, "the fork"], rows) or render.note(
        f"The form has this run's settings: the fork goes on from step {at} with nothing changed."
    )
    button = gr.update(visible=True, value=f"Fork from step {at} and start")
    return [text, button, [snapshot.name, at, settings.model_dump(mode="json")]]
