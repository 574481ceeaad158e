"""Does it fit? One line below the form of a new run: memory and time, before anything starts; the phases unfold.

Nothing is computed here: every change of the form asks fit, which loads no torch; measuring is a job. Not
covered: how the figures come about (fit), what the settings mean (form).
"""

from __future__ import annotations

from typing import Any

import gradio as gr

from workbench.errors import ConfigError, WorkbenchError
from workbench.fit import levels, measurement, rows
from workbench.fit.estimate import Fit, estimate
from workbench.fit.gpus import CHOICES, HERE
from workbench.fit.rows import PhaseRow
from workbench.runs.settings import TrainSettings
from workbench.ui.core import render
from workbench.ui.core.boundary import QUIET, handler, send, tick
from workbench.ui.core.form import Form
from workbench.workspace import Workspace

# Settings beside those of a measurement that change the result.
ALSO = (
    "device",
    "dataset",
    "regularization_dataset",
    "steps",
    "epochs",
    "gradient_accumulation",
    "evaluate_every",
    "held_out",
    "validation_dataset",
    "preview_every",
    "preview_count",
    "preview_steps",
    "preview_prompts",
    "preview_guidance",
    "save_every",
    "keep_checkpoints",
    "keep_every",
    "horizontal_flip",
    "fps",
)
SECONDS = 1.0
# Parts that have a colour of the charts' series, red being left for what does not fit; the others are grey.
COLOURS = {
    "weights": 1,
    "trained weights": 1,
    "LoRA": 2,
    "activations": 3,
    "VAE": 4,
    "backward pass": 5,
    "text encoder": 7,
    "optimizer": 8,
}


class FitPart:
    """The line, the two buttons, and the fold with the phases and the choice of a GPU."""

    def __init__(self, workspace: Workspace, form: Form[TrainSettings]) -> None:
        self.workspace, self.form = workspace, form
        self.line = gr.HTML(elem_id="fit-line")
        with gr.Row(elem_classes="buttons"):
            self.make = gr.Button("Make it fit", variant="primary", size="sm", visible=False, elem_id="make-it-fit")
            self.measure = gr.Button("Measure it", size="sm", elem_id="measure-fit")
        self.message = gr.HTML(elem_id="fit-said")
        with gr.Accordion("Memory and time, by phase", open=False, elem_id="fit-more"):
            self.table = gr.HTML(elem_id="fit-table")
            self.gpu = gr.Dropdown(
                list(CHOICES),
                value=HERE,
                label="My GPU",
                info=rows.GPU_HELP,
                allow_custom_value=True,
                elem_id="fit-gpu",
            )
            self.suit = gr.Button("Choose memory settings for this GPU", size="sm", elem_id="fit-suit")

    def wire(self, load: Any) -> None:
        """Connect the listeners; `load` is the page's load event."""
        inputs, outputs = [self.gpu, *self.form.inputs], [self.line, self.table, self.make]
        self.form.watch([*measurement.MATTERS, *ALSO], tick(self.look), inputs, outputs)
        for event in (load, self.gpu.change):
            send(event, tick(self.look), inputs, outputs)
        filled = [self.message, self.form.problems, *self.form.inputs]
        for button in (self.make, self.suit):
            self.form.follow(send(button.click, handler(self.make_it_fit), inputs, filled))
        timer = gr.Timer(SECONDS, active=False)
        progress = [self.message, self.measure, timer]
        send(self.measure.click, handler(self.start_or_stop), self.form.inputs, progress)
        followed = timer.tick(tick(self.follow), None, progress, **QUIET)
        send(followed.then, tick(self.look), inputs, outputs)
        load(tick(self.follow_if_alive), None, progress, **QUIET)

    # ---- listeners

    def look(self, gpu: str, *values: Any) -> list[Any]:
        """Line, table and the first button as the form's values want them."""
        try:
            found = estimate(self.workspace, self.form.parse(values), gpu or HERE)
        except WorkbenchError as error:
            text = "" if isinstance(error, ConfigError) and error.problems else render.escaped(str(error))
            return [f'<p class="fit-line">{text}</p>' if text else "", "", gr.update(visible=False)]
        return [line(found), table(found), gr.update(visible=not found.fits)]

    def make_it_fit(self, gpu: str, *values: Any) -> list[Any]:
        """Fill the form with the fastest settings that fit; say what was changed, or what would help."""
        found = levels.make_it_fit(self.workspace, self.form.parse(values), gpu or HERE)
        if found.settings is None:
            return [render.note(found.why, "bad"), *[gr.skip()] * (1 + len(self.form.inputs))]
        return [render.note(found.why, "good"), "", *self.form.write(found.changed)]

    def start_or_stop(self, *values: Any) -> list[Any]:
        """Measure what the form says; a measurement that is under way is stopped."""
        status = measurement.newest(self.workspace)
        if status is not None and status.state.alive:
            measurement.stop(status)
        else:
            measurement.start(self.workspace, self.form.parse(values))
        return self.follow()

    def follow(self) -> list[Any]:
        """How far the measurement is; the timer rests once it is over."""
        status = measurement.newest(self.workspace)
        alive = status is not None and status.state.alive
        label = "Stop measuring" if alive else "Measure it"
        return [message(rows.progress(status), alive), gr.update(value=label), gr.Timer(active=alive)]

    def follow_if_alive(self) -> Any:
        status = measurement.newest(self.workspace)
        return self.follow() if status is not None and status.state.alive else gr.skip()


# ---- as HTML


def line(fit: Fit) -> str:
    """The one line: red where it does not fit."""
    kind = "plain tight" if fit.tight else "good" if fit.fits else "bad"
    advice = f" {render.escaped(fit.advice)}" if fit.advice else ""
    return f'<div class="note fit-line {kind}"><b>{render.escaped(fit.sentence)}</b>{advice}</div>'


def message(text: str, going: bool) -> str:
    """What the measurement does, with a bar while it does."""
    if not text:
        return ""
    return f'<p class="hint">{render.escaped(text)}</p>' + (render.bar(None) if going else "")


def table(fit: Fit) -> str:
    """A bar a phase, of its parts, as long as the GPU's memory; then what is needed beside the GPU."""
    found = rows.rows(fit)
    names = sorted({name for row in found for name in row.parts} & set(COLOURS), key=lambda name: COLOURS[name])
    scale = max([1.0, *(row.share for row in found)])
    facts = "".join(f"<dt>{render.escaped(k)}</dt><dd>{render.escaped(v)}</dd>" for k, v in rows.other_needs(fit))
    keys = "".join(f'<span class="key"><i style="{_colour(name)}"></i>{render.escaped(name)}</span>' for name in names)
    keys += f'<span class="key"><i style="{_colour("")}"></i>others</span>'
    gpu = f"{fit.gpu.name}, {fit.gpu.memory_gb:.0f} GB"
    bars = "".join(_bar(row, scale) for row in found)
    return (
        f'<div class="fit-phases"><p class="hint">On {render.escaped(gpu)}. The line marks what it has.</p>{bars}'
        f'<div class="keys">{keys}</div><dl class="beside">{facts}</dl></div>'
    )


def _bar(row: PhaseRow, scale: float) -> str:
    total = sum(row.parts.values()) or 1.0
    parts = "".join(
        f'<i title="{render.escaped(f"{name} {rows.size(gb)}")}" '
        f'style="width:{100 * row.share / scale * gb / total:.2f}%;{_colour(name)}"></i>'
        for name, gb in row.parts.items()
    )
    kind = "" if row.fits else " over"
    how = "measured" if row.measured else "estimated"
    return (
        f'<div class="fit-phase{kind}"><span>{render.escaped(row.name)}</span><b>{rows.size(row.gb)}</b>'
        f'<div class="fit-bar" role="img" aria-label="{render.escaped(f"{how}: {row.made_of}")}">{parts}'
        f'<u style="left:{100 / scale:.2f}%"></u></div></div>'
    )


def _colour(part: str) -> str:
    return f"background:var(--series-{COLOURS[part]})" if part in COLOURS else "background:var(--wb-idle)"
