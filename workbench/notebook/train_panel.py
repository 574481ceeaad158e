"""Starting runs in a notebook: the settings form and Start; a clone, a fork, or several runs at once (a sweep).

What was started is shown below, live; it is a process of its own. Not covered: watching (run_panel, compare_panel),
what a fork takes along (runs.forks).
"""

from __future__ import annotations

import time
from typing import Any

import ipywidgets as widgets

from workbench import jobs
from workbench.errors import ConfigError
from workbench.fit.gpu_offer import offer
from workbench.jobs.devices import gpus
from workbench.notebook.compare_panel import ComparePanel
from workbench.notebook.fit_part import FitPart
from workbench.notebook.form import WidgetForm
from workbench.notebook.live import Panel, button, folded
from workbench.notebook.run_panel import RunPanel
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.runs.sweeps import parse_values, sweep
from workbench.workspace import Workspace

ANEW = "from the beginning (a clone)"


class TrainPanel(Panel):
    """The settings form, a Start button, and the runs that it started."""

    def __init__(
        self,
        workspace: Workspace,
        settings: TrainSettings | None = None,
        parent: Run | None = None,
        step: int | None = None,
    ) -> None:
        """settings: in the form at first

        parent: the run that is cloned or forked;  step: of its checkpoint that is chosen at first, None begins anew
        Raises ConfigError when the parent has no such checkpoint.
        """
        self.workspace, self.parent = workspace, parent
        self.runs: list[Run] = []
        self.live: RunPanel | ComparePanel | None = None
        self.form = WidgetForm(TrainSettings, workspace, settings.model_dump(mode="json") if settings else None)
        self.fit = FitPart(workspace, self.form)
        placeholder = f"{parent.name}, numbered" if parent else "the dataset's name"
        self.name = widgets.Text(placeholder=placeholder, layout=widgets.Layout(width="300px"))
        self.swept = widgets.Textarea(
            rows=1, placeholder="learning_rate=1e-4,3e-4", layout=widgets.Layout(width="300px")
        )
        self.begin = widgets.Dropdown(options=_beginnings(parent, step), value=step)
        self.start_button = button("Start training", "Check the settings, start a new run", "play", "primary", "150px")
        self.start_button.on_click(self.doing(self.start))
        cards = len(gpus())
        self.gpus_button = button(
            f"Use {cards} GPUs", "All of this machine's GPUs share each step", "clone", "", "150px"
        )
        self.gpus_button.on_click(self.doing(self.use_all_gpus))
        self.look_button = button("", "Look again which datasets and models there are", "refresh", width="44px")
        self.look_button.on_click(lambda _: self.form.refresh_choices())
        self._settings = folded("Settings", self.form.box, opened=True)
        help = "Optional: a run for every value; a line a setting, a run for every combination."
        rows = [
            *([_row("Begins", self.begin)] if parent else []),
            _row("Values to try", self.swept, widgets.HTML(f'<div style="opacity:.65;font-size:88%">{help}</div>')),
            _row(
                "Name of the run",
                self.name,
                self.start_button,
                self.look_button,
                *([self.gpus_button] if cards > 1 else []),
            ),
        ]
        self.shown = widgets.VBox([])
        super().__init__([self._settings, self.fit.box, *rows])
        self.box.children += (self.said, self.shown)

    @property
    def run(self) -> Run:
        """The run that this panel started, the first of several. Raises ConfigError before that."""
        if not self.runs:
            raise ConfigError("no run was started here yet: press Start training, or attach to a run by its name")
        return self.runs[0]

    def start(self) -> Run:
        """Check the settings, start the new run or runs, show them below; returns the first. Raises ConfigError."""
        name, swept = self.name.value.strip() or None, [line for line in self.swept.value.splitlines() if line.strip()]
        settings = self.form.settings
        title = name or (self.parent.name if self.parent else None)
        if swept and self.begin.value is not None:
            raise ConfigError(f"several values are tried in runs that begin anew: choose {ANEW!r}")
        if swept:
            runs = sweep(self.workspace, settings, parse_values(swept), title)
        elif self.parent is not None and self.begin.value is not None:
            runs = [self.parent.fork(self.workspace, self.begin.value, settings, title)]
        else:
            runs = [Run.create(self.workspace, settings, title)]
        for run in runs:
            run.start()
        if self.live is not None:
            self.live.close()
        self.runs = runs
        self.live = RunPanel(runs[0]) if len(runs) == 1 else ComparePanel(self.workspace, runs)
        self._settings.selected_index = None
        self.shown.children = (self.live.box,)
        return runs[0]

    def use_all_gpus(self) -> None:
        """Set what makes all GPUs of this machine share the run's steps."""
        if (found := offer(self.form.settings)) is not None:
            self.form.set(found.changed)
            self.say(found.sentence)

    def wait(self, seconds: float | None = None) -> jobs.Status:
        """Wait for what this panel started, live; returns the status of the last. Raises ConfigError before that."""
        end = None if seconds is None else time.monotonic() + seconds
        status = self.run.status
        for run in self.runs:
            status = run.wait(None if end is None else max(0.0, end - time.monotonic()))
        if self.live is not None:
            self.live.refresh()
        return status

    def close(self) -> None:
        if self.live is not None:
            self.live.close()
        self.fit.close()
        super().close()


def _beginnings(parent: Run | None, step: int | None) -> list[tuple[str, int | None]]:
    """Where a new run may begin. Raises ConfigError for a step without a checkpoint."""
    saved = parent.checkpoints if parent else []
    if step is not None and parent is not None and step not in saved:
        raise ConfigError(f"{parent.name} has no checkpoint of step {step}: choose one of {saved or 'none yet'}")
    return [(ANEW, None), *((f"from step {each} (a fork)", each) for each in saved)]


def _row(title: str, *parts: widgets.Widget) -> widgets.HBox:
    layout = widgets.Layout(align_items="center", flex_flow="row wrap")
    return widgets.HBox([widgets.HTML(title, layout=widgets.Layout(width="190px")), *parts], layout=layout)


def train_panel(workspace: Workspace, settings: TrainSettings | None = None) -> TrainPanel:
    """Settings, Start, and the live run."""
    return TrainPanel(workspace, settings)


def clone_panel(workspace: Workspace, run_name: str, **changed: Any) -> TrainPanel:
    """The form of a run that begins anew with another's settings, some changed. Raises ConfigError."""
    parent = Run.open(workspace, run_name)
    return TrainPanel(workspace, parent.settings.changed(**changed), parent)


def fork_panel(workspace: Workspace, run_name: str, step: int, **changed: Any) -> TrainPanel:
    """The form of a run that goes on from another's checkpoint, with settings changed. Raises ConfigError."""
    parent = Run.open(workspace, run_name)
    return TrainPanel(workspace, parent.settings.changed(**changed), parent, step)
