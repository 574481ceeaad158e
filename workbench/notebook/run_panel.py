"""A training run in a notebook: start it, watch it, command it. The run itself is a process of its own.

`RunPanel` shows any run of the workspace, whoever started it, from its files alone; so restarting the kernel costs
nothing: `attach` shows the run again. `TrainPanel` puts the settings form in front. Not covered: training (trainer).
"""

from __future__ import annotations

import threading
import time
from typing import Any

import ipywidgets as widgets
from IPython.display import HTML

from workbench import jobs
from workbench.errors import ConfigError, WorkbenchError
from workbench.families import find_model
from workbench.notebook import drawing
from workbench.notebook.form import Form
from workbench.notebook.live import Panel, Ticker, button, folded
from workbench.trainer.metrics import read_metrics, smooth
from workbench.trainer.runs import Preview, Run
from workbench.trainer.settings import TrainSettings
from workbench.workspace import Workspace

State = jobs.State
COLOURS = {
    State.RUNNING: "#2f6fd0", State.STARTING: "#2f6fd0", State.PAUSED: "#b26a00", State.STOPPING: "#b26a00",
    State.FINISHED: "#2e7d32", State.STOPPED: "#b26a00", State.FAILED: "#c62828", State.DIED: "#c62828",
}  # fmt: skip
BAR_STYLES = {State.FINISHED: "success", State.FAILED: "danger", State.DIED: "danger"}
ENDED_EARLY = (State.STOPPED, State.FAILED, State.DIED)
LOG_LINES = 40
ANSWER_SECONDS = 5.0  # how long the answer to a click stays


class RunPanel(Panel):
    """One run, live: phase, progress, losses, previews, log, and the buttons that command it."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self._losses: dict[int, float] = {}
        self._held_out: dict[int, float] = {}
        self._last: dict[str, Any] = {}
        self._byte = 0
        self._answered = 0.0
        self._drawn: list[Preview] | None = None
        self._width = _width(run)
        # Ticks come from a thread, clicks from the kernel: one at a time.
        self._lock = threading.Lock()
        self.head, self.numbers, self.chart, self.previews, self.log = (widgets.HTML() for _ in range(5))
        self.bar = widgets.FloatProgress(min=0.0, max=1.0, layout=widgets.Layout(width="100%", max_width="720px"))
        self._make_buttons()
        super().__init__([self.head, self.bar, self.numbers, self.chart, self.buttons])
        self.box.children = (*self.box.children, self.said, self.previews, folded("Log", self.log))
        self.ticker = Ticker(self.refresh)
        self.refresh()
        self.ticker.start()

    def _make_buttons(self) -> None:
        self.start_button = button("Start", "Start, or go on from the last checkpoint", "play", "primary", "110px")
        self.stop_button = button("Stop", "Finish this step, save, and end", "stop", "danger", "90px")
        self.pause_button = button("Pause", "Stand still after this step, until Resume", "pause", width="110px")
        self.save_button = button("Save", "Write a checkpoint after this step", "save", width="90px")
        self.preview_button = button("Preview", "Draw the preview videos after this step", "film", width="100px")
        self.prompt = widgets.Text(placeholder="a prompt of your own", layout=widgets.Layout(width="220px"))
        self.start_button.on_click(self.doing(self.start))
        self.stop_button.on_click(self.doing(self._stop))
        self.pause_button.on_click(self.doing(self._pause_or_resume))
        self.save_button.on_click(self.doing(self._save))
        self.preview_button.on_click(self.doing(self._preview))
        self.commands = (self.pause_button, self.stop_button, self.save_button, self.preview_button)
        row = [self.start_button, *self.commands, self.prompt]
        self.buttons = widgets.HBox(row, layout=widgets.Layout(flex_flow="row wrap"))

    # ---- commands

    def start(self) -> None:
        """Start the run, or go on from its newest checkpoint; a running one is left alone."""
        self.run.start()
        self.refresh()
        self.ticker.start()

    def wait(self, seconds: float | None = None) -> jobs.Status:
        """Wait until the run is over or the time is up; the panel stays live. An interrupt leaves the run alone."""
        status = self.run.wait(seconds)
        self.refresh()
        return status

    def close(self) -> None:
        self.ticker.stop()
        super().close()

    def _stop(self) -> None:
        self.run.stop()
        self._answer("The run finishes its step, saves, and ends.")

    def _pause_or_resume(self) -> None:
        if self.run.status.state is State.PAUSED:
            self.run.resume()
        else:
            self.run.pause()
            self._answer("The run stands still after its step, until you press Resume.")

    def _save(self) -> None:
        self.run.save()
        self._answer("A checkpoint is written after this step.")

    def _preview(self) -> None:
        self.run.preview(self.prompt.value.strip() or None)
        self._answer("The previews are drawn after this step.")

    def _answer(self, text: str) -> None:
        self.say(text)
        self._answered = time.monotonic()

    # ---- what is shown

    def refresh(self) -> bool:
        """Read the run's files and show what they say. True while there may be more to come."""
        with self._lock:
            try:
                return self._show()
            except (WorkbenchError, OSError) as error:
                # A file may be half way between two names; what cannot be read for long is shown by its own sentence.
                self.say(str(error), "error")
                return self.run.folder.exists()

    def _show(self) -> bool:
        status = self.run.status
        self._read_metrics()
        self._show_head(status)
        self.chart.value = drawing.loss_chart(self._losses, self._held_out, status.total)
        self.numbers.value = drawing.note(self._numbers())
        previews = self.run.previews
        if previews != self._drawn:
            self._drawn = previews
            self.previews.value = drawing.preview_table(previews, source_width=self._width)
        self.log.value = drawing.log_box(jobs.log_tail(self.run.folder, LOG_LINES))
        alive = status.state.alive
        self.start_button.disabled = alive or status.state is State.FINISHED
        self.start_button.description = "Go on" if status.state in ENDED_EARLY else "Start"
        for each in self.commands:
            each.disabled = not alive or status.state is State.STOPPING
        self.pause_button.description = "Resume" if status.state is State.PAUSED else "Pause"
        if alive and self._answered and time.monotonic() > self._answered + ANSWER_SECONDS:
            self._answered = 0.0
            self.say("")
        if not alive and status.state is not State.NEW:
            self.say(*self._ending(status))
        return alive

    def _read_metrics(self) -> None:
        lines, self._byte = read_metrics(self.run.folder, self._byte)
        for line in lines:
            if "loss" in line:
                self._losses[line["step"]] = line["loss"]
                self._last = line
            if "held_out_loss" in line:
                self._held_out[line["step"]] = line["held_out_loss"]

    def _show_head(self, status: jobs.Status) -> None:
        style = f"background:{COLOURS.get(status.state, '#666')};color:#fff;border-radius:9px;padding:1px 9px"
        badge = f'<span style="{style}">{status.state}</span>'
        where = " · ".join(filter(None, [status.phase if status.state.alive else "", _progress(status)]))
        self.head.value = (
            f'<div style="line-height:1.8"><b>{drawing.escaped(self.run.name)}</b> {badge} '
            f'<span style="opacity:.75">{drawing.escaped(where)}</span></div>'
        )
        self.bar.value = status.step / status.total if status.total else float(status.state is State.FINISHED)
        self.bar.bar_style = BAR_STYLES.get(status.state, "info")

    def _numbers(self) -> str:
        if not self._last:
            return ""
        steps = sorted(self._losses)
        recent = smooth([self._losses[step] for step in steps])[-1]
        words = [f"loss {self._last['loss']:.4f}, smoothed {recent:.4f}"]
        if self._held_out:
            first, last = min(self._held_out), max(self._held_out)
            was = f", was {self._held_out[first]:.4f} at step {first}" if first != last else ""
            words.append(f"held-out loss {self._held_out[last]:.4f}{was}")
        if "lr" in self._last:
            words.append(f"learning rate {self._last['lr']:.3g}")
        if "seconds" in self._last:
            words.append(f"{self._last['seconds']:.3g} s a step")
        if self._last.get("memory_gb"):
            words.append(f"{self._last['memory_gb']:.1f} GB")
        return " · ".join(words)

    def _ending(self, status: jobs.Status) -> tuple[str, str]:
        if status.state is State.FINISHED:
            return f"Finished. The LoRA is {self.run.lora or 'missing'}", "good" if self.run.lora else "error"
        saved = self.run.checkpoints
        again = f"Go on starts from step {saved[-1]}." if saved else "Go on starts from the beginning."
        kind = "plain" if status.state is State.STOPPED else "error"
        return " ".join(filter(None, [status.message, again])), kind


def _width(run: Run) -> int | None:
    """Width of the run's videos, pixels; None when its settings cannot be read."""
    try:
        settings = run.settings
        return settings.width or find_model(settings.model)[1].width
    except ConfigError:
        return None


def _progress(status: jobs.Status) -> str:
    words = f"{status.step} of {status.total}" if status.total else ""
    if status.state is State.RUNNING and status.seconds_left is not None:
        words += f", about {jobs.duration(status.seconds_left)} left"
    if status.hanging:
        words += f", silent for {jobs.duration(status.silent_seconds)}"
    return words


class TrainPanel(Panel):
    """The settings form, a Start button, and the run that it started."""

    def __init__(self, workspace: Workspace, settings: TrainSettings | None = None) -> None:
        self.workspace = workspace
        self.live: RunPanel | None = None
        self.form = Form(TrainSettings, workspace, settings.model_dump(mode="json") if settings else None)
        self.name = widgets.Text(placeholder="the dataset's name", layout=widgets.Layout(width="300px"))
        self.start_button = button("Start training", "Check the settings, start a new run", "play", "primary", "150px")
        self.start_button.on_click(self.doing(self.start))
        self.look_button = button("", "Look again which datasets and models there are", "refresh", width="44px")
        self.look_button.on_click(lambda _: self.form.refresh_choices())
        label = widgets.HTML("Name of the run", layout=widgets.Layout(width="190px"))
        self._settings = folded("Settings", self.form.box, opened=True)
        super().__init__([self._settings, widgets.HBox([label, self.name, self.start_button, self.look_button])])
        self.box.children = (*self.box.children, self.said)

    @property
    def run(self) -> Run:
        """The run that this panel started. Raises ConfigError before that."""
        if self.live is None:
            raise ConfigError("no run was started here yet: press Start training, or attach to a run by its name")
        return self.live.run

    def start(self) -> Run:
        """Check the settings, start a new run and show it below the form. Raises ConfigError."""
        run = Run.create(self.workspace, self.form.settings, self.name.value.strip() or None)
        run.start()
        if self.live is not None:
            self.live.close()
        self.live = RunPanel(run)
        self._settings.selected_index = None
        self.box.children = (*self.box.children[:3], self.live.box)
        return run

    def wait(self, seconds: float | None = None) -> jobs.Status:
        """Wait for the run that this panel started, live. Raises ConfigError when there is none."""
        if self.live is None:
            return self.run.status
        return self.live.wait(seconds)

    def close(self) -> None:
        if self.live is not None:
            self.live.close()
        super().close()


def train_panel(workspace: Workspace, settings: TrainSettings | None = None) -> TrainPanel:
    """Settings, Start, and the live run."""
    return TrainPanel(workspace, settings)


def attach(workspace: Workspace, run_name: str | None = None) -> RunPanel:
    """Show a run again, whoever started it: by name, else the newest. Raises ConfigError."""
    if run_name is None:
        runs = Run.all(workspace)
        if not runs:
            raise ConfigError("there is no run in this workspace yet: start one with train_panel")
        return RunPanel(runs[0])
    return RunPanel(Run.open(workspace, run_name))


def preview_table(run: Run) -> HTML:
    """The previews of a run as they are now, prompts by steps, to be kept in the notebook."""
    return HTML(drawing.preview_table(run.previews, source_width=_width(run)))
