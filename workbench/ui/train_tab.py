"""The Train tab: a form, the list of all runs, and the chosen run live. It only reads run folders and leaves commands.

Not covered: what a run looks like (run_view), how its files are read (live), training itself (workbench.trainer).
"""

from __future__ import annotations

from typing import Any

import gradio as gr

from workbench.errors import ConfigError
from workbench.jobs import State
from workbench.trainer.runs import Run
from workbench.trainer.settings import TrainSettings
from workbench.ui import render, run_view
from workbench.ui.boundary import QUIET, TICK, UPWARDS, Seen, handler, tick
from workbench.ui.form import Form, sentences
from workbench.ui.live import Live, Snapshot
from workbench.workspace import Workspace

LOSS_COLOURS = {"each step": "#b9c7df", "smoothed": "#3b6fd4", "held-out clips": "#e08a2c"}


class TrainTab:
    """Builds the tab's components; `wire` connects them once the page's timer and memory exist."""

    def __init__(self, workspace: Workspace, live: Live) -> None:
        self.workspace, self.live = workspace, live
        with gr.Row():
            with gr.Column(scale=4, min_width=330, elem_classes="side"):
                self.runs = gr.Radio(
                    self._choices(), label="Runs", value=live.default(), visible=bool(self._choices()),
                    elem_classes="runs", elem_id="runs",
                )  # fmt: skip
                with gr.Accordion("New run", open=True, elem_id="new-run"):
                    self.name = gr.Textbox(
                        "", label="Name of the run", info="Empty: the dataset's name.", placeholder="my-first-lora",
                        elem_id="run-name",
                    )  # fmt: skip
                    self.form = Form(TrainSettings, workspace, TrainSettings())
                    self.start = gr.Button("Start training", variant="primary", elem_id="start-training")
            with gr.Column(scale=9, min_width=420):
                self.head = gr.HTML(elem_id="run-head")
                self.ending = gr.HTML(elem_id="run-ending")
                self._build_buttons()
                with gr.Column(visible=False) as self.details:
                    self._build_details()

    def _build_details(self) -> None:
        self.pairs = gr.HTML(elem_id="before-after")
        gr.HTML('<h3 class="part">Previews</h3>')
        self.previews = gr.HTML(elem_id="previews")
        gr.HTML('<h3 class="part">Curves</h3>')
        with gr.Row():
            self.loss = gr.LinePlot(
                x="step", y="loss", color="series", color_map=LOSS_COLOURS, title="Loss", height=260,
                elem_id="loss-chart", min_width=380, scale=2, buttons=["fullscreen"],
            )  # fmt: skip
            self.rate = gr.LinePlot(
                x="step", y="learning rate", title="Learning rate", height=260, min_width=240, scale=1,
                buttons=["fullscreen"],
            )  # fmt: skip
        with gr.Accordion("Log", open=False):
            self.log = gr.HTML(elem_id="run-log")

    def _build_buttons(self) -> None:
        with gr.Row(elem_classes="buttons"):
            self.resume = gr.Button("Go on", variant="primary", visible=False, elem_id="resume-run")
            self.try_it = gr.Button("Try it in Sample", variant="primary", visible=False, elem_id="try-run")
            self.pause = gr.Button("Pause", visible=False, elem_id="pause-run")
            self.stop = gr.Button("Stop", variant="stop", visible=False, elem_id="stop-run")
            self.save = gr.Button("Save now", visible=False, elem_id="save-run")
            self.preview = gr.Button("Preview now", visible=False, elem_id="preview-run")
            self.copy = gr.Button("Copy settings to the form", visible=False, elem_id="copy-run")

    @property
    def view(self) -> dict[str, Any]:
        """Everything that follows the chosen run, by the names that `_values` uses."""
        names = (
            "runs", "head", "ending", "resume", "try_it", "pause", "stop", "save", "preview", "copy",
            "details", "pairs", "previews", "loss", "rate", "log",
        )  # fmt: skip
        return {name: getattr(self, name) for name in names}

    def wire(self, timer: gr.Timer, chosen: gr.BrowserState, load: Any) -> None:
        """Connect the listeners. `chosen` remembers the run over reloads; `load` is the page's load event."""
        seen = gr.State(Seen())
        outputs = list(self.view.values())
        for event in (load, timer.tick):
            event(tick(self._tick), [chosen, seen], outputs, **TICK)
        self.runs.input(handler(self._choose), [self.runs, seen], [chosen, *outputs], **QUIET)
        started = self.start.click(
            handler(self._start),
            [seen, self.name, *self.form.inputs],
            [chosen, self.form.problems, *outputs],
            **QUIET,
        )
        started.then(None, js=UPWARDS)
        for button, command in (
            (self.resume, Run.start), (self.stop, self._stop), (self.pause, self._pause),
            (self.save, self._save), (self.preview, self._preview),
        ):  # fmt: skip
            button.click(handler(self._commanded(command)), [chosen, seen], [chosen, *outputs], **QUIET)
        self.copy.click(handler(self._copy), chosen, [self.form.problems, *self.form.inputs], **QUIET)
        for event in (load, self.form.model.change):
            event(self.form.hints, self.form.model, self.form.hinted, **QUIET)
        load(self.form.refreshed, None, self.form.sourced, **QUIET)

    # ---- showing

    def _choices(self) -> list[tuple[str, str]]:
        return [(f"{status.name}  ·  {status.state}", status.name) for status in self.live.statuses()]

    def _tick(self, chosen: str | None, seen: Seen) -> Any:
        if seen.late(chosen):
            return gr.skip()
        snapshot = self.live.snapshot(chosen) or self.live.snapshot(self.live.default())
        return seen.changed(self.view, self._values(snapshot))

    def _show(self, name: str, seen: Seen) -> list[Any]:
        """The run of that name, all of it, as it is this very moment."""
        seen.choose(name)
        self.live.statuses(now=True)
        return seen.changed(self.view, self._values(self.live.snapshot(name, now=True)))

    def _values(self, snapshot: Snapshot | None) -> dict[str, Any]:
        """Output values by component; costly ones with the signature that tells whether they changed."""
        choices = self._choices()
        name = snapshot.status.name if snapshot else None
        values: dict[str, Any] = {
            "runs": ((choices, name), lambda: gr.update(choices=choices, value=name, visible=bool(choices)))
        }
        if snapshot is None:
            return values | {"head": run_view.empty()}
        values |= {"head": run_view.head(snapshot, self.live), "ending": run_view.ending(snapshot)}
        values["details"] = (True, lambda: gr.update(visible=True))
        values |= _buttons(snapshot)
        curves = snapshot.curves
        return values | {
            "pairs": run_view.before_after(snapshot),
            "previews": run_view.previews(snapshot),
            "loss": ((name, curves.version), lambda: _frame(curves.loss_rows(), ["step", "loss", "series"])),
            "rate": ((name, curves.version), lambda: _frame(curves.rate_rows(), ["step", "learning rate"])),
            "log": render.log_box(snapshot.log),
        }

    def _choose(self, name: str, seen: Seen) -> list[Any]:
        return [name, *self._show(name, seen)]

    # ---- commanding

    def _start(self, seen: Seen, name: str, *values: Any) -> list[Any]:
        try:
            run = Run.create(self.workspace, self.form.parse(values), name.strip() or None)
        except ConfigError as error:
            return [gr.skip(), sentences(error, TrainSettings), *[gr.skip()] * len(self.view)]
        run.start()
        return [run.name, "", *self._show(run.name, seen)]

    def _commanded(self, command: Any) -> Any:
        def listener(chosen: str | None, seen: Seen) -> list[Any]:
            name = self._effective(chosen)
            command(Run.open(self.workspace, name))
            return [name, *self._show(name, seen)]

        return listener

    def _effective(self, chosen: str | None) -> str:
        """The run that is shown, whether it was chosen or came up by itself. Raises ConfigError when there is none."""
        snapshot = self.live.snapshot(chosen) or self.live.snapshot(self.live.default())
        if snapshot is None:
            raise ConfigError("there is no run yet: start one with the form on the left")
        return snapshot.status.name

    def _stop(self, run: Run) -> None:
        # A run that was asked before and still lives hangs in something that does not look for commands.
        run.stop(grace=0.0 if run.status.state is State.STOPPING else None)

    def _pause(self, run: Run) -> None:
        run.resume() if run.status.state is State.PAUSED else run.pause()

    def _save(self, run: Run) -> None:
        run.save()
        gr.Info("A checkpoint is written after this step.", duration=4)

    def _preview(self, run: Run) -> None:
        run.preview()
        gr.Info("The previews are drawn after this step.", duration=4)

    def _copy(self, chosen: str | None) -> list[Any]:
        settings = Run.open(self.workspace, self._effective(chosen)).settings
        gr.Info("The form now holds this run's settings.", duration=4)
        return ["", *self.form.write(settings.model_dump(mode="json"))]

    def sample_settings(self, chosen: str | None) -> dict[str, Any]:
        """What the Sample tab starts with to try a run's LoRA."""
        run = Run.open(self.workspace, self._effective(chosen))
        settings = run.settings
        shape = {name: getattr(settings, name) for name in ("frames", "height", "width")}
        prompts = [preview.prompt for preview in run.previews]
        return {"model": settings.model, "prompt": prompts[0] if prompts else "", "loras": [run.name], **shape}


def _buttons(snapshot: Snapshot) -> dict[str, Any]:
    """Which buttons make sense now."""
    state, saved = snapshot.status.state, snapshot.checkpoints
    alive, over = state.alive, state in (State.STOPPED, State.FAILED, State.DIED)
    go_on = "Start" if state is State.NEW else f"Go on from step {saved[-1]}" if saved else "Start again"
    stop = "End by force" if state is State.STOPPING else "Stop"
    looks = {
        "resume": {"visible": over or state is State.NEW, "value": go_on},
        "try_it": {"visible": state is State.FINISHED and snapshot.lora is not None},
        "pause": {
            "visible": state in (State.RUNNING, State.PAUSED),
            "value": "Continue" if state is State.PAUSED else "Pause",
        },
        "stop": {"visible": alive, "value": stop},
        "save": {"visible": state is State.RUNNING},
        "preview": {"visible": state is State.RUNNING},
        "copy": {"visible": not alive},
    }
    return {name: (look, lambda look=look: gr.update(**look)) for name, look in looks.items()}


def _frame(rows: list[Any], columns: list[str]) -> Any:
    import pandas as pd

    return pd.DataFrame(rows, columns=columns)
