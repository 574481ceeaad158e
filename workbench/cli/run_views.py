"""What a run left, in the shell: one in depth, several side by side, the report, videos, the stacks of one that hung.

Not covered: the list of all runs and commands to a run (runs), what is kept (run_keeping).
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import click

from workbench import jobs, strange_names
from workbench.cli.follow import watch
from workbench.cli.next_steps import commands, failure_text
from workbench.cli.options import with_workspace
from workbench.cli.tables import print_table
from workbench.errors import ConfigError, ExitCode
from workbench.runs import checkpoints
from workbench.runs.analysis.comparison import compare as side_by_side
from workbench.runs.analysis.report import write_report
from workbench.runs.failure_rules import STACKS
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.runs.snapshot import RunSnapshot, snapshot, to_json
from workbench.workspace import Workspace

LABEL = 28  # columns of a fact's name
LOG_LINES = 10


@click.command()
@click.argument("name")
@click.option("--json", "as_json", is_flag=True, help="For programs: everything that is known, as one JSON object.")
@with_workspace
def show(workspace: Workspace, name: str, as_json: bool) -> None:
    """How a run goes or went, and why.

    Also its checkpoints, the settings that differ from the defaults, and what it left.
    """
    seen = snapshot(Run.open(workspace, name))
    if as_json:
        click.echo(json.dumps(to_json(seen), indent=2, ensure_ascii=False))
        return
    for label, text in _lines(seen):
        click.echo(f"{label:<{LABEL}}{text}" if text else label)
    if seen.failure:
        click.echo(f"\n{failure_text(seen.failure)}")
        for line in commands(seen.failure):
            click.echo(line)
    elif seen.log:
        click.echo("log\n" + "\n".join(seen.log.splitlines()[-LOG_LINES:]))


@click.command()
@click.argument("name")
@click.option("--detach", is_flag=True, help="Return at once.")
@with_workspace
def decode(workspace: Workspace, name: str, detach: bool) -> int:
    """Make videos of previews that were kept as latents.

    The latents stay. Ctrl-C stops watching, not the work.
    """
    run = Run.open(workspace, name)
    status = run.decode_previews()
    if not detach:
        ended = watch(lambda: jobs.status(status.folder))
        if ended is None:
            return 0
        if ended.state is not jobs.State.FINISHED:
            click.echo(f"Error: {ended.message or ended.state.value}", err=True)
            return ended.exit_code or int(ExitCode.BUG)
        click.echo(f"{jobs.result(status.folder)['decoded']} previews decoded, in {run.folder / 'previews'}")
    return 0


def _lines(seen: RunSnapshot) -> Iterator[tuple[str, str]]:
    """What is known of a run: (label, text) a line."""
    yield f"{seen.name}: {seen.headline}, {seen.activity}".removesuffix(", "), ""
    if seen.position:
        yield "queue", f"{seen.position} of {len(seen.queue)}: workbench runs queue"
    if seen.diagnosis:
        yield "diagnosis", seen.diagnosis.sentence
        yield from [("", seen.diagnosis.advice)] if seen.diagnosis.advice else []
    yield "folder", str(seen.run.folder)
    for fact in seen.facts:
        yield fact.label, fact.text
    for note in seen.notes:
        yield "note", note.text
    yield from _checkpoints(seen)
    yield "previews", str(len(seen.previews.previews))
    yield "LoRA", str(seen.run.lora or "not yet")
    if seen.settings is None:
        yield "settings", "cannot be read by this version"
        return
    defaults = TrainSettings().model_dump()
    for setting, value in seen.settings.model_dump().items():
        if value != defaults[setting]:
            yield f"  {setting} = {value}", ""


def _checkpoints(seen: RunSnapshot) -> Iterator[tuple[str, str]]:
    """A line a checkpoint: its step, and why it is kept or that it goes."""
    folder = seen.run.folder / checkpoints.FOLDER
    strange = strange_names.sentence(strange_names.strange_in(folder, "runs/*/checkpoints"), seen.run.folder)
    lines = [f"{one.step}  ({', '.join(one.reasons)})" if one.reasons else str(one.step) for one in seen.checkpoints]
    for number, line in enumerate([*(lines or ["none"]), *filter(None, [strange])]):
        yield "" if number else "checkpoints", line


@click.command()
@click.argument("names", nargs=-1, required=True)
@with_workspace
def compare(workspace: Workspace, names: tuple[str, ...]) -> None:
    """Runs side by side: results, settings that differ."""
    made = side_by_side([Run.open(workspace, name) for name in names])
    print_table(["", *made.names], [[row, *values] for row, values in (*made.results, *made.settings)])


@click.command()
@click.argument("name")
@with_workspace
def report(workspace: Workspace, name: str) -> None:
    """Write a run's report and print where it lies.

    It is one HTML file that holds all it shows, videos included.
    """
    click.echo(write_report(Run.open(workspace, name)))


@click.command()
@click.argument("name")
@with_workspace
def stacks(workspace: Workspace, name: str) -> None:
    """What every thread of a run does, or did when it hung."""
    run = Run.open(workspace, name)
    if run.status.state.alive:
        click.echo(jobs.stacks(run.folder))
        return
    path = run.folder / STACKS
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    if not text:
        raise ConfigError(f"{name} is {run.status.state.value} and left no stacks: only a run that hung leaves them")
    click.echo(text)


COMMANDS = (show, compare, report, decode, stacks)
