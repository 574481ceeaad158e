"""--json: every command that shows something prints one JSON document with the keys that docs/json.md names."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import click

from tests.loras.making import put_export
from tests.shell import Shell
from tests.test_overview import add_sample, at_work
from tests.written_grid import write_grid
from tests.written_run import write_run
from workbench.cli import COMMANDS, cli, json_values
from workbench.cli.json_documents import DOCUMENTS
from workbench.dataset_builder.dataset import Dataset
from workbench.loras import removal as loras
from workbench.runs import removal as runs
from workbench.sampler.queue import Progress, RequestState
from workbench.sampler.settings import SampleSettings
from workbench.workspace import Workspace, write_json

GIVEN = {
    "dataset show": ("squares",),
    "dataset stats": ("squares",),
    "dataset check": ("squares",),
    "dataset findings": ("squares",),
    "dataset tasks": ("squares",),
    "dataset history": ("squares",),
    "dataset plan": ("squares",),
    "dataset tags": ("squares",),
    "dataset restore": ("squares",),
    "fit": ("--dataset", "squares", "--gpu-memory", "24"),
    "runs show": ("done",),
    "runs compare": ("done", "other"),
    "loras show": ("runs/ring",),
}
FILLED = {"dataset history", "dataset tags", "dataset restore", "runs restore", "loras restore", "loras formats"}
# They need a worker, another machine, a file (tests/loras/test_match_report.py).
ELSEWHERE = {"sample", "targets check", "loras import", "loras convert"}


def with_json() -> Iterator[str]:
    """Every command that has --json."""

    def below(command: click.Command, name: str) -> Iterator[str]:
        if any("--json" in option.opts for option in command.params):
            yield name
        if isinstance(command, click.Group):
            context = click.Context(command)
            for one in command.list_commands(context):
                if (found := command.get_command(context, one)) is not None:
                    yield from below(found, f"{name} {one}".strip())

    yield from below(cli, "")


def test_every_command_with_json_is_documented() -> None:
    assert set(with_json()) - {"targets list"} == set(DOCUMENTS)
    assert {name.split()[0] for name in DOCUMENTS} <= set(COMMANDS)


def test_each_prints_one_document_with_the_keys_that_are_documented(
    shell: Shell, workspace: Workspace, dataset: Dataset
) -> None:
    write_run(workspace, "done", 20)
    write_run(workspace, "other", 20, rank=4)
    at_work(write_run(workspace, "working", 20))
    add_sample(workspace, "a cat")
    put_export(workspace, "ring", rank=4, alpha=2.0, step=30)
    grid = write_grid(workspace)
    dataset.remove(dataset.clips[0].id)
    runs.remove(workspace, write_run(workspace, "gone", 20))
    put_export(workspace, "old", rank=4, alpha=2.0, step=30)
    loras.remove(workspace, ["runs/old"])
    write_json(workspace.root / "targets" / "box.json", {"kind": "ssh", "host": "box"})
    write_json(workspace.root / "targets" / "bad.json", {"kind": "ftp"})
    given = {**GIVEN, "grid show": (grid.name,), "doctor": ("--quick",)}
    for command in [name for name in DOCUMENTS if name not in ELSEWHERE]:
        done = shell(*command.split(), *given.get(command, ()), "--json")
        assert done.out, (command, done.err)
        check(command, json.loads(done.out))
        if command in FILLED:
            assert json.loads(done.out), command
    buckets = json.loads(shell("dataset", "plan", "squares", "--buckets", "2", "--json").out)
    check("dataset plan", buckets)
    assert sum(buckets["buckets"].values()) == sum(one["bucket"] is not None for one in buckets["clips"])
    listed = json.loads(shell("runs", "--json").out)
    states = {one["name"]: one["state"] for one in listed}
    assert (states["done"], states["working"]) == ("finished", "running")
    assert json.loads(shell("runs", "queue", "--json").out)["now"] == ["working"]
    shown = json.loads(shell("dataset", "show", "squares", "--json").out)
    assert len(shown["clips"]) == shown["summary"]["clips"] > 0
    assert shown["clips"][0]["caption"]
    assert [one["problem"] == "" for one in json.loads(shell("targets", "list", "--json").out)] == [False, True]


def check(command: str, printed: Any) -> None:
    document = DOCUMENTS[command]
    assert isinstance(printed, list) == document.many, command
    for one in printed if document.many else [printed]:
        assert set(one) == set(document.keys), command


def test_a_sample_is_documented() -> None:
    done = Progress("20260101-120000-000-0000", RequestState.DONE, SampleSettings(prompt="a cat"))
    check("sample", [json_values.sample(done)])


def test_json_goes_with_nothing_that_prints_or_does_not_wait(shell: Shell, dataset: Dataset) -> None:
    refused = shell("dataset", "check", "squares", "--json", "--detach")
    assert (refused.code, refused.out) == (64, "")
    refused = shell("fit", "--dataset", "squares", "--measure", "--json")
    assert (refused.code, refused.out) == (64, "")
    unknown = shell("runs", "show", "nobody", "--json")
    assert unknown.code
    assert not unknown.out
