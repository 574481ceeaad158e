"""Datasets as a whole: renamed ones are found by their runs, removed ones come back as they were, used ones stay."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.shell import Shell
from tests.test_overview import at_work
from tests.written_run import ended, write_run
from workbench import jobs
from workbench.dataset_builder import Dataset
from workbench.dataset_builder import library as dataset_library
from workbench.dataset_builder.ingest import intake
from workbench.dataset_builder.settings import ImportSettings
from workbench.errors import ConfigError
from workbench.jobs import processes
from workbench.runs.checks import check
from workbench.runs.data import load_data
from workbench.runs.settings import TrainSettings
from workbench.workspace import Workspace, write_json
from workbench.workspace.folders import MOST_NOTES


def files(folder: Path) -> dict[str, bytes]:
    found = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in found.items() if path.name != "lock"}


def names(workspace: Workspace) -> list[str]:
    return [one.name for one in Dataset.all(workspace)]


def test_a_renamed_dataset_is_found_by_its_former_names(workspace: Workspace, dataset: Dataset) -> None:
    settings = TrainSettings(dataset="squares", frames=9)
    before = load_data(workspace, settings).lock()
    first = dataset_library.rename(workspace, dataset, "Colored squares")
    again = dataset_library.rename(workspace, first, "Ésquares")
    assert (again.name, again.info.title) == ("esquares", "Ésquares")
    assert names(workspace) == ["esquares"]
    for former in ("squares", "colored-squares"):
        assert Dataset.open(workspace, former).name == "esquares"
    assert load_data(workspace, settings).lock() == before  # what a resumed run compares
    assert Dataset.create(workspace, "Squares").name == "squares-2"  # no run finds other clips under its dataset's name
    with pytest.raises(ConfigError, match="there is a dataset 'squares-2' already"):
        dataset_library.rename(workspace, again, "squares-2")
    with pytest.raises(ConfigError, match="the title is empty"):
        dataset_library.rename(workspace, again, " ")
    back = dataset_library.rename(workspace, again, "squares")
    assert (back.name, Dataset.open(workspace, "esquares").name) == ("squares", "squares")
    assert [one.what for one in back.history if one.kind == "note"][-1] == "renamed to squares"


def test_undoing_a_trigger_word_keeps_the_title(workspace: Workspace, dataset: Dataset) -> None:
    dataset.set_trigger_word("other")
    renamed = dataset_library.rename(workspace, dataset, "New")
    renamed.undo()
    assert (renamed.info.title, renamed.info.trigger_word) == ("New", "zwx")


def test_dropped_files_are_found_after_a_rename(workspace: Workspace, dataset: Dataset) -> None:
    """An import that was stopped can be resumed."""
    upload = dataset.folder / ".import" / "uploads" / "a.mp4"
    settings = ImportSettings(sources=(str(upload), "/elsewhere/b.mp4"), dataset=dataset.name)
    settings.save(dataset.folder / ".import" / jobs.CONFIG)
    renamed = dataset_library.rename(workspace, dataset, "New")
    kept = ImportSettings.load(renamed.folder / ".import" / jobs.CONFIG)
    assert kept.sources == (str(renamed.folder / ".import" / "uploads" / "a.mp4"), "/elsewhere/b.mp4")


def test_a_removed_dataset_comes_back_as_it_was(workspace: Workspace, dataset: Dataset) -> None:
    run = write_run(workspace, "cats", 20)
    run.settings.changed(dataset="squares").save(run.folder / jobs.CONFIG)
    before = files(dataset.folder)
    assert dataset_library.consequence(workspace, dataset).startswith("Trained on it: cats. What they made stays")
    done = dataset_library.remove(workspace, dataset)
    assert done.startswith("squares is removed. To restore it: workbench dataset restore squares. Trained")
    assert names(workspace) == []
    with pytest.raises(ConfigError, match="'squares', which was removed: workbench dataset restore squares"):
        check(workspace, TrainSettings(dataset="squares"))
    Dataset.create(workspace, "Squares")
    with pytest.raises(ConfigError, match="there is a dataset 'squares' again: remove that one first"):
        dataset_library.restore(workspace, "squares")
    assert "restore squares-2." in dataset_library.remove(workspace, Dataset.open(workspace, "squares"))
    assert dataset_library.removed(workspace) == ["squares-2", "squares"]
    restored = dataset_library.restore(workspace, "squares")
    assert (restored.name, files(restored.folder)) == ("squares", before)
    with pytest.raises(ConfigError, match="no removed dataset 'dogs': choose one of squares-2"):
        dataset_library.restore(workspace, "dogs")


def test_what_is_used_is_neither_renamed_nor_removed(workspace: Workspace, dataset: Dataset) -> None:
    def refused(words: str) -> None:
        with pytest.raises(ConfigError, match=words):
            dataset_library.remove(workspace, dataset)
        with pytest.raises(ConfigError, match=words):
            dataset_library.rename(workspace, dataset, "Other")
        assert names(workspace) == ["squares"]

    task = dataset.folder / ".check"
    write_json(task / jobs.CONFIG, {})
    write_json(task / jobs.PROCESS, {**processes.identity(os.getpid()), "started_at": 1.0})
    refused("has a task at work \\(check\\): wait for its end, or stop it")
    ended(task, "finished", 0)
    run = write_run(workspace, "cats", 20)
    run.settings.changed(dataset="none", more_datasets=("squares=2",)).save(run.folder / jobs.CONFIG)
    at_work(run)
    refused("the run cats uses squares: wait for its end, or workbench runs stop cats")
    ended(run.folder, "stopped", 0)
    encoding = workspace.cache / "encoding" / "key" / "host"
    write_json(encoding.parent / "work.json", {"settings": {"dataset": "none", "more_datasets": ["squares=2"]}})
    write_json(encoding / jobs.CONFIG, {})
    write_json(encoding / jobs.PROCESS, {**processes.identity(os.getpid()), "started_at": 1.0})
    refused("squares is being encoded: wait for its end, or create cache/encoding/key/host/control/stop")
    ended(encoding, "stopped", 0)
    with intake.import_lock(dataset.folder):  # by import_files, in a notebook
        refused("another import into squares is running")


def test_datasets_are_searched_by_name_title_trigger_word_and_notes(
    workspace: Workspace, dataset: Dataset, shell: Shell
) -> None:
    other = Dataset.create(workspace, "Dogs at night")
    other.write_notes("too dark\nask Ann")
    assert [one.name for one in dataset_library.search(workspace, "ann DARK")] == ["dogs-at-night"]
    assert [one.name for one in dataset_library.search(workspace, "zwx")] == ["squares"]
    assert len(dataset_library.search(workspace, "")) == 2
    assert "dogs-at-night" not in shell("dataset", "list", "--search", "zwx").out
    assert "no dataset fits" in shell("dataset", "list", "--search", "x y").out
    with pytest.raises(ConfigError, match="shorten them"):
        other.write_notes("x" * (MOST_NOTES + 1))
    seen = other.snapshot()
    assert seen.own_notes == "too dark\nask Ann"
    assert seen.created_at is not None
    assert seen.changed_at is not None
    assert seen.changed_at >= seen.created_at - 1


def test_datasets_of_a_group_stand_together(workspace: Workspace, dataset: Dataset, shell: Shell) -> None:
    cats, dogs = (Dataset.create(workspace, title) for title in ("Cats", "Dogs"))
    Dataset.create(workspace, "Ants")
    dogs.set_group("  for   the film ")
    assert json.loads(shell("dataset", "group", "squares", "art", "--json").out) == {"name": "squares", "group": "art"}
    assert [one.name for one in dataset_library.search(workspace)] == ["squares", "dogs", "ants", "cats"]
    assert [one.name for one in dataset_library.search(workspace, "FILM")] == ["dogs"]
    assert [one.name for one in dataset_library.search(workspace, group="")] == ["ants", "cats"]
    assert dataset_library.groups(Dataset.all(workspace)) == ["art", "for the film"]
    listed = json.loads(shell("dataset", "list", "--json").out)
    assert [one["name"] for one in listed] == ["squares", "dogs", "ants", "cats"]
    assert listed[1]["group"] == "for the film"
    assert json.loads(shell("dataset", "list", "--group", "art", "--json").out) == listed[:1]
    assert json.loads(shell("dataset", "list", "--group", "music", "--json").out) == []
    assert [one["name"] for one in json.loads(shell("dataset", "list", "--group", "", "--json").out)] == [
        "ants",
        "cats",
    ]
    assert dogs.snapshot().group == "for the film"
    assert cats.group == ""
    assert json.loads(shell("dataset", "group", "cats", "--json").out)["group"] == ""
    assert json.loads(shell("dataset", "group", "dogs", "", "--json").out)["group"] == ""
    before = cats.version
    with pytest.raises(ConfigError, match="at most 60 characters"):
        cats.set_group("x" * 61)
    assert cats.version == before


def test_the_shell_renames_notes_removes_and_restores(shell: Shell, workspace: Workspace, dataset: Dataset) -> None:
    assert json.loads(shell("dataset", "rename", "squares", "My squares", "--json").out)["name"] == "my-squares"
    assert shell("dataset", "note", "squares", "the good ones").code == 0
    shown = shell("dataset", "show", "my-squares").out
    assert "last changed" in shown
    assert "the good ones" in shown
    assert shell("dataset", "remove", "my-squares", "--yes").code == 0
    assert json.loads(shell("dataset", "bin", "--json").out) == [{"id": "my-squares"}]
    assert shell("dataset", "list").out.startswith("no dataset fits")
    assert shell("dataset", "restore", "my-squares").code == 0
    assert names(workspace) == ["my-squares"]
