"""A training run in a notebook: loss, previews, diagnosis, failure, commands. The run itself is a process of its own.

`RunPanel` shows any run of the workspace, whoever started it, from its files alone; so restarting the kernel costs
nothing: `attach` shows the run again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import ipywidgets as widgets
from IPython.display import HTML

from workbench import jobs
from workbench.display.inline_html import download, log_box, note
from workbench.errors import ConfigError
from workbench.jobs import State, queue
from workbench.notebook.live import Panel, folded, progress_bar, visible, wrapped
from workbench.runs import display
from workbench.runs.display import write_report
from workbench.runs.previews import RunPreviews
from workbench.runs.run import Action, ActionKind, Run, perform
from workbench.runs.settings import TrainSettings
from workbench.runs.snapshot import RunSnapshot, SnapshotReader, snapshot
from workbench.workspace import Workspace

BAR_STYLES = {"good": "success", "bad": "danger"}
ANSWER_SECONDS = 5.0  # how long the answer to a click stays
CHART_SECONDS = 2.0  # between two renderings of the curves while a run goes on
SCALES = (0.0, 0.5, 1.0)  # of the LoRA, for a preview at several scales
NO_CHECKPOINT = "No checkpoint was written yet."
NO_INPUTS = "This run keeps no videos of its training inputs."
DONE_HERE: tuple[ActionKind, ...] = (
    *("go on", "from start", "fork", "new run", "pause", "resume", "stop", "kill", "save", "preview", "decode"),
    *("report",),
)


class RunPanel(Panel):
    """One run, live: state, failure or diagnosis, losses, previews, commands.

    buttons: by kind of action, those that make sense now
    """

    def __init__(self, run: Run) -> None:
        super().__init__()
        self.run = run
        self.workspace = Workspace.of(run.folder)
        self.forked: RunPanel | None = None
        self.buttons: dict[ActionKind, widgets.Button] = {}
        self._reader = SnapshotReader(run)
        self._actions: list[Action] = []
        self._answered = self._charted_at = 0.0
        self._charted: Any = None
        self._previews: RunPreviews | None = None
        self._alive = True  # until it is read
        self.head, self.diagnosis, self.facts, self.chart, self.previews = (widgets.HTML() for _ in range(5))
        self.failure, self.more, self.inputs, self.checkpoints, self.log = (widgets.HTML() for _ in range(5))
        self.bar = progress_bar()
        self.button_row, self.fork_box = wrapped(), widgets.VBox([])
        self.prompt = widgets.Text(placeholder="a prompt of your own", layout=widgets.Layout(width="220px"))
        self.scales = widgets.Checkbox(
            description="with the LoRA at 0, 0.5 and 1", indent=False, layout=widgets.Layout(width="270px")
        )
        self.preview_row = wrapped(widgets.HTML("Preview of"), self.prompt, self.scales)
        self.front_button = self.add_button("Next in the queue", "Train before the other waiting runs", self._to_front)
        # Charts and videos of a fold are made when somebody opens it.
        self.more_fold = folded("More curves: change of the output, noise levels, learning rate", self.more)
        self.inputs_fold = folded("Training inputs", self.inputs)
        for fold in (self.more_fold, self.inputs_fold):
            fold.observe(lambda _: self.refresh(), "selected_index")
        self.box.add_class(display.VIEW)
        self.box.children = (
            *(widgets.HTML(display.style()), self.head, self.bar, self.facts, self.failure, self.diagnosis),
            *(self.chart, self.front_button, self.button_row, self.preview_row, self.message, self.previews),
            *(self.more_fold, self.inputs_fold, folded("Checkpoints", self.checkpoints), folded("Log", self.log)),
            self.fork_box,
        )
        self.watch()

    # ---- commands

    def start(self, from_start: bool = False) -> None:
        """Start the run, or resume it from its newest checkpoint; a running one is left alone.

        from_start: it may begin at step 0 again where no checkpoint is whole; otherwise that is refused. Raises
        ConfigError, CannotWrite.
        """
        self.run.start(from_start)
        self.refresh()

    def wait(self, seconds: float | None = None) -> jobs.Status:
        """Wait until the run is over or the time is up; the panel stays live. An interrupt leaves the run alone."""
        status = self.run.wait(seconds)
        self.refresh()
        return status

    def write_report(self) -> HTML:
        """Write the run's report.html, as things stand; returns a link to it. Raises ConfigError, CannotWrite."""
        return HTML(download(write_report(self.run)))

    def close(self) -> None:
        if self.forked is not None:
            self.forked.close()
        super().close()

    def _press(self, action: Action) -> None:
        """A button. What needs a form, a terminal or another panel is named, to be copied."""
        if action.kind == "preview":
            self.run.preview(self.prompt.value.strip() or None, SCALES if self.scales.value else ())
            self._answer("The previews are generated after this step.")
        elif action.kind == "report":
            self.message.value = download(write_report(self.run))
        elif action.kind not in DONE_HERE:
            self._answer(action.hint or f"In a terminal: {action.command}")
        else:
            self._show_result(perform(self.workspace, self.run, action), action)
            self.refresh()

    def _show_result(self, result: Run | TrainSettings | str, action: Action) -> None:
        if isinstance(result, str):
            self._answer(result)
        elif isinstance(result, TrainSettings):
            changed = "".join(f", {name}={value!r}" for name, value in action.settings.items())
            self._answer(f"In a cell: clone_panel(workspace, {self.run.name!r}{changed})")
        elif result.folder != self.run.folder:
            if self.forked is not None:
                self.forked.close()
            self.forked = RunPanel(result)
            self.fork_box.children = (self.forked.box,)

    def _to_front(self) -> None:
        queue.move(self.workspace, self.run.name, 1)
        self.refresh()

    def _answer(self, text: str) -> None:
        self.say(text)
        self._answered = time.monotonic()

    # ---- what is shown

    def _version(self) -> object:
        """Follow the run while it lives; notice when somebody else starts it again."""
        return None if self._alive or self.run.status.state.alive else "over"

    def _tick(self) -> bool:
        return super()._tick() and self.run.folder.exists()

    def _show(self) -> bool:
        seen = self._reader.read()
        self._alive = seen.status.state.alive
        self.head.value, self.facts.value = display.head(seen), display.facts(seen)
        self.bar.value = seen.share or 0.0
        self.bar.bar_style = BAR_STYLES.get(seen.tone, "info")
        self.failure.value = display.failure_box(seen.failure)
        self.log.value = log_box(seen.log)
        self._show_curves(seen)
        if seen.previews != self._previews:
            self._previews = seen.previews
            self.previews.value = display.previews(seen.previews, seen.width) or display.faint(seen.preview_note)
        self._show_actions([*(seen.failure.actions if seen.failure else ()), *seen.actions])
        visible(self.preview_row, "preview" in self.buttons)
        visible(self.front_button, seen.position is not None and seen.position > 1)
        if self._alive and self._answered and time.monotonic() > self._answered + ANSWER_SECONDS:
            self._answered = 0.0
            self.say("")
        return True  # somebody else may start it again

    def _show_curves(self, seen: RunSnapshot) -> None:
        """Diagnosis, curves and checkpoints, when there is something new; not many times a second."""
        opened = (self.more_fold.selected_index, self.inputs_fold.selected_index)
        mark = (seen.curves.version, seen.checkpoints, seen.status.state, seen.previews, opened)
        soon = seen.status.state is State.RUNNING and time.monotonic() < self._charted_at + CHART_SECONDS
        if mark == self._charted or soon:
            return
        self._charted, self._charted_at = mark, time.monotonic()
        self.diagnosis.value = display.diagnosis_box(seen.diagnosis)
        self.chart.value = display.loss_chart(seen)
        self.checkpoints.value = display.checkpoints(seen.checkpoints) or note(NO_CHECKPOINT)
        if self.more_fold.selected_index == 0:
            self.more.value = display.more_charts(seen)
        if self.inputs_fold.selected_index == 0:
            self.inputs.value = display.training_inputs(seen.previews, seen.width) or note(NO_INPUTS)

    def _show_actions(self, actions: Sequence[Action]) -> None:
        """A button for each action; those that stay keep theirs."""
        if actions == self._actions:
            return
        known = dict(zip(map(repr, self._actions), self.button_row.children, strict=True))
        self._actions = list(actions)
        made = [known.get(repr(action)) or self._button(action) for action in actions]
        self.button_row.children = made
        self.buttons = {action.kind: button for action, button in reversed(list(zip(actions, made, strict=True)))}

    def _button(self, action: Action) -> widgets.Button:
        styles = {"go on": "primary", "stop": "danger", "kill": "danger"}
        press: Callable[[], None] = lambda: self._press(action)  # noqa: E731
        return self.add_button(action.label, action.command, press, style=styles.get(action.kind, ""))


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
    seen = snapshot(run)
    return HTML(display.viewed(display.previews(seen.previews, seen.width)))
