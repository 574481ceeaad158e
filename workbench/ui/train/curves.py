"""The curves of a run: the loss and the change of the output in sight, the others in a fold.

A chart is sent again when it would look different, and those in a closed fold not at all. Not covered: what is in a
chart (runs.analysis.curve_charts).
"""

from __future__ import annotations

from typing import Any

import gradio as gr

from workbench.runs.analysis import curve_charts
from workbench.runs.snapshot import RunSnapshot
from workbench.ui.core import render
from workbench.ui.core.boundary import QUIET, TICK, Seen, handler, tick
from workbench.ui.train.part import TrainHost, TrainPart

DISTINCT = 300  # steps that can be told apart in a chart
SECONDS = 2.0  # between updates while they are open


class RunCurvesPart(TrainPart):
    """Loss and change of the output; by noise level, learning rate and the loss per step below."""

    def __init__(self) -> None:
        gr.HTML('<h3 class="part">Curves</h3>')
        self.main = gr.HTML(elem_id="loss-chart")
        with gr.Accordion("By noise level, learning rate, loss per step", open=False, elem_id="more-curves") as fold:
            self.more = gr.HTML(elem_id="more-charts")
        self.fold = fold
        self.view = {"main": self.main}

    def values(self, snapshot: RunSnapshot) -> dict[str, Any]:
        return {"main": (mark(snapshot), lambda: main(snapshot))}

    def wire(self, host: TrainHost) -> None:
        seen, timer = gr.State(Seen()), gr.Timer(SECONDS, active=False)

        def look(chosen: str | None, seen: Seen) -> Any:
            snapshot = host.snapshot(chosen)
            return seen.changed(["more"], {"more": (mark(snapshot), lambda: folded(snapshot))})[0]

        def opened(chosen: str | None, seen: Seen) -> list[Any]:
            seen.choose(chosen)
            return [look(chosen, seen), gr.Timer(active=True)]

        self.fold.expand(handler(opened), [host.chosen, seen], [self.more, timer], **QUIET)
        self.fold.collapse(lambda: ["", gr.Timer(active=False)], None, [self.more, timer], **QUIET)
        timer.tick(tick(look), [host.chosen, seen], self.more, **TICK)


def main(snapshot: RunSnapshot) -> str:
    """The two charts that say most."""
    charts = curve_charts.loss(snapshot.curves, snapshot.best_step) + curve_charts.changes(snapshot.curves)
    if not charts:
        return render.note(curve_charts.EMPTY, "empty")
    return f'<div class="two-charts">{charts}</div>'


def mark(snapshot: RunSnapshot) -> tuple[Any, ...]:
    """What changes when the charts would look different: a measurement, or a step the width of a pixel or two."""
    curves = snapshot.curves
    step = curves.last.get("step", 0)
    width = 1 << max(0, (step // DISTINCT).bit_length() - 1)
    measured = (len(curves.held_out), len(curves.changes), snapshot.best_step)
    return (snapshot.name, snapshot.status.state.alive, *measured, step // width)


def folded(snapshot: RunSnapshot) -> str:
    """By timestep, then the others."""
    others = curve_charts.loss_per_step(snapshot.curves) + curve_charts.learning_rate(snapshot.curves)
    return curve_charts.bands(snapshot.curves) + f'<div class="overlaid">{others}</div>'
