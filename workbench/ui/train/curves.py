"""The curves of a run: the loss, by noise level as well, and the change of the output in sight, the others in a fold.

A chart is sent again when it would look different, and those in a closed fold not at all.
"""

from __future__ import annotations

from typing import Any

import gradio as gr

from workbench.runs.analysis.curves import NO_CURVES
from workbench.runs.snapshot import RunSnapshot
from workbench.ui.core import render
from workbench.ui.core.boundary import QUIET
from workbench.ui.core.view import LiveView
from workbench.ui.train.part import TrainHost, TrainPart

DISTINCT = 300  # steps that can be told apart in a chart
LAST_RUN = "workbench-last-run"  # where the browser keeps its name
# What the browser asked for before Gradio started (before_gradio), and whose curves to ask for the next time.
IN_BROWSER = f"""window.workbenchCurves?.then((html) => {{ if (html && !props.value) props.value = html; }});
window.workbenchCurves = null;
const keep = () => {{
  const owner = /data-owner="([^"]+)"/.exec(props.value ?? '');
  if (owner) localStorage.setItem('{LAST_RUN}', owner[1]);
}};
watch('value', keep);
keep();"""
SECONDS = 2.0  # between updates while they are open


class RunCurvesPart(TrainPart):
    """Loss, by noise level as well, and change of the output; the others in a fold."""

    def __init__(self) -> None:
        gr.HTML('<h3 class="part">Curves</h3>')
        self.main = gr.HTML(elem_id="loss-chart", js_on_load=IN_BROWSER)
        with gr.Accordion(
            "Loss by noise level in detail, learning rate, loss per step", open=False, elem_id="more-curves"
        ) as self.fold:
            self.more = gr.HTML(elem_id="more-charts")
        self.components = [self.main]

    def values(self, snapshot: RunSnapshot) -> dict[Any, Any]:
        return {self.main: (mark(snapshot), lambda: main(snapshot))}

    def wire(self, host: TrainHost) -> None:
        def read(chosen: str | None) -> dict[Any, Any]:
            snapshot = host.snapshot(chosen)
            return {self.more: (mark(snapshot), lambda: folded(snapshot))}

        timer = gr.Timer(SECONDS, active=False)
        LiveView([self.more], read, [host.chosen]).follow(timer, self.fold.expand)
        self.fold.expand(lambda: gr.Timer(active=True), None, timer, **QUIET)
        self.fold.collapse(lambda: gr.Timer(active=False), None, timer, **QUIET)


def main(snapshot: RunSnapshot) -> str:
    """The charts that say most."""
    curves = snapshot.curves
    charts = curves.loss_chart(snapshot.best_step) + curves.noise_level_chart() + curves.change_chart()
    if not charts:
        return render.note(NO_CURVES, "empty")
    return f'<div class="main-charts">{charts}</div>'


def mark(snapshot: RunSnapshot) -> tuple[Any, ...]:
    """What changes when the charts would look different: a measurement, or a step the width of a pixel or two."""
    curves = snapshot.curves
    step = curves.last.get("step", 0)
    width = 1 << max(0, (step // DISTINCT).bit_length() - 1)
    measured = (len(curves.held_out), len(curves.changes), snapshot.best_step)
    return (snapshot.name, snapshot.status.state.alive, *measured, step // width)


def folded(snapshot: RunSnapshot) -> str:
    """By noise level, then the others."""
    curves = snapshot.curves
    others = curves.step_loss_chart() + curves.learning_rate_chart()
    return curves.band_charts() + f'<div class="overlaid">{others}</div>'
