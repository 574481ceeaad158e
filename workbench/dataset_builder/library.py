"""Manage the datasets of a workspace: search, rename, remove to the bin, restore. No torch.

A renamed dataset is still found by its former names (Workspace.dataset), so runs that were trained on it can resume.
A dataset that a task, run or encoding uses cannot be renamed or removed.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from workbench import jobs
from workbench.clips.records import read_info, write_info
from workbench.dataset_builder import history
from workbench.dataset_builder.dataset import Dataset
from workbench.dataset_builder.ingest import intake
from workbench.dataset_builder.settings import ImportSettings
from workbench.dataset_builder.tasks import NAMES
from workbench.display.quantities import listed
from workbench.errors import ConfigError
from workbench.jobs import queue
from workbench.runs.data import datasets_of, encoding_jobs
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.workspace import FORMER_NAMES, Workspace, disk, read_to_change, slugify, write_json, writing
from workbench.workspace.folders import Bin

MOST_NAMED = 5  # runs listed in a sentence


def search(workspace: Workspace, text: str = "", group: str | None = None) -> list[Dataset]:
    """Find datasets whose name, title, trigger word, group or notes have all words of `text`; only a group's, if given.

    They are sorted by group (those without one last), then by name.
    """

    def searched(dataset: Dataset) -> str:
        info = dataset.info
        return f"{dataset.name} {info.title} {info.trigger_word} {dataset.group} {dataset.notes}".lower()

    words = text.lower().split()
    found = [one for one in Dataset.all(workspace) if all(word in searched(one) for word in words)]
    return sorted((one for one in found if group in (None, one.group)), key=lambda one: (not one.group, one.group))


def groups(found: Iterable[Dataset]) -> list[str]:
    """List the groups of these datasets by name."""
    return sorted({one.group for one in found} - {""})


def rename(workspace: Workspace, dataset: Dataset, title: str) -> Dataset:
    """Change a dataset's title, and its name accordingly. Raises ConfigError, CannotWrite."""
    if not title.strip():
        sentence = "the title is empty: describe the clips in a few words"
        raise ConfigError(sentence, {"title": sentence})
    old, name = dataset.name, slugify(title)
    with _unused(workspace, dataset):
        info, former = read_info(dataset.folder), workspace.former_names
        target = workspace.datasets / name
        if name != old and (target.exists() or former.get(name, old) != old):
            sentence = f"a dataset {name!r} already exists, or did before it was renamed: use another title"
            raise ConfigError(sentence, {"title": sentence})
        if name != old:
            read_to_change(workspace.datasets / FORMER_NAMES)
            moved = {one: name if current == old else current for one, current in former.items() if one != name}
            write_json(workspace.datasets / FORMER_NAMES, {**moved, old: name})
            with writing(target):
                disk.replace(dataset.folder, target)
            _move_uploads(target, dataset.folder)
        renamed = Dataset(target)
        write_info(target, info.model_copy(update={"title": title.strip()}))
        history.note(target, f"renamed to {title.strip()}")
    return renamed


def remove(workspace: Workspace, dataset: Dataset) -> str:
    """Move a dataset to the bin; return a message about it. Raises ConfigError, CannotWrite."""
    with _unused(workspace, dataset):
        needed = consequence(workspace, dataset)
        name = _bin(workspace).put(dataset.folder)
    done = f"{dataset.name} was removed. To restore it: workbench dataset restore {name}."
    return f"{done} {needed}".strip()


def removed(workspace: Workspace) -> list[str]:
    """List the names of removed datasets, the most recently removed first."""
    return _bin(workspace).names


def restore(workspace: Workspace, name: str) -> Dataset:
    """Restore a removed dataset. Raises ConfigError if there is none or its name is taken, CannotWrite."""
    return Dataset(_bin(workspace).restore(name, workspace.former_names))


def consequence(workspace: Workspace, dataset: Dataset) -> str:
    """Explain what will not work while a dataset is in the bin; "" if nothing needs it."""
    runs = [run.name for run in runs_of(workspace, dataset)]
    if not runs:
        return ""
    named = listed(runs, MOST_NAMED)
    return f"Trained on it: {named}. Their results stay; to resume, repeat or fork them, restore the dataset first."


def runs_of(workspace: Workspace, dataset: Dataset) -> list[Run]:
    """List the runs that were trained on a dataset or measured with it, newest first."""
    found = []
    for run in Run.all(workspace):
        with contextlib.suppress(ConfigError):  # settings of another version, which cannot resume either
            if _uses(workspace, run.settings, dataset):
                found.append(run)
    return found


def _uses(workspace: Workspace, settings: TrainSettings, dataset: Dataset) -> bool:
    return any(workspace.dataset(name) == dataset.folder for _, name in datasets_of(settings))


@contextlib.contextmanager
def _unused(workspace: Workspace, dataset: Dataset) -> Iterator[None]:
    """Lock the queue and the dataset's import. Raises ConfigError if a task, run or encoding uses the dataset."""
    name = dataset.name
    with jobs.locked(workspace.runs / queue.LOCK):  # so that no run is queued in the meantime
        if task := next((task for task in NAMES if dataset.task(task).status.state.alive), None):
            raise ConfigError(f"{name} has a running task ({task}): wait for its end, or stop it")
        if run := next((run for run in runs_of(workspace, dataset) if jobs.status(run.folder).state.alive), None):
            raise ConfigError(f"the run {run.name} uses {name}: wait for its end, or workbench runs stop {run.name}")
        if job := next((job for job, of in encoding_jobs(workspace) if _uses(workspace, of, dataset)), None):
            stop = (job / "control" / "stop").relative_to(workspace.root).as_posix()
            raise ConfigError(f"{name} is being encoded: wait for its end, or create {stop} in the workspace")
        with intake.import_lock(dataset.folder):
            yield


def _move_uploads(folder: Path, before: Path) -> None:
    """Update the paths of uploaded files, which are in the dataset's folder, in the settings of a stopped import."""
    path = folder / ".import" / jobs.CONFIG
    if not path.exists():
        return
    settings = ImportSettings.load(path)
    inside = f"{before}{os.sep}"
    sources = (str(folder / one.removeprefix(inside)) if one.startswith(inside) else one for one in settings.sources)
    settings.changed(sources=tuple(sources), dataset=folder.name).save(path)


def _bin(workspace: Workspace) -> Bin:
    return Bin(workspace.datasets, "dataset")
