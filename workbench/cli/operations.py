"""`workbench NOUN VERB`: a command for each operation that `operations.registry` declares.

Inputs are arguments and flags. People get a table or a line per field; --json prints the whole answer. The command
watches a long-running operation to its end unless --detach is given; Ctrl-C stops watching, not the job. An operation
that removes something lists it and asks first; --json asks nothing and requires --yes. A push lists its files first;
with --dry-run, nothing more happens.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import click

from workbench import jobs
from workbench.cli.follow import ended_badly, follow_operation, uninterrupted
from workbench.cli.options import (
    SettingsCommand,
    config_flag,
    detach_flag,
    dry_run_flag,
    json_flag,
    settings_flags,
    settings_from,
    with_workspace,
    workspace_flag,
    yes_flag,
)
from workbench.cli.printing import ask, print_json, print_table, say, say_lines
from workbench.display.quantities import byte_size
from workbench.jobs.snapshot import JobSnapshot
from workbench.operations.registry import NOUNS, Operation, operations
from workbench.operations.samples import Requested
from workbench.settings import Settings, specs
from workbench.snapshots import keys_of
from workbench.workspace import Workspace

# Commands that need a terminal, by group: heading in the help, module in this package, functions.
BY_HAND = {
    "dataset": ("Background tasks", "follow", ("follow_task",)),
    "grid": ("", "samples", ("make", "extend")),
    "runs": ("", "follow", ("follow_runs", "start")),
    "samples": ("", "samples", ("decode", "export")),
    "targets": ("", "training", ("add",)),
}
SHORT = {"hub_dataset": "--hub", "repo_id": "--to"}  # setting -> another name of its flag


class Group(click.Group):
    """The commands of a noun, in the order of their declaration. Without a verb it runs `list`.

    Attributes:
        sections: Headings of the help, with the names of the commands below each.
    """

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.sections: dict[str, list[str]] = {}

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        for title, names in self.sections.items():
            with formatter.section(title or "Commands"):
                formatter.write_dl([(name, self.commands[name].get_short_help_str(100)) for name in names])

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.commands)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        before = 2 if args[:1] == ["--workspace"] else 0
        verb = args[before : before + 1]
        if "list" in self.commands and (not verb or (verb[0].startswith("-") and verb[0] not in ("-h", "--help"))):
            args = [*args[:before], "list", *args[before:]]
        return super().parse_args(ctx, args)


def group(name: str, help: str) -> click.Group:
    """Return `workbench NAME`, the group of commands of the nouns with that name."""
    made = Group(name, help=help, callback=lambda workspace: None)
    workspace_flag(made)
    nouns = [noun for noun in NOUNS if NOUNS[noun].shell == name]
    found = [one for one in operations(*nouns) if one.shell]
    commands = [(one.section, command(one)) for one in found]
    if name in BY_HAND:
        section, module, functions = BY_HAND[name]
        by_hand = importlib.import_module(f"workbench.cli.{module}")
        commands += [(section, getattr(by_hand, one)) for one in functions]
    for section, one in commands:
        made.add_command(one)
        made.sections.setdefault(section, []).append(str(one.name))
    return made


def command(one: Operation) -> click.Command:
    """Return the command of one operation."""
    known = {spec.name: spec for spec in specs(one.inputs)}

    def run(
        workspace: Workspace,
        as_json: bool,
        yes: bool = False,
        dry_run: bool = False,
        config: Sequence[Path] = (),
        detach: bool = False,
        **given: Any,
    ) -> int:
        if one.confirm and as_json and not yes:
            raise click.UsageError("--json cannot ask for confirmation: add --yes.")
        inputs = settings_from(one.inputs, config, given, filled=one.filled)
        if one.confirm and not yes and not _confirmed(workspace, one, inputs):
            return 0
        if one.preview and (dry_run or not as_json):
            planner, planned = _planned(workspace, one, inputs)
            if not dry_run or as_json:
                _show(workspace, planner, planned, as_json)
            else:
                say_lines(planned.text())
        if dry_run:
            return 0
        if one.job:
            return _followed(workspace, one, inputs, as_json, detach)
        answer = one.call(workspace, inputs)
        _show(workspace, one, answer, as_json)
        return int(one.exit_code(answer)) if one.exit_code else 0

    parameters: list[Callable[[Callable[..., Any]], Callable[..., Any]]] = [
        click.argument(name, nargs=-1 if known[name].many else 1, required=not optional)
        for name, optional in one.places.items()
    ]
    parameters += [settings_flags(one.inputs, leave_out=one.places, short=SHORT), json_flag]
    parameters += [config_flag()] if one.job and one.of_settings else []
    parameters += [detach_flag] if one.job else []
    parameters += [yes_flag] if one.confirm else [dry_run_flag] if one.preview else []
    run_with: Callable[..., Any] = with_workspace(run)
    for parameter in reversed(parameters):
        run_with = parameter(run_with)
    help = "\n\n".join([one.help, *(f"{name.upper()}: {known[name].help}" for name in one.places)])
    return click.command(one.verb, cls=SettingsCommand, help=help)(run_with)


def _planned(workspace: Workspace, one: Operation, inputs: Settings) -> tuple[Operation, Any]:
    """Return the operation that previews another one, and its answer."""
    planner = one.planner
    assert planner is not None
    return planner, planner(workspace, inputs.model_dump(mode="json", include=set(planner.inputs.model_fields)))


def _confirmed(workspace: Workspace, one: Operation, inputs: Settings) -> bool:
    """List what the operation would do and ask."""
    planner, planned = _planned(workspace, one, inputs)
    _show(workspace, planner, planned, as_json=False)
    if not planned:
        return False
    size = sum(getattr(item, "bytes", 0) for item in planned)
    if not ask(f"Continue? {len(planned)} in total{f', {byte_size(size)}' if size else ''}"):
        say("nothing was changed")
        return False
    return True


def _show(workspace: Workspace, one: Operation, answer: Any, as_json: bool) -> None:
    if as_json:
        print_json(one.plain(answer))
        return
    if one.many and not answer:
        say(one.none)
    elif one.says:
        for part in answer if one.many else [answer]:
            said = one.says(part)
            say_lines([said] if isinstance(said, str) else said)
    elif one.many:  # a row per item, without the columns that are empty in every row
        kind = one.snapshot
        texts = {name: [item.text_of(name) for item in answer] for name in kind.COLUMNS or kind.model_fields}
        columns = {kind.shown(name): column for name, column in texts.items() if any(column)}
        right = [shown.title for shown in columns if shown.right]
        print_table([shown.title for shown in columns], list(zip(*columns.values(), strict=True)), right=right)
    else:
        if table := answer.table():
            print_table(*table)
        say_lines(answer.text())
    after = one.afterwards if isinstance(one.afterwards, str) else one.afterwards(workspace)
    if after and (answer or not isinstance(one.afterwards, str)):
        say(after)


def _followed(workspace: Workspace, one: Operation, inputs: Settings, as_json: bool, detach: bool) -> int:
    """Start a job, watch it to its end, and print its result."""
    read = one.job_reader
    assert read is not None
    started: list[JobSnapshot] = []
    try:
        with uninterrupted():
            started.append(one.call(workspace, inputs))
    except KeyboardInterrupt:
        detach = True
    job = started[0]

    def now() -> JobSnapshot:
        found: JobSnapshot = read(workspace, {"id": job.id})
        return found

    if not as_json:
        return follow_operation(job, now, detach)
    if not detach and job.state != jobs.State.FINISHED:
        status = jobs.wait(Path(job.folder))
        if status.state is not jobs.State.FINISHED:
            return ended_badly(status, now().after_failure())
        job = now()
    print_json(read.plain(job))
    return 0


# ---- the output of --json, for docs/json.md


class Document(NamedTuple):
    """The output of a command: what it is, its keys and their meaning, and whether it is a list of such objects."""

    about: str
    keys: Mapping[str, str]
    many: bool = False


def documents() -> dict[str, Document]:
    """Return the output of --json for each command."""
    made = {
        one.command: Document(one.help.split("\n\n")[0], keys_of(one.snapshot), one.many)
        for one in operations()
        if one.shell or one.by_hand
    }
    about = "The generated videos, when all have ended. The exit code is that of the first failure."
    return {**made, "sample": Document(about, keys_of(Requested), many=True)}
