"""The Train tab: a form, the list of runs, and the chosen run live. It only reads run folders and leaves commands."""

from __future__ import annotations

from typing import Any

import gradio as gr

from workbench.errors import ConfigError
from workbench.remote.targets import LOCAL, resolve_target, start_on
from workbench.runs.checks import check
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.runs.sweeps import checked, created, parse_values
from workbench.ui.core import render
from workbench.ui.core.boundary import EACH, QUIET, UPWARDS, tell
from workbench.ui.core.live import Live
from workbench.ui.core.view import LiveView, visible
from workbench.ui.core.widgets import Confirm
from workbench.ui.train.checkpoints import CheckpointsPart
from workbench.ui.train.curves import RunCurvesPart
from workbench.ui.train.fit import FitPart
from workbench.ui.train.head import HeadPart
from workbench.ui.train.machine import MachinePart
from workbench.ui.train.part import NO_RUN, TrainHost, TrainPart
from workbench.ui.train.previews import PreviewsPart
from workbench.ui.train.queue import QueuePart
from workbench.ui.train.recipes import RecipesPart
from workbench.ui.train.removal import NotesPart, RemovedRuns
from workbench.ui.train.run_form import RunForm
from workbench.ui.train.run_list import RunList
from workbench.ui.train.sweep import FORM, sweep_fields
from workbench.ui.train.tracker_view import TrackerView
from workbench.workspace import Workspace


class TrainTab:
    """Builds the tab's components; `wire` connects them once the page's timer and memory exist."""

    def __init__(self, workspace: Workspace, live: Live) -> None:
        self.workspace, self.live = workspace, live
        with gr.Row():
            with gr.Column(scale=2, min_width=260, elem_classes="side"):
                self.runs = RunList(live)
                queue = QueuePart()
                self.removed = RemovedRuns(workspace)
            with gr.Column(scale=7, min_width=420):
                with gr.Accordion("New run", open=False, elem_id="new-run") as self.new:
                    self._build_new_run()
                self.head = HeadPart()
                with gr.Column(visible=False, elem_id="run-details") as self.details:
                    with gr.Row(elem_classes="run-body"):
                        with gr.Column(scale=3, min_width=460):
                            previews = PreviewsPart(workspace)
                        with gr.Column(scale=2, min_width=360):
                            self.curves = RunCurvesPart()
                    self.head.more()
                    checkpoints = CheckpointsPart()
                    notes = NotesPart(live)
                    with gr.Accordion("Log", open=False):
                        self.log = gr.HTML(elem_id="run-log")
                    self.tracker = TrackerView(workspace)
        self.parts: list[TrainPart] = [queue, self.head, previews, self.curves, checkpoints, notes]

    def _build_new_run(self) -> None:
        with gr.Row(elem_classes="fields"):
            self.recipes = RecipesPart(self.workspace)
            self.name = gr.Textbox(
                "",
                label="Name of the run",
                info="Empty: the dataset's name.",
                placeholder="my-first-lora",
                elem_id="run-name",
            )
        self.recipes.more()
        self.form = RunForm(self.workspace)
        self.form.fold = self.new
        self.fit = FitPart(self.workspace, self.form)
        with gr.Row(elem_classes="folds"):
            self.fit.more()
            with gr.Accordion("Try several values", open=False, elem_id="sweep"):
                self.values = sweep_fields(self.workspace)
        self.machine = MachinePart(self.workspace, self.form)
        self.form.problems_here()
        self.confirm = Confirm("Start anyway", "Keep editing", "fit-question", "start-anyway")
        with self.confirm.row:
            self.fit_first = gr.Button("Fit to GPU", variant="primary", elem_id="fit-first")
        self.start = gr.Button("Start training", variant="primary", elem_id="start-training")

    def wire(self, timer: gr.Timer, chosen: gr.BrowserState, opened: Any, load: Any) -> None:
        """Connect the listeners. `chosen` remembers the run over reloads.

        opened: the event when a person opens the tab;  load: the page's load event
        """
        own = [self.runs.component, self.details, self.log, *self.removed.components]
        components = own + [component for part in self.parts for component in part.components]
        # What is different with nearly every step of a run.
        quick = [self.head.head, self.head.figures, self.log, *self.curves.components]
        typed = [field for part in self.parts for field in part.typed]
        view = LiveView(components, self._values, [chosen], quick, typed)
        view.follow(timer, opened)
        view.act(self.runs.component.open, self._choose, [], [chosen], **EACH)
        entered = [self.name, self.values, self.machine.target]
        answer = [chosen, self.new, *self.confirm.components]
        started = view.act(self.start.click, self._start_or_ask, [chosen, *entered], answer, self.form)
        anyway = view.act(self.confirm.yes.click, self._start, entered, [chosen, self.new], self.form)
        # It is never closed here: the answer may come after a person opened it.
        opened(lambda: gr.skip() if self.live.statuses() else gr.update(open=True), None, self.new, **QUIET)
        for event in (started, anyway):
            event.then(None, js=UPWARDS)
        self.confirm.wire(anyway, self.fit.fit(self.fit_first.click))
        beside = {"name of the run": self.name, "values to try": self.values, "GPU": self.fit.gpu}
        self.form.remember(FORM, load, beside)
        for part in (self.form, self.fit, self.machine):
            part.wire(opened)
        self.form.check_again(lambda settings: checked(self.workspace, settings))
        self.recipes.wire(opened, self.form, self.fit.gpu)
        self.removed.wire(view, self.live, chosen)
        host = TrainHost(self.live, self.form, view)
        for follower in self.parts:
            follower.wire(host)
        self.tracker.wire(chosen)

    # ---- showing

    def _choose(self, event: gr.EventData) -> str:
        self.live.refresh(str(event.name))
        return str(event.name)

    def _values(self, chosen: str | None) -> dict[Any, Any]:
        """What the components show; costly values with the signature that tells whether they changed."""
        snapshot = self.live.chosen(chosen)
        values: dict[Any, Any] = {self.runs.component: self.runs.value(snapshot.name if snapshot else None)}
        values |= self.removed.values()
        if snapshot is None:
            return values | {self.details: visible(False)} | self.head.empty()
        values |= {self.details: visible(True), self.log: render.log_box(snapshot.log)}
        for part in self.parts:
            values |= part.values(snapshot)
        return values

    # ---- starting

    def _start_or_ask(
        self, chosen: str | None, name: str, tried: list[str] | None, target: str, settings: TrainSettings
    ) -> list[Any]:
        """Start, or ask first where the run does not fit this machine; returns the run to show, and the question."""
        missing = self.fit.missing(settings) if (target or LOCAL) == LOCAL else ""
        if missing:
            check(self.workspace, settings)
            return [chosen, gr.skip(), *Confirm.question(missing)]
        return [*self._start(name, tried, target, settings), *Confirm.question("", False)]

    def _start(self, name: str, tried: list[str] | None, target: str, settings: TrainSettings) -> list[Any]:
        """Start; returns the run to show, and the form's fold, which closes."""
        resolve_target(self.workspace, target or LOCAL)
        runs = self._created(name.strip() or None, tried, settings)
        for run in runs:
            start_on(self.workspace, run, target or LOCAL)
        if len(runs) > 1:
            tell(f"{len(runs)} runs are in the queue; each begins when the one before it is over.", 8)
        self.live.refresh(runs[0].name)
        return [runs[0].name, gr.update(open=False)]

    def _created(self, name: str | None, tried: list[str] | None, settings: TrainSettings) -> list[Run]:
        """One run, or one for every combination of the values to try. Raises ConfigError, CannotWrite."""
        values = parse_values(tried or ())
        try:
            return created(self.workspace, settings, values, name)
        except ConfigError as error:
            # Those of the values to try are not about the form's fields.
            if values and error.problems.keys() <= values.keys():
                raise ConfigError(f"Values to try: {error}") from error
            raise

    def sample_settings(self, chosen: str | None) -> dict[str, Any]:
        """What the Sample tab starts with to try a run's LoRA. Raises ConfigError when there is no run."""
        snapshot = self.live.chosen(chosen)
        if snapshot is None:
            raise ConfigError(NO_RUN)
        settings = snapshot.run.settings
        shape = {name: getattr(settings, name) for name in ("frames", "height", "width")}
        prompts = list(snapshot.previews.prompts.values())
        name, saved = snapshot.name, snapshot.saved
        lora = name if snapshot.run.lora or not saved else f"runs/{name}@{saved[-1]}"
        return {"model": settings.model, "prompt": prompts[0] if prompts else "", "loras": [lora], **shape}
