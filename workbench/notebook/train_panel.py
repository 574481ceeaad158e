"""Starting runs in a notebook: the settings form and Start; a clone, a fork, or several runs at once (a sweep).

A started run is shown below, live; it is a process of its own.
"""

from __future__ import annotations

import time
from typing import Any

import ipywidgets as widgets

from workbench import jobs
from workbench.display.html import escaped
from workbench.display.inline_html import html_table, note
from workbench.errors import ConfigError
from workbench.families.recipes import SUBJECTS, Source
from workbench.fit.gpus import HERE
from workbench.fit.levels import offer, suggest
from workbench.notebook.fit_view import FitView
from workbench.notebook.form import SettingsForm
from workbench.notebook.live import Panel, folded, visible, wrapped
from workbench.notebook.run_panel import RunPanel
from workbench.runs.recipes import Suggestion
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.runs.sweeps import created, parse_values
from workbench.workspace import Workspace

RECIPE_HELP = "Fill in settings for the model, dataset and GPU, and say where each value comes from"
SWEEP_HELP = "Optional: a run for every value; a line a setting, a run for every combination."


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

        parent: the run that is cloned or forked;  step: of its checkpoint that the new run goes on from, None begins
        at step 0. Raises ConfigError when the parent has no such checkpoint.
        """
        super().__init__()
        saved = parent.checkpoints if parent else []
        if step is not None and parent is not None and step not in saved:
            raise ConfigError(f"{parent.name} has no checkpoint of step {step}: choose one of {saved or 'none yet'}")
        self.workspace, self.parent, self.step = workspace, parent, step
        self.runs: list[Run] = []
        self.panels: list[RunPanel] = []
        self.form = SettingsForm(TrainSettings, workspace, settings.model_dump(mode="json") if settings else None)
        self.fit = FitView(workspace, self.form)
        width = widgets.Layout(width="300px")
        self.subject = widgets.Dropdown(options=[(name.capitalize(), name) for name in SUBJECTS], layout=width)
        self.recipe_button = self.add_button("Fill in", RECIPE_HELP, self.fill_recipe, "magic")
        self.reasons = widgets.HTML()
        placeholder = f"{parent.name}, numbered" if parent else "the dataset's name"
        self.name = widgets.Text(placeholder=placeholder, layout=width)
        self.sweep = widgets.Textarea(rows=1, placeholder="learning_rate=1e-4,3e-4", layout=width)
        label = "Start training" if step is None else f"Start from step {step}"
        self.start_button = self.add_button(label, "Check the settings, start a new run", self.start, "play", "primary")
        self.gpus_button = self.add_button("Use all GPUs", "All GPUs share each step", self.use_all_gpus, "clone")
        self.refresh_button = self.add_button(
            "", "Offer the datasets and models that there are now", self.form.refresh_choices, "refresh"
        )
        visible(self.gpus_button, offer(TrainSettings()) is not None)
        self._settings = folded("Settings", self.form.box, opened=True)
        self.started = widgets.VBox([])
        self.box.children = (
            _row("What to train", self.subject, self.recipe_button),
            *(self.reasons, self._settings, self.fit.box),
            _row("Values to try", self.sweep, widgets.HTML(SWEEP_HELP)),
            _row("Name of the run", self.name, self.start_button, self.refresh_button, self.gpus_button),
            *(self.message, self.started),
        )

    @property
    def run(self) -> Run:
        """The run that this panel started, the first of several. Raises ConfigError before that."""
        if not self.runs:
            raise ConfigError("no run was started here yet: press Start training, or attach to a run by its name")
        return self.runs[0]

    @property
    def live(self) -> RunPanel:
        """The panel of that run. Raises ConfigError before it was started."""
        return self.panels[self.runs.index(self.run)]

    def start(self) -> Run:
        """Check the settings, start the new run or runs, show them below; returns the first.

        Raises ConfigError, DataError, CannotWrite.
        """
        values = [line for line in self.sweep.value.splitlines() if line.strip()]
        settings = self.form.settings
        title = self.name.value.strip() or (self.parent.name if self.parent else None)
        if values and self.step is not None:
            raise ConfigError("values to try start runs at step 0: use train_panel or clone_panel for them")
        if self.parent is not None and self.step is not None:
            runs = [self.parent.fork(self.workspace, self.step, settings, title)]
        else:
            runs = created(self.workspace, settings, parse_values(values), title)
        for run in runs:
            run.start()
        for panel in self.panels:
            panel.close()
        self.runs, self.panels = runs, [RunPanel(run) for run in runs]
        self._settings.selected_index = None
        self.started.children = tuple(panel.box for panel in self.panels)
        return runs[0]

    def fill_recipe(self) -> None:
        """Fill in what suits the chosen subject, the form's model and dataset, and the GPU; the reasons stand above.

        Raises ConfigError, ModelUnavailable.
        """
        found = suggest(self.workspace, self.subject.value, self.form.settings, self.fit.gpu.value or HERE)
        self.form.set(found.settings)
        self.reasons.value = reasons_html(found)

    def use_all_gpus(self) -> None:
        """Set what makes all GPUs of this machine share the run's steps."""
        if (found := offer(self.form.settings)) is not None:
            self.form.set(found.changed)
            self.say(found.sentence)

    def wait(self, seconds: float | None = None) -> jobs.Status:
        """Wait for what this panel started, live; returns the status of the last. Raises ConfigError before that."""
        end = None if seconds is None else time.monotonic() + seconds
        status = self.run.status
        for panel in self.panels:
            status = panel.wait(None if end is None else max(0.0, end - time.monotonic()))
        return status

    def close(self) -> None:
        for panel in self.panels:
            panel.close()
        self.fit.close()
        super().close()


def reasons_html(found: Suggestion) -> str:
    """How well a recipe is documented, and each of its values with its reason and sources."""
    warning = note(found.warning, "error") if found.warning else ""
    lines = [
        (escaped(one.title), escaped(str(one.value)), f"{escaped(one.reason)} {', '.join(map(_link, one.sources))}")
        for one in found.reasons
    ]
    return note(found.evidence) + warning + html_table(("", "value", "reason"), lines)


def _link(source: Source) -> str:
    title, url = escaped(source.title), escaped(source.url)
    return f'<a href="{url}" target="_blank" rel="noopener noreferrer">{title}</a>' if url else title


def _row(title: str, *children: widgets.Widget) -> widgets.HBox:
    return wrapped(widgets.HTML(title, layout=widgets.Layout(width="190px")), *children)


def train_panel(workspace: Workspace, settings: TrainSettings | None = None) -> TrainPanel:
    """The form of a new run, Start, and the live run; settings: in the form at first."""
    return TrainPanel(workspace, settings)


def clone_panel(workspace: Workspace, run_name: str, **changed: Any) -> TrainPanel:
    """The form of a run that starts at step 0 with another's settings, some changed. Raises ConfigError."""
    parent = Run.open(workspace, run_name)
    return TrainPanel(workspace, parent.settings.changed(**changed), parent)


def fork_panel(workspace: Workspace, run_name: str, step: int, **changed: Any) -> TrainPanel:
    """The form of a run that goes on from another's checkpoint, with settings changed. Raises ConfigError."""
    parent = Run.open(workspace, run_name)
    return TrainPanel(workspace, parent.settings.changed(**changed), parent, step)
