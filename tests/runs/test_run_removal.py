"""Removing whole runs and restoring them: never a living one, nothing is deleted, and forks are named."""

from __future__ import annotations

import os

import pytest

from tests.written_run import write_run
from workbench import jobs
from workbench.errors import ConfigError
from workbench.jobs import processes
from workbench.runs.run import Run, remove_run, removed_runs, restore_run
from workbench.runs.snapshot import snapshot
from workbench.workspace import Workspace, write_json
from workbench.workspace.folders import MOST_NOTES


def files(run: Run) -> dict[str, bytes]:
    return {str(path.relative_to(run.folder)): path.read_bytes() for path in run.folder.rglob("*") if path.is_file()}


def test_a_removed_run_is_gone_and_comes_back_as_it_was(workspace: Workspace) -> None:
    run, fork = write_run(workspace, "cats", 20), write_run(workspace, "kittens", 20)
    write_json(fork.folder / "parent.json", {"run": "cats", "step": 10, "changed": {}})
    before = files(run)
    text = remove_run(workspace, run)
    assert text.startswith("cats is removed. To restore it: workbench runs restore cats.")
    assert text.endswith("Began at it, and go on without it: kittens.")
    assert [one.name for one in Run.all(workspace)] == ["kittens"]
    again = write_run(workspace, "cats", 20)  # its name is free
    with pytest.raises(ConfigError, match="there is a run 'cats' again"):
        restore_run(workspace, "cats")
    remove_run(workspace, again)
    assert set(removed_runs(workspace)) == {"cats", "cats-2"}
    assert files(restore_run(workspace, "cats")) == before
    assert removed_runs(workspace) == ["cats-2"]
    with pytest.raises(ConfigError, match="no removed run 'dogs': choose one of cats-2"):
        restore_run(workspace, "dogs")


def test_a_living_run_is_not_removed(workspace: Workspace) -> None:
    run = write_run(workspace, "cats", 20)
    (run.folder / jobs.RESULT).unlink()
    write_json(run.folder / jobs.PROCESS, {**processes.identity(os.getpid()), "started_at": 1.0})
    with pytest.raises(ConfigError, match="cannot be removed: workbench runs stop cats first"):
        remove_run(workspace, run)
    assert run.folder.exists()


def test_notes_are_kept_with_the_run(workspace: Workspace) -> None:
    run = write_run(workspace, "cats", 20)
    assert run.notes == ""
    run.write_notes("the best so far\n")
    assert snapshot(run).own_notes == "the best so far"
    with pytest.raises(ConfigError, match="shorten them"):
        run.write_notes("x" * (MOST_NOTES + 1))
