"""What a run left, in the shell: one in depth, several side by side, the report, videos, the stacks of one that hung.

Not covered: the list of all runs and commands to a run (runs), what is kept (run_keeping).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import click

from workbench import jobs, strange_names
from workbench.cli.follow import doing, watch
from workbench.cli.next_steps import card_of, commands, explained
from workbench.cli.options import with_workspace
from workbench.cli.tables import print_table
from workbench.errors import ConfigError, ExitCode
from workbench.runs import checkpoints, oom_fallback, queue, retention
from workbench.runs.analysis.comparison import compare as side_by_side
from workbench.runs.analysis.curves import Curves
from workbench.runs.analysis.diagnosis import judge
from workbench.runs.analysis.report import curves_of, write_report
from workbench.runs.failures import STACKS
from workbench.runs.run import Run
from workbench.runs.sessions import last_note
from workbench.runs.settings import TrainSettings
from workbench.workspace import Workspace

LOG_LINES = 10


@click.command()
@click.argument("name")
@with_workspace
def show(workspace: Workspace, name: str) -> None:
    """How a run goes or went, and why.

    Also its checkpoints, the settings that differ from the defaults, and what it left.
    """
    run = Run.open(workspace, name)
    status, curves = run.status, curves_of(run)
    said = f" ({status.message})" if status.message else ""
    click.echo(f"{run.name}: {doing(status) if status.state.alive else status.state.value}{said}")
    waiting = queue.order(workspace)
    if name in waiting:
        click.echo(f"queue       place {waiting.index(name) + 1} of {len(waiting)}: workbench runs queue")
    for line in _facts(run, curves):
        click.echo(line)
    if card := card_of(run):
        click.echo(f"\n{explained(card)}")
        for line in commands(run, card):
            click.echo(line)
    elif tail := jobs.log_tail(run.folder, LOG_LINES):
        click.echo(f"log\n{tail}")


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
        seen = watch(lambda: jobs.status(status.folder))
        if seen is None:
            return 0
        if seen.state is not jobs.State.FINISHED:
            click.echo(f"Error: {seen.message or seen.state.value}", err=True)
            return seen.exit_code or int(ExitCode.BUG)
        click.echo(f"{jobs.result(status.folder)['decoded']} previews decoded, in {run.folder / 'previews'}")
    return 0


def _facts(run: Run, curves: Curves) -> Iterator[str]:
    """A line a fact."""
    verdict = judge(curves, run.checkpoints)
    if run.status.state is not jobs.State.NEW:
        yield f"verdict     {verdict.sentence}\n            {verdict.advice}"
    yield f"folder      {run.folder}"
    settings = None
    with contextlib.suppress(ConfigError):
        settings = run.settings
    yield f"step        {curves.last.get('step', 0)}/{settings.steps if settings else '?'}"
    if held_out := list(curves.held_out.values()):
        yield f"held-out    {held_out[0]:.4f} at first, {held_out[-1]:.4f} now, {min(held_out):.4f} at best"
    if curves.changes:
        own, others = list(curves.changes.values())[-1]
        yield f"change      {own:.1%} of its own captions, {others:.1%} of those to leave alone"
    if parent := run.parent:
        changes = ", ".join(f"{key} {old} -> {new}" for key, (old, new) in parent["changed"].items())
        yield f"fork of     {parent['run']} at step {parent['step']}" + (f": {changes}" if changes else "")
    if said := oom_fallback.sentence(oom_fallback.record(run.folder)):
        yield f"memory      {said}"
    if said := last_note(run.folder):
        yield f"began       {said}"
    yield from _checkpoints(run, verdict.best_step)
    yield f"previews    {len(run.previews)}"
    yield f"LoRA        {run.lora or 'not yet'}"
    if settings is None:
        yield "settings    cannot be read by this version"
        return
    defaults = TrainSettings().model_dump()
    for setting, value in settings.model_dump().items():
        if value != defaults[setting]:
            yield f"  {setting} = {value}"


def _checkpoints(run: Run, best: int | None) -> Iterator[str]:
    """A line a checkpoint: which one is the best, which are starred, which will go."""
    saved, starred = run.checkpoints, retention.starred(run.folder)
    going: set[int] = set()
    if run.status.state is not jobs.State.FINISHED:
        with contextlib.suppress(ConfigError):
            going = {one.step for one in run.doomed()}
    if not saved:
        yield "checkpoints none"
    folder = run.folder / checkpoints.FOLDER
    if said := strange_names.said(strange_names.strange_in(folder, "runs/*/checkpoints"), run.folder):
        yield f"            {said}"
    for place, step in enumerate(saved):
        facts = (("best", step == best), ("starred", step in starred), ("goes when the next is saved", step in going))
        words = ", ".join(word for word, true in facts if true)
        yield f"{'' if place else 'checkpoints':<11} {step}" + (f"  ({words})" if words else "")


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
