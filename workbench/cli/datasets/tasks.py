"""Background tasks of a dataset in the shell: start one, watch it, stop it, let it go on. Ctrl-C stops watching only.

Not covered: what the tasks do (workbench.dataset_builder.tasks and the modules it names), what is said of one
(workbench.dataset_builder.snapshot).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict

import click

from workbench import jobs
from workbench.cli.follow import doing, follow_job
from workbench.cli.options import Command, config_flag, detach_flag, json_flag, with_opened
from workbench.cli.printing import print_json, say
from workbench.dataset_builder.checks.findings import CheckReport
from workbench.dataset_builder.dataset import Dataset
from workbench.dataset_builder.snapshot import task_snapshot
from workbench.dataset_builder.tasks import NAMES, Name
from workbench.errors import ConfigError
from workbench.jobs import State
from workbench.settings import Settings

MOST_OF_A_KIND = 20  # findings

with_dataset = with_opened(Dataset.open)
task_argument = click.argument("task", type=click.Choice(NAMES))


def task_flags(command: Command) -> Command:
    """--config and --detach, which every command has that starts a task."""
    return config_flag()(detach_flag(command))


def run_task(dataset: Dataset, task: Name, settings: Settings, detach: bool) -> int:
    """Start a task and watch it to its end; returns the exit code for the shell. Raises ConfigError, CannotWrite."""
    return watch_task(dataset, task, lambda: dataset.task(task).start(settings), detach)


def watch_task(dataset: Dataset, task: Name, begin: Callable[[], object] = lambda: None, detach: bool = False) -> int:
    """Watch a task to its end and say what came of it. begin: starts it;  detach: only start it"""
    named = f"{dataset.name} {task}"
    follow, stop = f"workbench dataset follow {named}", f"workbench dataset stop {named}"
    return follow_job(
        lambda: dataset.task(task).status,
        lambda: outcome_lines(dataset, task),
        f"The task {task} goes on. See it again: {follow}; end it: {stop}",
        begin,
        detach,
        remedy=f"let it go on: workbench dataset start {named}",
    )


def outcome_lines(dataset: Dataset, name: Name) -> Iterator[str]:
    """How a task that is over ended, with the commands that come next."""
    task = task_snapshot(dataset.task(name))
    yield from (one.sentence for one in task.files)
    yield from filter(None, (*task.details, task.sentence))
    if name == "import":
        yield f"{dataset.name}: {dataset.summary.sentence}"
        yield f"train on it: workbench train --dataset {dataset.name}"
    if name == "check" and (report := dataset.report) is not None:
        yield from report_lines(dataset, report)


def report_lines(dataset: Dataset, report: CheckReport, kind: str = "", most: int = MOST_OF_A_KIND) -> Iterator[str]:
    """The findings by kind, the worst first, each kind with the commands that fix it; kind: that one alone."""
    yield f"{dataset.name}: {report.sentence}"
    clips = {clip.file_name: clip.name for clip in dataset.clips}
    for group in report.groups:
        if kind not in ("", group.kind):
            continue
        yield ""
        yield f"{group.kind} ({len(group.findings)}, {group.severity.value}): {group.title}"
        for finding in group.findings[:most]:
            names = ", ".join(clips[one] for one in finding.clips[:6]) + (" ..." if len(finding.clips) > 6 else "")
            yield f"  {finding.sentence}" + (f"  [{names}]" if len(finding.clips) > 1 else "")
        if len(group.findings) > most:
            yield f"  ... all of them: workbench dataset findings {dataset.name} {group.kind}"
        if group.fixes:
            ways = " | ".join(fix.replace("_", "-") for fix in group.fixes)
            yield f"  fix: workbench dataset fix {dataset.name} {group.kind} {ways}"


@click.command()
@with_dataset
@json_flag
def tasks(dataset: Dataset, as_json: bool) -> None:
    """What the background tasks do, or how they ended."""
    if as_json:
        print_json([asdict(one) for one in dataset.snapshot().tasks])
        return
    found = [(name, dataset.task(name).status) for name in NAMES]
    for name, status in found:
        if status.state is not State.NEW:
            count = f" {status.step}/{status.total}" if status.state.alive and status.total else ""
            ended = f", {jobs.ago(status.ended_at)}" if status.ended_at else ""
            message = f": {status.message}" if status.message else ""
            say(f"{name:<8} {doing(status)}{count}{ended}{message}")
    if all(status.state is State.NEW for _, status in found):
        say("no tasks yet: import, split, check, fix, auto-caption and export start one")


@click.command()
@with_dataset
@task_argument
def follow(dataset: Dataset, task: Name) -> int:
    """Watch a task until it ends. Ctrl-C stops watching, not the task."""
    if dataset.task(task).status.state is State.NEW:
        say(f"{dataset.name} never had the task {task}")
        return 0
    return watch_task(dataset, task)


@click.command()
@with_dataset
@task_argument
@detach_flag
def start(dataset: Dataset, task: Name, detach: bool) -> int:
    """Let a task that ended go on with the settings it had."""
    if dataset.task(task).status.state is State.NEW:
        raise ConfigError(f"{dataset.name} never had the task {task}: start it with its own command")
    return watch_task(dataset, task, dataset.task(task).go_on, detach)


@click.command()
@with_dataset
@task_argument
def stop(dataset: Dataset, task: Name) -> None:
    """End a task; what it has done stays."""
    if not (status := dataset.task(task).status).state.alive:
        raise ConfigError(
            f"the task {task} of {dataset.name} is {status.state.value}: only a running one can be stopped"
        )
    dataset.task(task).stop()
    say(f"{task} ends: workbench dataset follow {dataset.name} {task}")
