"""The command of `workbench dataset` that watches a task in a terminal; the others are operations."""

from __future__ import annotations

import click

from workbench.cli.follow import follow_operation
from workbench.cli.options import with_workspace
from workbench.cli.printing import say
from workbench.dataset_builder.tasks import NAMES
from workbench.jobs import State
from workbench.operations import datasets as operations
from workbench.workspace import Workspace


@click.command()
@click.argument("name")
@click.argument("task", type=click.Choice(NAMES))
@with_workspace
def follow(workspace: Workspace, name: str, task: str) -> int:
    """Watch a task until it ends. Ctrl-C stops watching, not the task."""

    def now() -> operations.DatasetTask:
        return operations.job(workspace, f"{name}/{task}")

    found = now()
    if found.state == State.NEW:
        say(f"{name} never had the task {task}")
        return 0
    return follow_operation(found, now)


SECTION, COMMANDS = operations.TASKS, (follow,)
