"""`workbench train` and `workbench runs`: start a run and watch it, list runs, send them commands."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import click

from workbench import jobs
from workbench.cli.follow import Losses, doing, duration, follow
from workbench.cli.options import SettingsCommand, settings_flags, settings_from, with_workspace
from workbench.errors import ConfigError
from workbench.trainer.runs import Run
from workbench.trainer.settings import TrainSettings
from workbench.workspace import Workspace

CONFIG_HELP = "Settings from a JSON file, such as an earlier run's config.json. Flags win over it."


@click.command(cls=SettingsCommand)
@settings_flags(TrainSettings)
@click.option("--config", type=click.Path(path_type=Path), metavar="FILE", help=CONFIG_HELP)
@click.option("--name", help="The run's name. Else the dataset's, numbered.")
@click.option("--detach", is_flag=True, help="Start the run and return at once.")
@with_workspace
def train(workspace: Workspace, config: Path | None, name: str | None, detach: bool, **flags: Any) -> int:
    """Train a LoRA on a dataset and watch it. Ctrl-C stops watching; the run goes on.

    Ends with the run's exit code: 0 finished, 90 stopped on request, others in docs/file_formats.md.
    """
    run = Run.create(workspace, settings_from(TrainSettings, config, flags), name)
    run.start()
    click.echo(f"started {run.name}: {run.folder}")
    if detach:
        click.echo(f"watch it: workbench runs follow {run.name}")
        return 0
    return follow(run)


@click.group(invoke_without_command=True)
@with_workspace
@click.pass_context
def runs(context: click.Context, workspace: Workspace) -> None:
    """List, watch and command training runs, whoever started them. Without a command: list them."""
    if context.invoked_subcommand is None:
        _table(Run.all(workspace))


def _table(found: list[Run]) -> None:
    from rich.console import Console
    from rich.table import Table

    if not found:
        click.echo("no runs yet: workbench train --dataset NAME starts one")
        return
    table = Table(box=None, header_style="bold", pad_edge=False)
    for title in ("run", "state", "step", "loss", "held-out loss", "dataset", "model", "started"):
        table.add_column(title, justify="right" if "loss" in title or title == "step" else "left", overflow="fold")
    for run in found:
        table.add_row(*_row(run))
    # A table in a pipe or a file is not cut to a terminal's width.
    Console(width=None if sys.stdout.isatty() else 200).print(table)


def _row(run: Run) -> tuple[str, ...]:
    status = run.status
    losses = Losses(run)
    losses.refresh()
    try:
        settings = run.settings
    except ConfigError:  # a config.json of another version still has a line
        dataset, model, total = "?", "?", 0
    else:
        dataset, model, total = settings.dataset, settings.model, settings.steps
    return (
        run.name,
        status.state.value if not status.state.alive else doing(status),
        f"{losses.step}/{total or '?'}",
        f"{losses.loss:.4f}" if losses.loss is not None else "",
        f"{losses.held_out[0]:.4f} > {losses.held_out[-1]:.4f}" if losses.held_out else "",
        dataset,
        model,
        f"{duration(time.time() - status.started_at)} ago" if status.started_at else "",
    )


@runs.command()
@click.argument("name")
@with_workspace
def show(workspace: Workspace, name: str) -> None:
    """Where a run is, its settings that differ from the defaults, and what it left."""
    run = Run.open(workspace, name)
    status = run.status
    click.echo(f"{run.name}: {status.state.value}" + (f" ({status.message})" if status.message else ""))
    click.echo(f"folder      {run.folder}")
    losses = Losses(run)
    losses.refresh()
    click.echo(f"step        {losses.step}/{run.settings.steps}")
    if held_out := losses.held_out:
        click.echo(f"held-out    {held_out[0]:.4f} at first, {held_out[-1]:.4f} now, {min(held_out):.4f} at best")
    click.echo("checkpoints " + (", ".join(map(str, run.checkpoints)) or "none"))
    click.echo(f"previews    {len(run.previews)}")
    click.echo(f"LoRA        {run.lora or 'not yet'}")
    defaults = TrainSettings().model_dump()
    for setting, value in run.settings.model_dump().items():
        if value != defaults[setting]:
            click.echo(f"  {setting} = {value}")
    if tail := jobs.log_tail(run.folder, 10):
        click.echo(f"log\n{tail}")


@runs.command("follow")
@click.argument("name")
@with_workspace
def follow_(workspace: Workspace, name: str) -> int:
    """Watch a run until it ends. Ctrl-C stops watching, not the run."""
    return follow(Run.open(workspace, name))


@runs.command()
@click.argument("name")
@click.option("--detach", is_flag=True, help="Return at once.")
@with_workspace
def start(workspace: Workspace, name: str, detach: bool) -> int:
    """Start a run, or let one that ended go on from its newest good checkpoint."""
    run = Run.open(workspace, name)
    run.start()
    return 0 if detach else follow(run)


@runs.command()
@click.argument("name")
@click.option("--grace", type=float, metavar="SECONDS", help="End it by force when it has not ended after this time.")
@with_workspace
def stop(workspace: Workspace, name: str, grace: float | None) -> None:
    """Let a run finish its step, save and end."""
    run = _living(workspace, name)
    run.stop(grace)
    state = run.status.state
    click.echo(f"{name} {'saves and ends after this step' if state.alive else state.value}")


@runs.command()
@click.argument("name")
@with_workspace
def pause(workspace: Workspace, name: str) -> None:
    """Hold a run after its step; `resume` lets it go on."""
    _living(workspace, name).pause()
    click.echo(f"{name} pauses after this step: workbench runs resume {name}")


@runs.command()
@click.argument("name")
@with_workspace
def resume(workspace: Workspace, name: str) -> None:
    """Let a paused run go on (`start` is for runs that have ended)."""
    _living(workspace, name).resume()
    click.echo(f"{name} goes on")


@runs.command()
@click.argument("name")
@with_workspace
def save(workspace: Workspace, name: str) -> None:
    """Write a checkpoint after the present step."""
    _living(workspace, name).save()
    click.echo(f"{name} writes a checkpoint after this step")


@runs.command()
@click.argument("name")
@click.option("--prompt", help="Draw this one, not the run's own preview prompts.")
@with_workspace
def preview(workspace: Workspace, name: str, prompt: str | None) -> None:
    """Draw preview videos after the present step."""
    run = _living(workspace, name)
    run.preview(prompt)
    click.echo(f"{name} draws previews after this step, into {run.folder / 'previews'}")


def _living(workspace: Workspace, name: str) -> Run:
    """The run, if it can take commands. Raises ConfigError."""
    run = Run.open(workspace, name)
    state = run.status.state
    if not state.alive:
        raise ConfigError(f"{name} is {state.value}, only a running one takes commands: workbench runs start {name}")
    return run
