"""A training run in a notebook: watch it, command it, understand it. The run itself is a process of its own.

`RunPanel` shows any run of the workspace, whoever started it, from its files alone; so restarting the kernel costs
nothing: `attach` shows the run again. Not covered: starting one (train_panel), what is drawn (run_drawing), training
(trainer).
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import ipywidgets as widgets
from IPython.display import HTML

from workbench import jobs
from workbench.errors import ConfigError, WorkbenchError
from workbench.families import find_model
from workbench.notebook import rendering, run_rendering
from workbench.notebook.checkpoint_part import CheckpointPart
from workbench.notebook.failure_part import FailurePart
from workbench.notebook.live import Panel, Ticker, button, folded
from workbench.runs import failures, oom_fallback, queue
from workbench.runs.actions import Action
from workbench.runs.analysis.curves import curves_of
from workbench.runs.analysis.diagnosis import diagnose
from workbench.runs.analysis.report import write_report
from workbench.runs.failures import Failure
from workbench.runs.run import Run
from workbench.runs.sessions import last_note
from workbench.workspace import Workspace

if TYPE_CHECKING:
    from workbench.notebook.train_panel import TrainPanel

State = jobs.State
BAR_STYLES = {State.FINISHED: "success", State.FAILED: "danger", State.DIED: "danger"}
ENDED_EARLY = (State.STOPPED, State.FAILED, State.DIED)
LOG_LINES = 200  # of the log's end: the cause of a failure is looked for in it
ANSWER_SECONDS = 5.0  # how long the answer to a click stays
CHART_SECONDS = 2.0  # between two drawings of the curves while a run goes on
SCALES = (0.0, 0.5, 1.0)  # strengths of the LoRA that previews are drawn at when all are asked for


class RunPanel(Panel):
    """One run, live: state, verdict, losses, previews, checkpoints, its card when it failed, and what commands it."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.workspace = Workspace(run.folder.parent.parent)
        self.curves = curves_of(run)
        self.branched: TrainPanel | None = None
        self._answered = 0.0
        self._charted: tuple[Any, ...] = ()
        self._charted_at = 0.0
        self._previewed: list[str] | None = None
        self._width = width_of(run)
        # Ticks come from a thread, clicks from the kernel: one at a time.
        self._lock = threading.Lock()
        self.head, self.verdict, self.numbers, self.chart, self.previews, self.log = (widgets.HTML() for _ in range(6))
        self.more, self.inputs, self.report = (widgets.HTML() for _ in range(3))
        self.bar = widgets.FloatProgress(min=0.0, max=1.0, layout=widgets.Layout(width="100%", max_width="760px"))
        self.failure = FailurePart(self.doing)
        self.checkpoints = CheckpointPart(run, self.refresh)
        self._make_buttons()
        self._make_folds()
        super().__init__([widgets.HTML(run_rendering.style()), self.head, self.bar, self.numbers, self.verdict])
        self.box.children += (self.failure.box, self.chart, self.buttons, self.said, self.previews, *self.folds)
        self.ticker = Ticker(self._tick)
        self._alive = self.refresh()
        self.ticker.start()

    def _make_buttons(self) -> None:
        self.start_button = button("Start", "Start, or go on from the last checkpoint", "play", "primary", "110px")
        self.stop_button = button("Stop", "Finish this step, save, and end", "stop", "danger", "90px")
        self.pause_button = button("Pause", "Stand still after this step, until Resume", "pause", width="110px")
        self.save_button = button("Save", "Write a checkpoint after this step", "save", width="90px")
        self.front_button = button("Next in the queue", "Let this run train before the others that wait", "arrow-up")
        self.preview_button = button("Preview", "Draw the preview videos after this step", "film", width="100px")
        self.prompt = widgets.Text(placeholder="a prompt of your own", layout=widgets.Layout(width="220px"))
        self.scales = widgets.Checkbox(
            description="with the LoRA at 0, 0.5 and 1", indent=False, layout=widgets.Layout(width="270px")
        )
        for each, action in (
            (self.start_button, self.start), (self.stop_button, self._stop), (self.save_button, self._save),
            (self.pause_button, self._pause_or_resume), (self.preview_button, self._preview),
            (self.front_button, lambda: queue.move(self.workspace, self.run.name, 1)),
        ):  # fmt: skip
            each.on_click(self.doing(action))
        self.commands = (self.pause_button, self.stop_button, self.save_button, self.preview_button)
        row = [self.start_button, self.front_button, *self.commands, self.prompt, self.scales]
        self.buttons = widgets.HBox(row, layout=widgets.Layout(flex_flow="row wrap"))

    def _make_folds(self) -> None:
        """What is folded away; charts, inputs and forms are only made once somebody opens them."""
        self.more_fold = folded("More curves: leak, timesteps, learning rate", self.more)
        self.inputs_fold = folded("What goes in", self.inputs)
        self.checkpoints_fold = folded("Checkpoints", self.checkpoints.box)
        self.branch_box = widgets.VBox([])
        self.branch_fold = folded("Clone or fork: begin again, or go on, with other settings", self.branch_box)
        report_button = button("Write the report", "One HTML file that explains the run", "file", width="160px")
        report_button.on_click(self.doing(self.write_report))
        self.report_fold = folded("Report and files", widgets.VBox([report_button, self.report]))
        self.folds = (
            self.more_fold, self.inputs_fold, self.checkpoints_fold, self.branch_fold, self.report_fold,
            folded("Log", self.log),
        )  # fmt: skip
        self.more_fold.observe(lambda _: self._unfolded(self.more_fold, self._draw_more), "selected_index")
        self.inputs_fold.observe(lambda _: self._unfolded(self.inputs_fold, self._draw_inputs), "selected_index")
        self.branch_fold.observe(lambda _: self._unfolded(self.branch_fold, self._make_branch), "selected_index")

    # ---- commands

    def start(self, from_start: bool = False) -> None:
        """Start the run, or go on from its newest checkpoint; a running one is left alone.

        from_start: it may begin at step 0 again where no checkpoint is whole; otherwise it is refused.
        """
        self.run.start(from_start)
        self._alive = self.refresh()

    def wait(self, seconds: float | None = None) -> jobs.Status:
        """Wait until the run is over or the time is up; the panel stays live. An interrupt leaves the run alone."""
        status = self.run.wait(seconds)
        self.refresh()
        return status

    def write_report(self) -> HTML:
        """Write the run's report.html, as things stand; returns a link to it. Raises ConfigError, CannotWrite."""
        self.report.value = link = rendering.download(write_report(self.run))
        return HTML(link)

    def branch(self, step: int | None = None, **changed: Any) -> TrainPanel:
        """Open the form of a new run with this one's settings, some of them changed.

        step: of the checkpoint that it goes on from; None begins anew. Raises ConfigError.
        """
        from workbench.notebook.train_panel import TrainPanel  # each shows the other

        if self.branched is not None:
            self.branched.close()
        self.branched = TrainPanel(self.workspace, self.run.settings.changed(**changed), self.run, step)
        self.branch_box.children = (self.branched.box,)
        self.branch_fold.selected_index = 0
        return self.branched

    def close(self) -> None:
        self.ticker.stop()
        if self.branched is not None:
            self.branched.close()
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
        self.run.preview(self.prompt.value.strip() or None, SCALES if self.scales.value else ())
        self._answer("The previews are drawn after this step.")

    def _press(self, card: Failure, action: Action) -> None:
        """A button of the card."""
        if action.kind in ("go on", "from start"):
            self.start(from_start=action.kind == "from start")
        elif action.kind == "fork":
            self.branch(action.step, **action.settings).start()
        elif action.kind == "new run":
            self.branch(None, **action.settings)
        elif action.kind == "free space":
            self.checkpoints_fold.selected_index = 0
            self.checkpoints.look()
        elif action.kind == "dataset":
            self._answer(f"In a cell: dataset_panel(workspace, {self.run.settings.dataset!r})")
        else:
            self._answer("In a terminal on the machine that trains: hf auth login. A token never goes into a notebook.")

    def _answer(self, text: str) -> None:
        self.say(text)
        self._answered = time.monotonic()

    # ---- what is shown

    def _tick(self) -> bool:
        """Follow the run while it lives; notice when somebody else starts it again."""
        if self._alive or self.run.status.state.alive:
            self._alive = self.refresh()
        return self.run.folder.exists()

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
        alive = status.state.alive
        self.curves.refresh()
        notes = [oom_fallback.sentence(oom_fallback.record(self.run.folder)), last_note(self.run.folder)]
        self.head.value = run_rendering.head(self.run.name, status, self.run.parent, " ".join(filter(None, notes)))
        self.bar.value = status.step / status.total if status.total else float(status.state is State.FINISHED)
        self.bar.bar_style = BAR_STYLES.get(status.state, "info")
        self.numbers.value = run_rendering.numbers(self.curves)
        self._show_curves(status)
        files = run_rendering.preview_files(self.run.folder)
        if files != self._previewed:
            self._previewed = files
            self.previews.value = run_rendering.previews(self.run, self._width)
            self._unfolded(self.inputs_fold, self._draw_inputs)
        log = jobs.log_tail(self.run.folder, LOG_LINES)
        self.log.value = rendering.log_box(log)
        self._show_buttons(status)
        if alive and self._answered and time.monotonic() > self._answered + ANSWER_SECONDS:
            self._answered = 0.0
            self.say("")
        settings = None
        with contextlib.suppress(ConfigError):  # of a later version: its card lacks the changes that would help
            settings = self.run.settings
        self.failure.show(failures.failure_of(status, log, self.run.checkpoints, settings), self._press)
        if not alive and status.state is not State.NEW:
            self.say(*self._ending(status))
        return alive

    def _show_curves(self, status: jobs.Status) -> None:
        """Verdict, curves and checkpoints, when there is something new; not many times a second."""
        mark = (self.curves.version, self.run.checkpoints, status.state)
        if mark == self._charted or (status.state.alive and time.monotonic() < self._charted_at + CHART_SECONDS):
            return
        self._charted, self._charted_at = mark, time.monotonic()
        verdict = diagnose(self.curves, self.run.checkpoints)
        self.verdict.value = run_rendering.verdict_box(verdict) if self.curves.version else ""
        self.chart.value = run_rendering.loss_chart(self.curves, verdict.best_step)
        self.checkpoints.show(self.curves, verdict.best_step)
        self._unfolded(self.more_fold, self._draw_more)

    def _show_buttons(self, status: jobs.Status) -> None:
        alive = status.state.alive
        self.start_button.disabled = alive or status.state is State.FINISHED
        self.start_button.description = "Go on" if status.state in ENDED_EARLY else "Start"
        for each in self.commands:
            each.disabled = not alive or status.state is State.STOPPING
        self.pause_button.description = "Resume" if status.state is State.PAUSED else "Pause"
        waits = alive and status.phase.startswith(queue.WAITING)
        self.front_button.layout.display = "" if waits else "none"

    def _unfolded(self, fold: widgets.Accordion, draw: Callable[[], object]) -> None:
        if fold.selected_index == 0:
            draw()

    def _draw_more(self) -> None:
        self.more.value = run_rendering.more_charts(self.curves)

    def _draw_inputs(self) -> None:
        self.inputs.value = run_rendering.inputs(self.run.folder, self._width)

    def _make_branch(self) -> None:
        if self.branched is None:
            self.branch()

    def _ending(self, status: jobs.Status) -> tuple[str, str]:
        if status.state is State.FINISHED:
            return f"Finished. The LoRA is {self.run.lora or 'missing'}", "good" if self.run.lora else "error"
        if status.state is not State.STOPPED:
            return "", "plain"  # its card says more
        saved = self.run.checkpoints
        again = f"Go on starts from step {saved[-1]}." if saved else "Go on starts from the beginning."
        return " ".join(filter(None, [status.message, again])), "plain"


def width_of(run: Run) -> int | None:
    """Width of the run's videos, pixels; None when its settings cannot be read."""
    try:
        settings = run.settings
        return settings.width or find_model(settings.model)[1].width
    except ConfigError:
        return None


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
    return HTML(rendering.preview_table(run.previews, source_width=width_of(run)))
