"""Runs as a list: found, ordered, grouped, renamed, removed and restored."""

from __future__ import annotations

import os

import pytest

from tests.written_run import ended, write_run
from workbench import jobs
from workbench.errors import ConfigError
from workbench.jobs import processes
from workbench.runs.listing import RunEntry, entries_of, matching, ordered
from workbench.runs.run import REMOTE, Run, remove_run, removed_runs, rename_run, restore_run
from workbench.workspace import Workspace, write_json


@pytest.fixture
def entries(workspace: Workspace) -> list[RunEntry]:
    """Three runs: cats, the oldest, failed; dogs, of a group and with notes, finished; birds waits."""
    for age, name in enumerate(("birds", "dogs", "cats")):
        run = write_run(workspace, name, 20)
        os.utime(run.folder / jobs.CONFIG, (1000 - age, 1000 - age))
    ended(workspace.run("cats"), "failed", 1)
    Run(workspace.run("dogs")).set_group("  rank  study ")
    Run(workspace.run("dogs")).write_notes("The Best so far")
    (workspace.run("birds") / jobs.RESULT).unlink()
    write_json(workspace.run("birds") / jobs.PROCESS, {**processes.identity(os.getpid()), "started_at": 1.0})
    return entries_of(jobs.jobs_in(workspace.runs), ["birds"])


def names(found: list[RunEntry]) -> list[str]:
    return [one.name for one in found]


def test_a_search_looks_at_every_word_of_name_state_group_dataset_model_and_notes(entries: list[RunEntry]) -> None:
    assert names(matching(entries, "")) == ["birds", "dogs", "cats"]
    for search in ("DOG", "best far", "rank study", "finished", "dogs cats finished"):
        assert names(matching(entries, search)) == ["dogs"], search  # each was trained on the dataset cats
    assert names(matching(entries, "waiting")) == ["birds"]
    assert names(matching(entries, "dogs failed")) == []
    assert names(matching(entries, "", "rank study")) == ["dogs"]
    assert names(matching(entries, "", "")) == ["birds", "cats"]


def test_orders_keep_groups_together(entries: list[RunEntry]) -> None:
    assert names(ordered(entries)) == ["birds", "cats", "dogs"]
    assert names(ordered(entries, "name")) == ["birds", "cats", "dogs"]
    assert names(ordered(entries, "state")) == ["birds", "cats", "dogs"]  # what goes on, what failed, what is over
    assert names(ordered(entries, "active")) == ["dogs", "cats", "birds"]  # it began in 1970
    with pytest.raises(ConfigError, match="choose one of newest, active, name"):
        ordered(entries, "color")  # type: ignore[arg-type]


def test_states_and_what_was_changed_since(workspace: Workspace, entries: list[RunEntry]) -> None:
    birds, _, cats = entries
    assert (birds.state, birds.ended, cats.state) == ("waiting", None, "failed")
    statuses = jobs.jobs_in(workspace.runs)
    for group in ("", "new", ""):
        Run(workspace.run("cats")).set_group(group)
        assert entries_of(statuses, [])[2].group == group
    dogs_run = Run(workspace.run("dogs"))
    for wrong in ("x" * 61, "a\x1b[2Jb"):
        with pytest.raises(ConfigError, match="at most 60 characters, all printable"):
            dogs_run.set_group(wrong)


def test_a_renamed_run_keeps_all_and_its_forks_name_it_anew(workspace: Workspace, entries: list[RunEntry]) -> None:
    write_json(workspace.run("cats") / "parent.json", {"run": "dogs", "step": 10, "changed": {}})
    run = Run(workspace.run("dogs"))
    renamed = rename_run(workspace, run, "hounds")
    assert (renamed.name, renamed.group, renamed.notes) == ("hounds", "rank study", "The Best so far")
    assert not run.folder.exists()
    assert Run(workspace.run("cats")).parent["run"] == "hounds"
    assert rename_run(workspace, renamed, "hounds").name == "hounds"
    with pytest.raises(ConfigError, match="a run named 'cats' already exists"):
        rename_run(workspace, renamed, "cats")
    with pytest.raises(ConfigError, match="use 'big-dogs'"):
        rename_run(workspace, renamed, "Big dogs")
    with pytest.raises(ConfigError, match="cannot be renamed: stop it first .workbench runs stop birds."):
        rename_run(workspace, Run(workspace.run("birds")), "eagles")
    write_json(renamed.folder / REMOTE, {"target": "box"})
    with pytest.raises(ConfigError, match="trains on box"):
        rename_run(workspace, renamed, "dogs")


# ---- removal


def files(run: Run) -> dict[str, bytes]:
    return {str(path.relative_to(run.folder)): path.read_bytes() for path in run.folder.rglob("*") if path.is_file()}


def test_a_removed_run_is_gone_and_comes_back_as_it_was(workspace: Workspace) -> None:
    run, fork = write_run(workspace, "cats", 20), write_run(workspace, "kittens", 20)
    write_json(fork.folder / "parent.json", {"run": "cats", "step": 10, "changed": {}})
    before = files(run)
    text = remove_run(workspace, run)
    assert text.startswith("cats was removed. To restore it: workbench runs restore cats.")
    assert text.endswith("Its forks are not affected: kittens.")
    assert [one.name for one in Run.all(workspace)] == ["kittens"]
    again = write_run(workspace, "cats", 20)  # its name is free
    with pytest.raises(ConfigError, match="a run named 'cats' already exists"):
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
    with pytest.raises(ConfigError, match="cannot be removed: stop it first .workbench runs stop cats."):
        remove_run(workspace, run)
    assert run.folder.exists()
