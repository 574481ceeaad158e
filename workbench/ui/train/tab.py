"""The Train tab: a form, the list of all runs, and the chosen run live. It only reads run folders and leaves commands.

Not covered: rendering a run (the parts), reading it (runs.snapshot), training itself.
"""

from __future__ import annotations

from typing import Any

import gradio as gr

from workbench.errors import ConfigError
from workbench.remote.backends import resolve_target, start_on
from workbench.remote.targets import LOCAL
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.runs.snapshot import RunSnapshot
from workbench.runs.sweeps import parse_values, sweep
from workbench.ui.core import render
from workbench.ui.core.applies import without_effect
from workbench.ui.core.boundary import QUIET, TICK, UPWARDS, Seen, handler, send, tell, tick, watch
from workbench.ui.core.form import Form, sentences
from workbench.ui.core.live import Live
from workbench.ui.train import run_view
from workbench.ui.train.checkpoints import CheckpointsPart
from workbench.ui.train.commands import CommandsPart
from workbench.ui.train.curves import RunCurvesPart
from workbench.ui.train.failure import FailurePart
from workbench.ui.train.fit import FitPart
from workbench.ui.train.gpus import GpusPart
from workbench.ui.train.part import NO_RUN, TrainHost, TrainPart
from workbench.ui.train.previews import PreviewsPart
from workbench.ui.train.queue import QueuePart
from workbench.ui.train.target import TargetPart
from workbench.ui.train.tracker_view import TrackerView
from workbench.workspace import Workspace

SWEEP_HELP = (
    "SETTING=VALUE, VALUE, one setting a line: every combination becomes a run of its own, named after its values, "
    "and they train one after the other. Empty: one run."
)
# What is different with nearly every step of a run.
QUICK = ("head", "log", "curves.main")


class TrainTab:
    """Builds the tab's components; `wire` connects them once the page's timer and memory exist."""

    def __init__(self, workspace: Workspace, live: Live) -> None:
        self.workspace, self.live = workspace, live
        self.parts: dict[str, TrainPart] = {}
        with gr.Row():
            with gr.Column(scale=4, min_width=330, elem_classes="side"):
                self.runs = gr.Radio(
                    self._choices(),
                    label="Runs",
                    value=live.default(),
                    visible=bool(self._choices()),
                    elem_classes="runs",
                    elem_id="runs",
                )
                self.parts["queue"] = QueuePart()
                with gr.Accordion("New run", open=True, elem_id="new-run"):
                    self._build_new_run()
            with gr.Column(scale=9, min_width=420):
                self.head = gr.HTML(elem_id="run-head")
                self.parts["failure"] = FailurePart()
                self.commands = CommandsPart()
                self.parts["commands"] = self.commands
                with gr.Column(visible=False) as self.details:
                    self.parts |= {
                        "previews": PreviewsPart(),
                        "curves": RunCurvesPart(),
                        "checkpoints": CheckpointsPart(),
                    }
                    with gr.Accordion("Log", open=False):
                        self.log = gr.HTML(elem_id="run-log")
                    self.tracker = TrackerView(workspace)

    def _build_new_run(self) -> None:
        self.name = gr.Textbox(
            "",
            label="Name of the run",
            info="Empty: the dataset's name.",
            placeholder="my-first-lora",
            elem_id="run-name",
        )
        self.form = Form(TrainSettings, self.workspace, TrainSettings(), without_effect)
        self.fit = FitPart(self.workspace, self.form)
        with gr.Accordion("Try several values", open=False, elem_id="sweep"):
            self.values = gr.Textbox(
                "",
                label="Values to try",
                info=SWEEP_HELP,
                placeholder="learning_rate=1e-4, 3e-4",
                lines=2,
                elem_id="sweep-values",
            )
        self.gpus = GpusPart(self.form)
        self.target = TargetPart(self.workspace)
        self.start = gr.Button("Start training", variant="primary", elem_id="start-training")

    @property
    def view(self) -> dict[str, Any]:
        """Everything that follows the chosen run, by the names that `_values` uses."""
        own = {name: getattr(self, name) for name in ("runs", "head", "details", "log")}
        return own | {f"{part}.{name}": one for part, each in self.parts.items() for name, one in each.view.items()}

    def wire(self, timer: gr.Timer, chosen: gr.BrowserState, load: Any) -> None:
        """Connect the listeners. `chosen` remembers the run over reloads; `load` is the page's load event."""
        seen = gr.State(Seen())
        outputs = list(self.view.values())
        load(tick(self._tick), [chosen, seen], outputs, **TICK)
        watch(timer, self._look, [chosen, seen], self.view, QUICK)
        self.runs.input(handler(self._choose), [self.runs, seen], [chosen, *outputs], **QUIET)
        started = send(
            self.start.click,
            handler(self._start),
            [self.name, self.values, self.target.choice, *self.form.inputs],
            [chosen, self.form.problems, *outputs],
            before=[seen],
        )
        started.then(None, js=UPWARDS)
        self.form.wire(load)
        self.fit.wire(load)
        self.gpus.wire()
        self.target.wire(load)
        host = TrainHost(self.live, self.form, chosen, seen, outputs, self._show)
        for part in self.parts.values():
            part.wire(host)
        self.tracker.wire(chosen)

    # ---- showing

    def _choices(self) -> list[tuple[str, str]]:
        waiting = self.live.waiting()
        return [
            (f"{status.name}  ·  {'waiting' if status.name in waiting else status.state}", status.name)
            for status in self.live.statuses()
        ]

    def _look(self, chosen: str | None, seen: Seen) -> dict[str, Any] | None:
        if seen.late(chosen):
            return None
        return self._values(self.live.snapshot(chosen) or self.live.snapshot(self.live.default()))

    def _tick(self, chosen: str | None, seen: Seen) -> Any:
        values = self._look(chosen, seen)
        return gr.skip() if values is None else seen.changed(self.view, values)

    def _show(self, name: str, seen: Seen) -> list[Any]:
        """The run of that name, all of it, as it is this very moment."""
        seen.choose(name)
        self.live.statuses(now=True)
        return seen.changed(self.view, self._values(self.live.snapshot(name, now=True)))

    def _values(self, snapshot: RunSnapshot | None) -> dict[str, Any]:
        """Output values by component; costly ones with the signature that tells whether they changed."""
        choices = self._choices()
        name = snapshot.status.name if snapshot else None
        values: dict[str, Any] = {
            "runs": ((choices, name), lambda: gr.update(choices=choices, value=name, visible=bool(choices)))
        }
        if snapshot is None:
            return values | {"head": run_view.empty()}
        values |= {
            "head": run_view.head(snapshot),
            "details": (True, lambda: gr.update(visible=True)),
            "log": render.log_box(snapshot.log),
        }
        for part, each in self.parts.items():
            values |= {f"{part}.{name}": value for name, value in each.values(snapshot).items()}
        return values

    def _choose(self, name: str, seen: Seen) -> list[Any]:
        return [name, *self._show(name, seen)]

    # ---- starting

    def _start(self, seen: Seen, name: str, tried: str, target: str, *values: Any) -> list[Any]:
        try:
            resolve_target(self.workspace, target or LOCAL)
            runs = self._created(name.strip() or None, tried, self.form.parse(values))
        except ConfigError as error:
            return [gr.skip(), sentences(error, TrainSettings), *[gr.skip()] * len(self.view)]
        for run in runs:
            start_on(self.workspace, run, target or LOCAL)
        if len(runs) > 1:
            tell(f"{len(runs)} runs are in the queue; each begins when the one before it is over.", 8)
        return [runs[0].name, "", *self._show(runs[0].name, seen)]

    def _created(self, name: str | None, tried: str, settings: TrainSettings) -> list[Run]:
        """One run, or one for every combination of the values to try. Raises ConfigError, CannotWrite."""
        lines = [line for line in tried.splitlines() if line.strip()]
        if not lines:
            return [Run.create(self.workspace, settings, name)]
        return sweep(self.workspace, settings, parse_values(lines), name)

    def sample_settings(self, chosen: str | None) -> dict[str, Any]:
        """What the Sample tab starts with to try a run's LoRA. Raises ConfigError when there is no run."""
        snapshot = self.live.snapshot(chosen) or self.live.snapshot(self.live.default())
        if snapshot is None:
            raise ConfigError(NO_RUN)
        settings = snapshot.run.settings
        shape = {name: getattr(settings, name) for name in ("frames", "height", "width")}
        prompts = list(snapshot.previews.prompts.values())
        name, saved = snapshot.name, snapshot.saved
        lora = name if snapshot.run.lora or not saved else f"runs/{name}@{saved[-1]}"
        return {"model": settings.model, "prompt": prompts[0] if prompts else "", "loras": [lora], **shape}
