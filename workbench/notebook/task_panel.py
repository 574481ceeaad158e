"""A task of a dataset in a notebook: its settings, Start, Stop, progress and result. One panel for all tasks.

A task is a process of its own; the panel only reads its folder, so a panel made after a kernel restart shows it again,
and what another face starts shows up within a second or two.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ipywidgets as widgets

from workbench import jobs
from workbench.dataset_builder.dataset import Dataset
from workbench.dataset_builder.settings import CaptionSettings, CheckSettings, ExportSettings, ImportSettings, SplitTask
from workbench.dataset_builder.snapshot import TaskSnapshot, task_snapshot
from workbench.dataset_builder.tasks import Name, Task
from workbench.display.inline_html import badge, log_box, note
from workbench.errors import ConfigError
from workbench.jobs import State
from workbench.notebook.form import SettingsForm
from workbench.notebook.live import Panel, folded, progress_bar, visible
from workbench.settings import Settings
from workbench.workspace import Workspace

MOST_LINES = 20  # of a result
# task -> its settings, its start button and what that does
KINDS: dict[Name, tuple[type[Settings], str, str]] = {
    "import": (ImportSettings, "Import", "Take videos and pictures into the dataset"),
    "split": (SplitTask, "Split", "Replace clips by parts of them; dataset.undo() takes it back"),
    "check": (CheckSettings, "Check", "Check every clip and caption; nothing is changed"),
    "caption": (
        CaptionSettings,
        "Write captions",
        "Captions by a model; those written by hand stay, unless a setting says otherwise",
    ),
    "export": (ExportSettings, "Export", "Write the dataset elsewhere; no existing file is touched"),
}


class TaskPanel(Panel):
    """The form of a task, Start, Stop, and how it goes. `start` and `wait` do the same from a cell."""

    def __init__(self, dataset: Dataset, task: Name, values: dict[str, Any]) -> None:
        """values: in place of the settings' defaults. Raises ConfigError for a task or a setting that is none."""
        if task not in KINDS:
            raise ConfigError(f"there is no panel for the task {task!r}: choose one of {', '.join(KINDS)}")
        super().__init__()
        self.dataset, self.name = dataset, task
        settings_class, label, help = KINDS[task]
        if task == "import":
            values = {"dataset": dataset.name, "trigger_word": dataset.info.trigger_word, **values}
        self.form: SettingsForm[Any] = SettingsForm(settings_class, Workspace.of(dataset.folder), values)
        self.bar, self.result = progress_bar(), widgets.HTML()
        self.start_button = self.add_button(label, help, self.start, "play", "primary")
        self.stop_button = self.add_button("Stop", "What is done stays", self.task.stop, "stop", "danger")
        self.resume_button = self.add_button("Resume", "Start it again where it was", self._resume, "play")
        buttons = widgets.HBox([self.start_button, self.stop_button, self.resume_button])
        form = folded("Settings", self.form.box, opened=True)
        self.box.children = (form, buttons, self.message, self.bar, self.result)
        self._alive = False
        self.watch()

    @property
    def task(self) -> Task:
        return self.dataset.task(self.name)

    def start(self) -> jobs.Status:
        """Check the settings and start. Raises ConfigError (also when a task is running already), CannotWrite."""
        status = self.task.start(_absolute(self.form.settings))
        self.refresh()
        return status

    def wait(self, seconds: float | None = None) -> jobs.Status:
        """Wait until it is over or the time is up; the panel stays live. An interrupt leaves the task running."""
        status = self.task.wait(seconds)
        self.refresh()
        return status

    @property
    def lines(self) -> list[str]:
        """What the last finished task said of its result, a sentence each; [] while there is none."""
        task = task_snapshot(self.task)
        return self._outcome(task) if task.state is State.FINISHED else []

    def _outcome(self, task: TaskSnapshot) -> list[str]:
        found = [task.sentence, *task.details]
        if task.name == "import":
            found.append(self.dataset.summary.sentence)
            found += [one.sentence for one in task.files]
        if task.name == "check" and (report := self.dataset.report) is not None:
            found += [report.sentence, "dataset.report shows the findings."]
        return list(filter(None, found))

    def _resume(self) -> None:
        self.task.go_on()
        self.refresh()

    def _version(self) -> object:
        return None if self._alive else (*self.dataset.version, *self.task.version)

    def _show(self) -> bool:
        task = task_snapshot(self.task)
        self._alive = task.state.alive
        self.start_button.disabled = self._alive
        visible(self.bar, self._alive)
        visible(self.stop_button, "stop" in task.actions)
        visible(self.resume_button, "resume" in task.actions)
        self.bar.value = task.share or 0.0
        lines = self._outcome(task) if task.state is State.FINISHED else [one.sentence for one in task.files]
        text = "".join(map(note, lines[:MOST_LINES]))
        if len(lines) > MOST_LINES:
            text += note(f"and {len(lines) - MOST_LINES:,} more")
        if task.state is not State.FINISHED:
            failed = task.state in (State.FAILED, State.DIED)
            text += note(task.activity or task.sentence, "error" if failed else "plain")
        state = "" if task.state is State.NEW else badge(task.state.value)
        self.result.value = state + text + (log_box(task.log) if task.log else "")
        return True


def _absolute(settings: Settings) -> Settings:
    """The same with absolute paths: the job does not run in the notebook's folder."""
    if isinstance(settings, ImportSettings):
        return settings.changed(sources=[str(Path(path).expanduser().absolute()) for path in settings.sources])
    if isinstance(settings, ExportSettings) and settings.target.strip():
        return settings.changed(target=str(Path(settings.target.strip()).expanduser().absolute()))
    return settings


def task_panel(workspace: Workspace, dataset: str, task: Name, **values: Any) -> TaskPanel:
    """A task of a dataset: import, split, check, caption or export; values: its settings. Raises ConfigError."""
    return TaskPanel(Dataset.open(workspace, dataset), task, values)
