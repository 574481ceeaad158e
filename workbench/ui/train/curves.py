"""The curves of a run: the loss and the change of the output in sight, the others when somebody opens them.

A chart is sent again when it would look different, and those that are folded away not at all. Not covered: what is in a
chart (runs.analysis.curve_charts).
"""

from __future__ import annotations

from typing import Any

import gradio as gr

from workbench.runs.analysis import curve_charts as charts
from workbench.ui.core import render
from workbench.ui.core.boundary import QUIET, TICK, Seen, handler, tick
from workbench.ui.core.live import Snapshot
from workbench.ui.train.part import TrainHost, TrainPart

DRAWN = 300  # steps that can be told apart in a chart
SECONDS = 2.0  # between looks at them while they are open


class CurvesPart(TrainPart):
    """Loss and leak; by noise level, learning rate and the loss as it came below."""

    def __init__(self) -> None:
        gr.HTML('<h3 class="part">Curves</h3>')
        self.main = gr.HTML(elem_id="loss-chart")
        with gr.Accordion("By noise level, learning rate, loss as it came", open=False, elem_id="more-curves") as fold:
            self.more = gr.HTML(elem_id="more-charts")
        self.fold = fold
        self.view = {"main": self.main}

    def values(self, snapshot: Snapshot) -> dict[str, Any]:
        return {"main": (mark(snapshot), lambda: main(snapshot))}

    def wire(self, host: TrainHost) -> None:
        seen, timer = gr.State(Seen()), gr.Timer(SECONDS, active=False)

        def look(chosen: str | None, seen: Seen) -> Any:
            snapshot = host.shown(chosen)
            return seen.changed(["more"], {"more": (mark(snapshot), lambda: folded(snapshot))})[0]

        def opened(chosen: str | None, seen: Seen) -> list[Any]:
            seen.choose(chosen)
            return [look(chosen, seen), gr.Timer(active=True)]

        self.fold.expand(handler(opened), [host.chosen, seen], [self.more, timer], **QUIET)
        self.fold.collapse(lambda: ["", gr.Timer(active=False)], None, [self.more, timer], **QUIET)
        timer.tick(tick(look), [host.chosen, seen], self.more, **TICK)


def main(snapshot: Snapshot) -> str:
    """The two charts that say most."""
    drawn = charts.loss(snapshot.curves, snapshot.verdict.best_step) + charts.changes(snapshot.curves)
    return (
        f'<div class="two-charts">{drawn}</div>'
        if drawn
        else render.note("The curves begin with the first step.", "empty")
    )


def mark(snapshot: Snapshot) -> tuple[Any, ...]:
    """What changes when the charts would look different: a measurement, or a step the width of a pixel or two."""
    curves = snapshot.curves
    step = curves.last.get("step", 0)
    width = 1 << max(0, (step // DRAWN).bit_length() - 1)
    measured = (len(curves.held_out), len(curves.changes), snapshot.verdict.best_step)
    return (snapshot.run.name, snapshot.status.state.alive, *measured, step // width)


def folded(snapshot: Snapshot) -> str:
    """Small multiples by timestep, then the others."""
    curves = snapshot.curves
    bands = charts.bands(curves)
    by_noise = (
        f'<div class="heading">Loss by timestep, little noise to much {charts.band_legend()}</div>'
        f'<div class="multiples">{"".join(bands)}</div>'
    )
    others = charts.loss_as_it_came(curves) + charts.learning_rate(curves)
    return (by_noise if bands else "") + f'<div class="overlaid">{others}</div>'
