"""A task of a dataset in a notebook: its settings, Start, Stop, progress and result. One panel for all tasks.

A task is a process of its own; the panel only reads its folder, so a panel made after a kernel restart shows it again,
and what another face starts shows up within a second or two. Not covered: what a task does (dataset_builder).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ipywidgets as widgets

from workbench import jobs
from workbench.dataset_builder.captions.settings import CaptionSettings
from workbench.dataset_builder.checks.settings import CheckSettings
from workbench.dataset_builder.cuts.splitting import SplitTask
from workbench.dataset_builder.dataset import Dataset
from workbench.dataset_builder.export.settings import ExportSettings
from workbench.dataset_builder.settings import ImportSettings
from workbench.dataset_builder.tasks import Name, Task
from workbench.errors import ConfigError, WorkbenchError
from workbench.inline_html import log_box, note
from workbench.jobs import State
from workbench.notebook.form import SettingsForm
from workbench.notebook.live import Panel, Ticker, folded, progress_bar, visible
from workbench.settings import Settings
from workbench.workspace import Workspace

LOG_LINES = 8
MOST_LINES = 20  # of a result


@dataclass(frozen=True)
class TaskKind:
    """What differs between tasks: their settings, the start button, and the words for a result.

    lines: what result.json says, a sentence each, the first one in short
    """

    settings_class: type[Settings]
    label: str
    help: str
    lines: Callable[[Dataset, dict[str, Any]], list[str]]


def _import_lines(dataset: Dataset, result: dict[str, Any]) -> list[str]:
    refused = [one.sentence for one in dataset.import_results if not one.usable]
    return [dataset.summary.sentence, *result.get("problems", ()), *refused]


def _split_lines(_: Dataset, result: dict[str, Any]) -> list[str]:
    clips, preview = result.get("clips", 0), result.get("preview", False)
    verb = "would be" if preview else "was" if clips == 1 else "were"
    first = f"{clips:,} clip{'' if clips == 1 else 's'} {verb} cut into {result.get('parts', 0):,}."
    return [first, *(result.get("splits", ()) if preview else ()), *(result.get("failed") or [])]


def _check_lines(dataset: Dataset, _: dict[str, Any]) -> list[str]:
    report = dataset.report
    return [report.sentence, "dataset.report shows the findings."] if report else []


def _caption_lines(_: Dataset, result: dict[str, Any]) -> list[str]:
    count = result.get("counts", {}).get("captioned", 0)
    return [
        f"{count:,} captions were written.",
        *(f"{name}: {why}" for name, why in (result.get("failed") or {}).items()),
    ]


def _export_lines(_: Dataset, result: dict[str, Any]) -> list[str]:
    target = result.get("url") or result.get("target") or ""
    return [f"Written: {target} {result.get('left_behind', '')}".rstrip()]


KINDS: dict[Name, TaskKind] = {
    "import": TaskKind(ImportSettings, "Import", "Take videos and pictures into the dataset", _import_lines),
    "split": TaskKind(SplitTask, "Split", "Replace clips by parts of them; dataset.undo() takes it back", _split_lines),
    "check": TaskKind(CheckSettings, "Check", "Check every clip and caption; nothing is changed", _check_lines),
    "caption": TaskKind(
        CaptionSettings,
        "Write captions",
        "Captions by a model; those written by hand stay, unless a setting says otherwise",
        _caption_lines,
    ),
    "export": TaskKind(
        ExportSettings, "Export", "Write the dataset elsewhere; no existing file is touched", _export_lines
    ),
}


class TaskPanel(Panel):
    """The form of a task, Start, Stop, and how it goes. `start` and `wait` do the same from a cell."""

    def __init__(self, dataset: Dataset, task: Name, values: dict[str, Any]) -> None:
        """values: in place of the settings' defaults. Raises ConfigError for a task or a setting that is none."""
        if task not in KINDS:
            raise ConfigError(f"there is no panel for the task {task!r}: choose one of {', '.join(KINDS)}")
        super().__init__()
        self.dataset, self.kind, self.name = dataset, KINDS[task], task
        if task == "import":
            values = {"dataset": dataset.name, "trigger_word": dataset.info.trigger_word, **values}
        self.form: SettingsForm[Any] = SettingsForm(
            self.kind.settings_class, Workspace(dataset.folder.parent.parent), values
        )
        self.bar, self.result = progress_bar(), widgets.HTML()
        self.start_button = self.add_button(self.kind.label, self.kind.help, self.start, "play", "primary")
        self.stop_button = self.add_button("Stop", "What is done stays", self.task.stop, "stop", "danger")
        self.resume_button = self.add_button("Resume", "Start it again where it was", self._resume, "play")
        buttons = widgets.HBox([self.start_button, self.stop_button, self.resume_button])
        form = folded("Settings", self.form.box, opened=True)
        self.box.children = (form, buttons, self.message, self.bar, self.result)
        # Ticks come from a thread, clicks from the kernel: one at a time.
        self._lock = threading.RLock()
        self._seen: tuple[int, ...] | None = None
        self._alive = False
        self.ticker = Ticker(self._tick)
        self._tick()
        self.ticker.start()

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
        finished = self.task.status.state is State.FINISHED
        return self.kind.lines(self.dataset, self.task.result) if finished else []

    def close(self) -> None:
        self.ticker.stop()
        super().close()

    def _resume(self) -> None:
        self.task.go_on()
        self.refresh()

    def _tick(self) -> bool:
        with self._lock:
            version = (*self.dataset.version, *self.task.version)
            if self._alive or version != self._seen:
                self._seen = version
                self.refresh()
        return True

    def refresh(self) -> None:
        """Show the task as its folder tells it."""
        with self._lock:
            try:
                self._show(self.task.status)
            except (WorkbenchError, OSError) as error:
                self.say(str(error), "error")

    def _show(self, status: jobs.Status) -> None:
        self._alive = status.state.alive
        self.start_button.disabled = self._alive
        visible(self.bar, self._alive)
        visible(self.stop_button, self._alive)
        visible(self.resume_button, status.state in (State.STOPPED, State.FAILED, State.DIED))
        self.bar.value = status.step / status.total if status.total else 0.0
        lines = self.lines
        text = "".join(map(note, lines[:MOST_LINES]))
        if len(lines) > MOST_LINES:
            text += note(f"and {len(lines) - MOST_LINES:,} more")
        if status.state is not State.FINISHED:
            text += note(*sentence(status))
        if status.state in (State.FAILED, State.DIED):
            text += log_box(jobs.log_tail(status.folder, LOG_LINES))
        self.result.value = text


def sentence(status: jobs.Status) -> tuple[str, str]:
    """(how a task is going, kind of note); ("", "plain") for one that was never started."""
    if status.state is State.NEW:
        return "", "plain"
    if status.state.alive:
        left = f"about {jobs.duration(status.seconds_left)} left" if status.seconds_left is not None else ""
        count = f"{status.step:,} of {status.total:,}" if status.total else ""
        return " · ".join(filter(None, (status.phase or "starting", count, left, status.message))), "plain"
    if status.state is State.STOPPED:
        return f"Stopped; what was done stays. {status.message}", "plain"
    return f"Failed. {status.message}", "error"


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
