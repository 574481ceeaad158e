"""Panels of a notebook: a dataset and its tasks, a run, the form of a new run, sampling.

The work runs in other processes, so a panel made after a kernel restart shows it again.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from IPython.core.getipython import get_ipython
from IPython.display import HTML

from workbench import jobs
from workbench.compare.grid import Grid
from workbench.dataset_builder.dataset import Dataset
from workbench.dataset_builder.settings import ExportSettings, ImportSettings
from workbench.dataset_builder.snapshot import task_snapshot
from workbench.dataset_builder.tasks import Name
from workbench.display.inline_html import download
from workbench.errors import ConfigError, WorkbenchError
from workbench.notebook.widget import View, address
from workbench.operations.runs import checkpoint_of, create
from workbench.operations.settings import FORMS
from workbench.runs.report import previews_html, write_report
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.sampler import queue
from workbench.sampler.inputs import kept
from workbench.sampler.samples import Sample, Samples
from workbench.sampler.settings import BatchSettings, SampleSettings, expand
from workbench.sampler.view import samples_html
from workbench.settings import Settings, parse, specs
from workbench.workspace import Workspace

S = TypeVar("S", bound=Settings)
# The form of each task.
TASKS: dict[Name, str] = {
    "import": "import",
    "split": "split",
    "check": "check",
    "export": "export",
    "caption": "captions",
}


class SettingsForm(View, Generic[S]):
    """A form for settings: `settings` reads it, `set` fills it in. Raises ConfigError."""

    def __init__(
        self, workspace: Workspace, settings_class: type[S], values: Mapping[str, Any], shown: str = "", **more: Any
    ) -> None:
        name = next((name for name, kind in FORMS.items() if kind is settings_class), "")
        if not name:
            raise ConfigError(f"{settings_class.__name__} has no form: choose one of {', '.join(FORMS)}")
        self.settings_class = settings_class
        super().__init__(workspace, shown or address("settings", name), name, values, **more)

    @property
    def settings(self) -> S:
        """The checked settings. Raises ConfigError."""
        return parse(self.settings_class, self.values)


def form(settings_class: type[S], workspace: Workspace | None = None, **values: Any) -> SettingsForm[S]:
    """Return the form of a settings class, filled with the given values or the defaults. Raises ConfigError."""
    return SettingsForm(workspace or Workspace.open(), settings_class, values)


def _given(settings: Settings | None) -> dict[str, Any]:
    """Return the settings that differ from the defaults, as JSON values."""
    return settings.model_dump(mode="json", exclude_defaults=True) if settings is not None else {}


class ClipCards(View):
    """The clips of a dataset with their captions, findings and history."""

    def __init__(self, workspace: Workspace, dataset: str, settings: TrainSettings | None = None) -> None:
        """Show a dataset, with the frame plan of a run's settings. Raises ConfigError."""
        self.dataset = Dataset.open(workspace, dataset)
        self.html = self.dataset._repr_html_
        shown, form = address("dataset", dataset), "train" if settings else ""
        super().__init__(workspace, shown, form, _given(settings), label=dataset)


class TaskPanel(SettingsForm[Settings]):
    """A dataset and one of its tasks. `set` changes the settings, `start` starts it."""

    def __init__(self, workspace: Workspace, dataset: str, task: Name, **values: Any) -> None:
        """Show import, split, check, caption or export, with the given settings. Raises ConfigError."""
        if task not in TASKS:
            raise ConfigError(f"there is no panel for the task {task!r}: choose one of {', '.join(TASKS)}")
        self.name, self.dataset = task, Dataset.open(workspace, dataset)
        self.task = self.dataset.task(task)
        given = {"dataset": dataset, "trigger_word": self.dataset.info.trigger_word} if task == "import" else {}
        kind, shown = FORMS[TASKS[task]], address("dataset", dataset)
        super().__init__(workspace, kind, {**given, **values}, shown, label=dataset)

    def start(self) -> jobs.Status:
        """Check the settings and start. Raises ConfigError (also if a task is running), CannotWrite."""
        settings = self.settings
        # The job runs in another folder, so its paths must be absolute.
        if isinstance(settings, ImportSettings):
            settings = settings.changed(sources=list(map(_absolute, settings.sources)))
        if isinstance(settings, ExportSettings) and settings.target.strip():
            settings = settings.changed(target=_absolute(settings.target.strip()))
        return self.task.start(settings)

    def wait(self, seconds: float | None = None) -> jobs.Status:
        """Wait until the task ends or the time is up. The panel stays live. An interrupt leaves the task running."""
        return self.task.wait(seconds)

    @property
    def lines(self) -> list[str]:
        """The result of the last finished task, in sentences, or [] without one."""
        seen = task_snapshot(self.task)
        if seen.state is not jobs.State.FINISHED:
            return []
        found = [seen.sentence, *seen.details]
        if self.name == "import":
            found += [self.dataset.summary.sentence, *(one.sentence for one in seen.files)]
        if self.name == "check" and (report := self.dataset.report) is not None:
            found += [report.sentence, "dataset.report shows the findings."]
        return list(filter(None, found))


def _absolute(path: str) -> str:
    return str(Path(path).expanduser().absolute())


class RunPanel(View):
    """A run, live: state, failure or verdict, losses, previews, commands."""

    def __init__(self, workspace: Workspace, run_name: str | None = None) -> None:
        """Show a run by name, or the newest one. Raises ConfigError."""
        runs = [Run.open(workspace, run_name)] if run_name is not None else Run.all(workspace)
        if not runs:
            raise ConfigError("this workspace has no runs yet: start one with train_panel")
        self.run = runs[0]
        self.start, self.wait, self.html = self.run.start, self.run.wait, self.run._repr_html_
        super().__init__(workspace, address("train", self.run.name), label=self.run.name)
        self.expect(*_first_calls(self.run))

    def write_report(self) -> HTML:
        """Write the run's report.html and return a link to it. Raises ConfigError, CannotWrite."""
        return HTML(download(write_report(self.run)))


def _first_calls(run: Run) -> list[tuple[str, dict[str, Any]]]:
    """Return the operations that a run's element calls first."""
    of_run = [(f"progress/{one}", {"name": run.name}) for one in ("state", "previews", "curves")]
    return [("runs/list", {"sort": "newest"}), *of_run]


def preview_table(run: Run) -> HTML:
    """Return a run's previews (prompts by steps) and curves, as a copy that stays in the notebook."""
    return HTML(previews_html(run))


class TrainPanel(SettingsForm[TrainSettings]):
    """The form of a new run, and the run once a click or `start` has started it.

    A setting may have several values, numbers as "1e-4,3e-4" and choices or switches as a list. Then `start` starts a
    run for each combination.
    """

    def __init__(
        self,
        workspace: Workspace,
        settings: TrainSettings | None = None,
        parent: Run | None = None,
        step: int | None = None,
    ) -> None:
        """Show the form with the given settings. parent, step: see `clone_panel` and `fork_panel`."""
        self.parent, self.fork, self.runs = parent, "", list[Run]()
        where = ["train", "new"]
        if parent is not None and step is not None:
            self.fork = f"{parent.name}@{step}"
            checkpoint_of(workspace, self.fork)
            where += ["from", parent.name, str(step)]
        super().__init__(workspace, TrainSettings, _given(settings), address(*where))

    @property
    def settings(self) -> TrainSettings:
        """The checked settings, without those that have several values. Raises ConfigError."""
        return parse(TrainSettings, {name: value for name, value in self.values.items() if name not in self._swept()})

    def _swept(self) -> dict[str, str]:
        kinds = {spec.name: spec.kind for spec in specs(TrainSettings)}
        found = {}
        for name, value in self.values.items():
            if kinds[name] in ("integer", "number") and isinstance(value, str) and "," in value:
                found[name] = value
            elif kinds[name] in ("choice", "switch") and isinstance(value, list):
                found[name] = ",".join(map(str, value))
        return found

    @property
    def run(self) -> Run:
        """The run that was started here, or the first of several. Raises ConfigError before that."""
        self.catch_up()
        place, name, *_ = f"{self.address.removeprefix('#/')}//".split("/")
        if not self.runs and place == "train" and name not in ("", "new"):
            return Run.open(self.workspace, name)
        if not self.runs:
            raise ConfigError("no run was started here yet: press Start, or attach to a run by name")
        return self.runs[0]

    @property
    def live(self) -> RunPanel:
        """The panel of the run. Raises ConfigError before it is started."""
        return RunPanel(self.workspace, self.run.name)

    def start(self, title: str | None = None) -> Run:
        """Start one or more runs with the form's settings, and show and return the first.

        Raises ConfigError, DataError, CannotWrite.
        """
        swept = self._swept()
        single = {name: value for name, value in self.values.items() if name not in swept}
        tried = tuple(f"{name}={value}" for name, value in swept.items())
        title = title or (self.parent.name if self.parent else None)
        made = create(self.workspace, settings=single, name=title, tried=tried, fork=self.fork)
        self.runs = [Run.open(self.workspace, name) for name in made.created]
        self.expect(*_first_calls(self.run))
        self.address = address("train", self.run.name)
        return self.run

    def wait(self, seconds: float | None = None) -> jobs.Status:
        """Wait for the runs started here and return the status of the last. Raises ConfigError if there are none."""
        end = None if seconds is None else time.monotonic() + seconds
        for run in self.runs or [self.run]:
            status = run.wait(None if end is None else max(0.0, end - time.monotonic()))
        return status


def clone_panel(workspace: Workspace, run_name: str, **changed: Any) -> TrainPanel:
    """Return the form of a new run with the settings of another, some changed. Raises ConfigError."""
    parent = Run.open(workspace, run_name)
    return TrainPanel(workspace, parent.settings.changed(**changed), parent)


def fork_panel(workspace: Workspace, run_name: str, step: int, **changed: Any) -> TrainPanel:
    """Return the form of a new run from another's checkpoint, with some settings changed. Raises ConfigError."""
    parent = Run.open(workspace, run_name)
    return TrainPanel(workspace, parent.settings.changed(**changed), parent, step)


class SamplePanel(SettingsForm[SampleSettings]):
    """The form of a sample, the queue and the history. `generate` requests videos like the button."""

    def __init__(self, workspace: Workspace, **values: Any) -> None:
        """Show the form with the given values. Raises ConfigError."""
        super().__init__(workspace, SampleSettings, values, address("sample"))
        self.ids = queue.pending(workspace)

    def generate(self, *wanted: SampleSettings) -> list[str]:
        """Request videos with the given settings, or the form's, and return their ids.

        Raises ConfigError, or DeviceBusy while a training run holds the GPU.
        """
        self.catch_up()
        batch = parse(BatchSettings, self.drafts.get(self.form_name, {}).get("beside", {}))
        many = kept(self.workspace, wanted or expand(self.settings, batch))
        self.ids = queue.submit_all(self.workspace, many, chains=0 if wanted else batch.chains)
        return self.ids

    def generate_with_and_without(self) -> list[str]:
        """Request the form's video by the base model and with the LoRAs, from the same noise. Raises ConfigError."""
        settings = self.settings.settled()
        if not settings.loras:
            raise ConfigError("loras is empty: name a run to compare its LoRA with the base model")
        return self.generate(settings.changed(loras=[]), settings)

    def cancel(self) -> None:
        """Cancel the requests that are not done."""
        queue.cancel_all(self.workspace, self.ids)

    def wait(self, seconds: float | None = None) -> list[Sample]:
        """Wait for the videos and return the finished ones. Raises WorkbenchError."""
        ended = [queue.wait(self.workspace, one, seconds) for one in self.ids]
        for one in ended:
            if one.state is queue.RequestState.FAILED:
                raise WorkbenchError(one.message)
        return [Samples(self.workspace).get(one.id) for one in ended if one.video]


def side_by_side(samples: Sequence[Sample]) -> HTML:
    """Return samples side by side, as a copy that stays in the notebook."""
    return HTML(samples_html(samples))


attach, clip_cards, sample_panel, task_panel, train_panel = RunPanel, ClipCards, SamplePanel, TaskPanel, TrainPanel


def show_objects() -> None:
    """Register panels as the display of runs, datasets, grids and samples in this notebook."""
    if (shell := get_ipython()) is None:
        return
    shown: dict[type[Any], Callable[[Any], View]] = {
        Run: lambda run: RunPanel(Workspace.of(run.folder), run.name),
        Dataset: lambda dataset: ClipCards(Workspace.of(dataset.folder), dataset.name),
        Grid: lambda grid: View(Workspace.of(grid.folder), address("compare", grid.name), label=grid.name),
        Samples: lambda samples: SamplePanel(samples.workspace),
    }
    for kind, view in shown.items():
        show = lambda one, view=view: view(one)._repr_mimebundle_()  # noqa: E731
        shell.display_formatter.mimebundle_formatter.for_type(kind, show)
