"""Tasks of a dataset in a notebook: settings, Start, Stop, and how it goes. Cut all clips, auto captions, export.

A task is a process of its own; a panel only reads its folder, so a panel made after a kernel restart shows it again,
and what another face does shows up within a second or two.
Not covered: what a task does (dataset_builder), the check (check_panel), the import (dataset_panel).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, ClassVar

import ipywidgets as widgets

from workbench import jobs
from workbench.captioners import captioners
from workbench.dataset_builder.captions.settings import CaptionSettings
from workbench.dataset_builder.cuts.splitting import SplitSettings, SplitTask
from workbench.dataset_builder.dataset import Dataset
from workbench.dataset_builder.export.settings import ExportSettings
from workbench.dataset_builder.tasks import Name, Task
from workbench.errors import ConfigError, WorkbenchError
from workbench.notebook import rendering
from workbench.notebook.form import WidgetForm
from workbench.notebook.live import Panel, Ticker, button, folded, visible
from workbench.settings import Settings
from workbench.workspace import Workspace

State = jobs.State
LONGEST_LOOK = 300.0  # seconds of a source video that is scored while a person waits
LOG_LINES = 8
FAILURES = 20


class TaskLine(Panel):
    """A bar, a sentence, Stop and Go on: one task as its folder tells it."""

    def __init__(self, noun: str, task: Callable[[], Task], watch: Callable[[], None]) -> None:
        """noun: what it is ("import");  watch: called when it goes on, so that somebody refreshes this line"""
        self.noun = noun
        self._task = task
        self.bar = widgets.FloatProgress(min=0.0, max=1.0, layout=widgets.Layout(width="100%", max_width="720px"))
        self.stop_button = button("Stop", "What is done stays", "stop", "danger", "90px")
        self.go_on_button = button("Go on", "Start it again where it was", "play", width="90px")

        def go_on() -> None:
            task().go_on()
            watch()

        self.stop_button.on_click(self.doing(lambda: task().stop()))
        self.go_on_button.on_click(self.doing(go_on))
        super().__init__([self.bar])
        self.box.children = (self.bar, self.said, widgets.HBox([self.stop_button, self.go_on_button]))
        self.hide()

    def hide(self) -> None:
        """Nothing is to be said."""
        self.say("")
        visible(self.bar, False)
        visible(self.stop_button, False)
        visible(self.go_on_button, False)

    def refresh(self, done: str) -> bool:
        """Show how it stands. done: what a good end is worth saying. True while it works."""
        status = self._task().status
        alive = status.state.alive
        visible(self.bar, alive)
        visible(self.stop_button, alive)
        visible(self.go_on_button, status.state in (State.STOPPED, State.FAILED, State.DIED))
        self.bar.value = status.step / status.total if status.total else 0.0
        self.say(*sentence(status, self.noun, done))
        if status.state in (State.FAILED, State.DIED):
            self.said.value += rendering.log_box(jobs.log_tail(status.folder, LOG_LINES))
        return alive


def sentence(status: jobs.Status, noun: str, done: str) -> tuple[str, str]:
    """(how a task stands, kind of note); nothing before it was ever started."""
    if status.state is State.NEW:
        return "", "plain"
    if status.state.alive:
        left = f"about {jobs.duration(status.seconds_left)} left" if status.seconds_left is not None else ""
        count = f"{status.step:,} of {status.total:,}" if status.total else ""
        return " · ".join(filter(None, (status.phase or "starting", count, left, status.message))), "plain"
    if status.state is State.FINISHED:
        return " ".join(filter(None, (done, status.message))), "good"
    if status.state is State.STOPPED:
        return f"The {noun} was stopped; what was done stays. {status.message}", "plain"
    return f"The {noun} did not end well. {status.message}", "error"


class TaskPanel(Panel):
    """The form of a task, Start, and its line. `start` and `wait` do the same from a cell."""

    task_name: ClassVar[Name]
    settings_class: ClassVar[type[Settings]]
    noun: ClassVar[str]
    words: ClassVar[tuple[str, str]]  # on the start button, and its tooltip

    def __init__(self, workspace: Workspace, dataset: str, values: dict[str, Any]) -> None:
        """values: in place of the settings' defaults. Raises ConfigError for a dataset or setting that is none."""
        self.dataset = Dataset.open(workspace, dataset)
        self.form: WidgetForm[Any] = WidgetForm(self.settings_class, workspace, values)
        self.line = TaskLine(self.noun, lambda: self.task, self.watch)
        self.start_button = button(*self.words, "play", "primary")
        self.start_button.on_click(self.doing(self.start))
        self.buttons = widgets.HBox([self.start_button])
        super().__init__([])
        form = folded("Settings", self.form.box, opened=True)
        self.box.children = (form, self.buttons, self.said, self.line.box, *self._more())
        # Ticks come from a thread, clicks from the kernel: one at a time.
        self._lock = threading.RLock()
        self._seen: tuple[Any, ...] = ()
        self._alive = False
        self.ticker = Ticker(self._look_again)
        self._look_again()
        self.ticker.start()

    @property
    def task(self) -> Task:
        return self.dataset.task(self.task_name)

    def start(self) -> jobs.Status:
        """Check the settings and start. Raises ConfigError (also when it is at work), CannotWrite."""
        status = self.task.start(self._checked(self.form.settings))
        self.watch()
        return status

    def wait(self, seconds: float | None = None) -> jobs.Status:
        """Wait until it is over or the time is up; the panel stays live."""
        status = self.task.wait(seconds)
        self.refresh()
        return status

    def watch(self) -> None:
        """Keep the panel fresh until the task is over."""
        self.refresh()
        if not self.ticker.running:
            self.ticker.start()

    def close(self) -> None:
        self.ticker.stop()
        super().close()

    def _look_again(self) -> bool:
        """Show what changed on disk, whoever changed it; costs a few looks when nothing did. The ticker goes on."""
        with self._lock:
            mark = (self.dataset.version, *(self.dataset.task(name).version for name in self._watched()))
            if self._alive or mark != self._seen:
                self._seen = mark
                self._alive = self.refresh()
        return True

    def _watched(self) -> tuple[Name, ...]:
        """The tasks that the panel shows."""
        return (self.task_name,)

    def refresh(self) -> bool:
        """Show what the task's folder says. True while it works."""
        with self._lock:
            try:
                alive = self.line.refresh(self._done(self.task.result))
                self.start_button.disabled = alive
                if not alive:
                    self._ended()
                return alive
            except (WorkbenchError, OSError) as error:
                self.say(str(error), "error")
                return False

    def _more(self) -> list[widgets.Widget]:
        """What stands below the line."""
        return []

    def _checked(self, settings: Any) -> Settings:
        """The settings as they are started."""
        checked: Settings = settings
        return checked

    def _done(self, result: dict[str, Any]) -> str:
        """What a good end is worth saying."""
        return ""

    def _ended(self) -> None:
        """Show what the task left, if anything."""


class SplitPanel(TaskPanel):
    """Cut all clips, or those that are named: by scenes or by seconds."""

    task_name = "split"
    settings_class = SplitSettings
    noun = "cutting"
    words = ("Cut", "Put the parts in the clips' place; Undo brings the clips back")

    def _more(self) -> list[widgets.Widget]:
        self.look_button = button("Look first", "Say what would become of each clip; nothing is changed", "search")
        self.look_button.on_click(self.doing(self.start_look))
        self.buttons.children = (self.look_button, self.start_button)
        self.would = widgets.HTML()
        return [self.would]

    def start_look(self) -> jobs.Status:
        """Start finding out what would become of each clip; nothing is changed. Raises ConfigError, CannotWrite."""
        status = self.task.start(SplitTask(**self.form.settings.model_dump(), preview=True))
        self.watch()
        return status

    def look(self, seconds: float | None = None) -> list[str]:
        """What would become of each clip, in words, once it is found out. Raises as `start_look`."""
        self.start_look()
        self.wait(seconds)
        return list(self.task.result.get("splits", ()))

    def refresh(self) -> bool:
        alive = super().refresh()
        self.look_button.disabled = alive
        return alive

    def _ended(self) -> None:
        result = self.task.result
        said = result.get("splits", ()) if result.get("preview") else ()
        self.would.value = "".join(map(rendering.note, said[:FAILURES]))
        if len(said) > FAILURES:
            self.would.value += rendering.note(f"... and {len(said) - FAILURES:,} more clips")

    def _done(self, result: dict[str, Any]) -> str:
        failed = "".join(f" {one}." for one in (result.get("failed") or [])[:FAILURES])
        clips, would = result.get("clips", 0), result.get("preview", False)
        was = f"{clips:,} clip{'' if clips == 1 else 's'} {'would be' if would else 'was' if clips == 1 else 'were'}"
        return f"{was} cut into {result.get('parts', 0):,}.{failed}"


class CaptionPanel(TaskPanel):
    """Captions by a model on this machine, or by a server that speaks OpenAI's protocol."""

    task_name = "caption"
    settings_class = CaptionSettings
    noun = "captioning"
    words = ("Write captions", "Never over what was written by hand, unless a setting says so")

    def _more(self) -> list[widgets.Widget]:
        lines = "".join(
            f"<li><b>{rendering.escaped(kind.id)}</b>: {rendering.escaped(kind.title)}. "
            f"{rendering.escaped(kind.needs)}</li>"
            for kind in captioners().values()
        )
        self.clips = widgets.SelectMultiple(options=[], rows=8, layout=widgets.Layout(width="100%", max_width="720px"))
        self.some_button = button("Only for these clips", "Those chosen in the list", "play")
        self.some_button.on_click(self.doing(lambda: self.start_for(self.clips.value)))
        some = folded("Only for some clips", widgets.VBox([self.clips, self.some_button]))
        return [widgets.HTML(f'<ul style="line-height:1.4;opacity:.75">{lines}</ul>'), some]

    def start_for(self, names: Sequence[str]) -> jobs.Status:
        """The same for the clips of those file names or ids alone. Raises as `start`."""
        if not names:
            raise ConfigError("no clip is chosen: choose one or more of the list")
        status = self.task.start(self.form.settings.changed(which="chosen", chosen=tuple(names)))
        self.watch()
        return status

    def _ended(self) -> None:
        listed = [
            (f"{clip.source or clip.id}: {clip.text or '-'}"[:110], clip.file_name) for clip in self.dataset.clips
        ]
        if listed != list(self.clips.options):
            kept = [name for name in self.clips.value if name in [value for _, value in listed]]
            self.clips.options = listed
            self.clips.value = kept

    def _done(self, result: dict[str, Any]) -> str:
        failed = result.get("failed") or {}
        said = f"{result.get('counts', {}).get('captioned', 0):,} captions were written."
        if failed:
            first = "; ".join(f"{name}: {why}" for name, why in list(failed.items())[:FAILURES])
            said += f" {len(failed):,} clips failed: {first}."
        return said


class ExportPanel(TaskPanel):
    """Give the dataset away: a folder or archive in another tool's layout, or a dataset on the Hub."""

    task_name = "export"
    settings_class = ExportSettings
    noun = "export"
    words = ("Export", "Nothing that is there already is touched")

    def _checked(self, settings: Any) -> ExportSettings:
        wanted: ExportSettings = settings
        target = wanted.target.strip()
        # The job does not run where the notebook does.
        return wanted.changed(target=str(Path(target).expanduser().absolute())) if target else wanted

    def _done(self, result: dict[str, Any]) -> str:
        return f"Written: {result.get('url') or result.get('target') or ''} {result.get('left_behind', '')}"


def split_panel(workspace: Workspace, dataset: str, **values: Any) -> SplitPanel:
    """Cut the clips of a dataset by scenes or seconds; values: settings of SplitSettings. Raises ConfigError."""
    return SplitPanel(workspace, dataset, values)


def caption_panel(workspace: Workspace, dataset: str, **values: Any) -> CaptionPanel:
    """Captions by a model; values: settings of CaptionSettings. Raises ConfigError."""
    return CaptionPanel(workspace, dataset, values)


def export_panel(workspace: Workspace, dataset: str, **values: Any) -> ExportPanel:
    """Write a dataset elsewhere; values: settings of ExportSettings. Raises ConfigError."""
    return ExportPanel(workspace, dataset, values)
