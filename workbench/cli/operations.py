"""Commands of the operations: `workbench NOUN VERB`, made from what `operations.registry` declares.

An input is an argument or a flag, as a setting is. People get a table, or a line a field; --json prints the whole
answer. A long-running operation is followed to its end; Ctrl-C ends the watching, not the job. What removes anything
lists it and asks first; with --json, which prints the answer alone, it needs --yes.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from workbench import jobs
from workbench.cli.follow import follow_job
from workbench.cli.options import (
    SettingsCommand,
    json_flag,
    settings_flags,
    settings_from,
    with_workspace,
    workspace_flag,
    yes_flag,
)
from workbench.cli.printing import ask, print_json, say, say_lines
from workbench.cli.tables import print_table
from workbench.operations.registry import JobSnapshot, Operation, Snapshot, operations
from workbench.quantities import byte_size
from workbench.settings import Settings, specs
from workbench.workspace import Workspace

BY_HAND = {
    "samples": "workbench.cli.sample_history",
    "runs": "workbench.cli.runs",
}  # noun -> the module of its commands that need a terminal


class Group(click.Group):
    """The commands of a noun, in the order of their declaration; without one, its list."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        before = 2 if args[:1] == ["--workspace"] else 0
        verb = args[before : before + 1]
        if "list" in self.commands and (not verb or (verb[0].startswith("-") and verb[0] not in ("-h", "--help"))):
            args = [*args[:before], "list", *args[before:]]
        return super().parse_args(ctx, args)


def group(noun: str, help: str) -> click.Group:
    """Return the group of a noun's commands, `workbench NOUN`."""
    made = Group(noun, help=help, callback=lambda workspace: None)
    workspace_flag(made)
    for one in operations(noun):
        if one.shell:
            made.add_command(command(one))
    for by_hand in importlib.import_module(BY_HAND[noun]).COMMANDS if noun in BY_HAND else ():
        made.add_command(by_hand)
    return made


def command(one: Operation) -> click.Command:
    """Return the command of one operation."""
    known = {spec.name: spec for spec in specs(one.inputs)}

    def run(workspace: Workspace, as_json: bool, yes: bool = False, **given: Any) -> int:
        if one.confirm and as_json and not yes:
            raise click.UsageError("--json prints the answer alone and asks nothing: give --yes, too.")
        inputs = settings_from(one.inputs, (), given)
        if one.confirm and not yes and not _confirmed(workspace, one, inputs):
            return 0
        answer = one.call(workspace, inputs)
        if one.job:
            return _followed(workspace, one, answer, as_json)
        _show(workspace, one, answer, as_json)
        return 0

    parameters: list[Callable[[Callable[..., Any]], Callable[..., Any]]] = [
        click.argument(name, nargs=-1 if known[name].many else 1, required=not optional)
        for name, optional in one.arguments.items()
    ]
    parameters += [settings_flags(one.inputs, leave_out=one.arguments), json_flag]
    parameters += [yes_flag] if one.confirm else []
    run_with: Callable[..., Any] = with_workspace(run)
    for parameter in reversed(parameters):
        run_with = parameter(run_with)
    help = "\n\n".join([one.help, *(f"{name.upper()}: {known[name].help}" for name in one.arguments)])
    return click.command(one.verb, cls=SettingsCommand, help=help)(run_with)


def _confirmed(workspace: Workspace, one: Operation, inputs: Settings) -> bool:
    """List what would be done and ask."""
    assert one.confirm is not None
    planned = one.confirm(workspace, inputs.model_dump(mode="json", include=set(one.confirm.inputs.model_fields)))
    _show(workspace, one.confirm, planned, as_json=False)
    if not planned:
        return False
    size = sum(getattr(item, "bytes", 0) for item in planned)
    if not ask(f"Go on? {len(planned)} in all{f', {byte_size(size)}' if size else ''}"):
        say("nothing was changed")
        return False
    return True


def _show(workspace: Workspace, one: Operation, answer: Any, as_json: bool) -> None:
    """Print an answer."""
    if as_json:
        print_json(one.plain(answer))
        return
    if one.many and not answer:
        say(one.none)
    elif one.says:
        say_lines([one.says(part) for part in (answer if one.many else [answer])])
    elif one.many:
        _print_table(one.snapshot, answer)
    elif table := answer.table():
        print_table(*table)
    else:
        _print_lines(answer)
    after = one.afterwards if isinstance(one.afterwards, str) else one.afterwards(workspace)
    if after and (answer or not isinstance(one.afterwards, str)):
        say(after)


def _print_lines(answer: Snapshot) -> None:
    lines = list(answer.lines())
    width = max((len(title) for title, _ in lines), default=0) + 2
    for title, text in lines:
        say(f"{title:<{width}}{text}".rstrip())


def _print_table(kind: type[Snapshot], answer: Sequence[Snapshot]) -> None:
    """Print a line each, but for columns in which nothing stands."""
    texts = {name: [one.text_of(name) for one in answer] for name in kind.COLUMNS or kind.model_fields}
    columns = {kind.shown(name): column for name, column in texts.items() if any(column)}
    right = [shown.title for shown in columns if shown.right]
    print_table([shown.title for shown in columns], list(zip(*columns.values(), strict=True)), right=right)


def _followed(workspace: Workspace, one: Operation, started: JobSnapshot, as_json: bool) -> int:
    """Watch a job to its end, and print what it has made."""
    read, folder = one.job, Path(started.folder)
    assert read is not None
    if as_json and jobs.wait(folder).state is jobs.State.FINISHED:
        print_json(one.plain(read(workspace, {"id": started.id})))
        return 0
    return follow_job(
        lambda: jobs.status(folder),
        lambda: read(workspace, {"id": started.id}).outcome(),
        f"The job continues in the background: {folder}",
    )
