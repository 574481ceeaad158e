"""Background tasks of a dataset in the shell: start one, watch it, stop it, let it go on. Ctrl-C stops watching only.

Not covered: what the tasks do (workbench.dataset_builder.tasks and the modules it names).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from workbench import jobs
from workbench.cli.datasets import outcomes
from workbench.cli.follow import doing, watch
from workbench.cli.options import Command, with_workspace
from workbench.dataset_builder.dataset import Dataset
from workbench.dataset_builder.tasks import NAMES, Name
from workbench.errors import ConfigError, ExitCode
from workbench.jobs import State
from workbench.settings import Settings


def with_dataset(command: Command) -> Command:
    """Give the command the dataset that its first argument, NAME, names."""

    @click.argument("name")
    @with_workspace
    @functools.wraps(command)
    def opened(workspace: Any, *args: Any, name: str, **keywords: Any) -> Any:
        return command(Dataset.open(workspace, name), *args, **keywords)

    return opened


def task_flags(command: Command) -> Command:
    """--config and --detach, which every command has that starts a task."""
    command = click.option("--detach", is_flag=True, help="Start the task and return at once.")(command)
    about = "Settings from a JSON file. Flags win over it."
    return click.option("--config", type=click.Path(path_type=Path), metavar="FILE", help=about)(command)


def run_task(dataset: Dataset, task: Name, settings: Settings, detach: bool) -> int:
    """Start a task and watch it to its end; returns the exit code for the shell. Raises ConfigError, CannotWrite."""
    return _begun(dataset, task, lambda: dataset.task(task).start(settings), detach)


def _begun(dataset: Dataset, task: Name, begin: Callable[[], object], detach: bool) -> int:
    if not detach:
        return watch_task(dataset, task, begin)
    begin()
    return started(dataset, task)


def started(dataset: Dataset, task: Name) -> int:
    """Say how to see a task again; the exit code of a task that goes on by itself."""
    click.echo(f"started the task {task}: workbench dataset follow {dataset.name} {task}")
    return 0


def watch_task(dataset: Dataset, task: Name, begin: Callable[[], object] = lambda: None) -> int:
    """Watch a task to its end and say what came of it; Ctrl-C leaves it alone and returns 0. begin: starts it."""
    status = watch(lambda: dataset.task(task).status, begin=begin)
    if status is None:
        click.echo(
            f"\nThe task {task} goes on. See it again: workbench dataset follow {dataset.name} {task}; "
            f"end it: workbench dataset stop {dataset.name} {task}"
        )
        return 0
    if status.state is State.NEW:
        click.echo(f"{dataset.name} never had the task {task}")
        return 0
    if status.state is State.FINISHED:
        for line in outcomes.outcome_lines(dataset, task):
            click.echo(line)
        return 0
    click.echo(f"Error: {status.message}", err=True)
    click.echo(f"let it go on: workbench dataset start {dataset.name} {task}", err=True)
    return int(status.exit_code or ExitCode.BUG)


def _task_argument(command: Command) -> Command:
    argument: Callable[[Command], Command] = click.argument("task", type=click.Choice(NAMES))
    return argument(command)


@click.command()
@with_dataset
def tasks(dataset: Dataset) -> None:
    """What the background tasks do, or how they ended."""
    found = [(name, dataset.task(name).status) for name in NAMES]
    for name, status in found:
        if status.state is not State.NEW:
            count = f" {status.step}/{status.total}" if status.state.alive and status.total else ""
            ended = f", {jobs.ago(status.ended_at)}" if status.ended_at else ""
            message = f": {status.message}" if status.message else ""
            click.echo(f"{name:<8} {doing(status)}{count}{ended}{message}")
    if all(status.state is State.NEW for _, status in found):
        click.echo("no tasks yet: import, split, check, fix, auto-caption and export start one")


@click.command()
@with_dataset
@_task_argument
def follow(dataset: Dataset, task: Name) -> int:
    """Watch a task until it ends. Ctrl-C stops watching, not the task."""
    return watch_task(dataset, task)


@click.command()
@with_dataset
@_task_argument
@click.option("--detach", is_flag=True, help="Return at once.")
def start(dataset: Dataset, task: Name, detach: bool) -> int:
    """Let a task that ended go on with the settings it had."""
    if dataset.task(task).status.state is State.NEW:
        raise ConfigError(f"{dataset.name} never had the task {task}: start it with its own command")
    return _begun(dataset, task, dataset.task(task).go_on, detach)


@click.command()
@with_dataset
@_task_argument
def stop(dataset: Dataset, task: Name) -> None:
    """End a task; what it has done stays."""
    if not (status := dataset.task(task).status).state.alive:
        raise ConfigError(
            f"the task {task} of {dataset.name} is {status.state.value}: only a running one can be stopped"
        )
    dataset.task(task).stop()
    click.echo(f"{task} ends: workbench dataset follow {dataset.name} {task}")
