"""`workbench runs`: list runs, watch them, send them commands. Looking at one and keeping are in files of their own.

Not covered: starting a new one (training), what a run left (run_views), queue and checkpoints (run_keeping).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import click

from workbench import jobs, strange_names
from workbench.cli import run_keeping, run_views
from workbench.cli.follow import doing, follow
from workbench.cli.options import SettingsCommand, settings_flags, settings_from, with_workspace
from workbench.cli.tables import print_table
from workbench.cli.targets import TARGET_HELP
from workbench.errors import ConfigError
from workbench.remote.backends import choose_target
from workbench.runs import queue
from workbench.runs.live_sample import LiveSample
from workbench.runs.run import Run
from workbench.runs.summary import summary_of
from workbench.workspace import Workspace, read_object

HEADS = ("run", "state", "step", "loss", "held-out loss", "diagnosis", "dataset", "model", "started")
NUMBERS = ("step", "loss", "held-out loss")


@click.group(invoke_without_command=True)
@with_workspace
@click.pass_context
def runs(context: click.Context, workspace: Workspace) -> None:
    """List, watch, compare and command training runs, whoever started them. Without a command: list them."""
    if context.invoked_subcommand is None:
        found = Run.all(workspace)
        if not found:
            click.echo("no runs yet: workbench train --dataset NAME starts one")
            return
        waiting = queue.order(workspace)
        positions = {name: f"waiting, {position} of {len(waiting)}" for position, name in enumerate(waiting, 1)}
        print_table(HEADS, [_row(run, positions) for run in found], NUMBERS)
        if strange := strange_names.sentence(strange_names.strange_in(workspace.runs, "runs"), workspace.root):
            click.echo(strange)


for command in (*run_views.COMMANDS, *run_keeping.COMMANDS):
    runs.add_command(command)


def _row(run: Run, positions: Mapping[str, str]) -> tuple[str, ...]:
    status, summary = run.status, summary_of(run)
    state = doing(status) if status.state.alive else status.state.value
    config = read_object(run.folder / jobs.CONFIG)  # not checked: a run of another version still has a line
    dataset, model, total = (config.get(name) for name in ("dataset", "model", "steps"))
    return (
        run.name,
        positions.get(run.name, state),
        f"{summary.step}/{total if isinstance(total, int) else '?'}",
        f"{summary.loss:.4f}" if summary.loss is not None else "",
        f"{summary.held_out[0]:.4f} > {summary.held_out[-1]:.4f}" if summary.held_out else "",
        summary.diagnosis,
        dataset if isinstance(dataset, str) else "?",
        model if isinstance(model, str) else "?",
        jobs.ago(status.started_at) if status.started_at else "",
    )


@runs.command("follow")
@click.argument("names", nargs=-1, required=True)
@with_workspace
def follow_(workspace: Workspace, names: tuple[str, ...]) -> int:
    """Watch a run, or several, to the end.

    Ctrl-C stops watching, not the run.
    """
    return follow(*(Run.open(workspace, name) for name in names))


@runs.command()
@click.argument("name")
@click.option("--target", metavar="NAME", help=TARGET_HELP)
@click.option("--from-start", is_flag=True, help="Begin at step 0 again if it has no good checkpoint.")
@click.option("--detach", is_flag=True, help="Return at once.")
@with_workspace
def start(workspace: Workspace, name: str, target: str | None, from_start: bool, detach: bool) -> int:
    """Start a run, or let one that ended go on.

    It goes on from its newest good checkpoint. A run that has made steps but has none is refused: --from-start lets it
    begin again.
    """
    run = Run.open(workspace, name)
    if target:
        choose_target(workspace, run, target)
    if not detach:
        return follow(run, begin=lambda: run.start(from_start))
    run.start(from_start)
    return 0


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
    """Hold a run after its step; `resume` lets it go on.

    It saves and leaves its GPU, so that you can sample meanwhile.
    """
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
@click.option("--prompt", help="Generate this one, not the run's own preview prompts.")
@click.option(
    "--scale", "scales", type=float, multiple=True, help="Strength of the LoRA: 0 is the base model, 1 usual."
)
@with_workspace
def preview(workspace: Workspace, name: str, prompt: str | None, scales: tuple[float, ...]) -> None:
    """Generate preview videos after the present step.

    --scale may be given several times: --scale 0 --scale 0.5 --scale 1 compares.
    """
    run = _living(workspace, name)
    run.preview(prompt, scales)
    click.echo(f"{name} generates previews after this step, into {run.folder / 'previews'}")


@runs.command("live-sample", cls=SettingsCommand)
@click.argument("name")
@settings_flags(LiveSample)
@with_workspace
def live_sample(workspace: Workspace, name: str, **flags: Any) -> None:
    """Generate one video with a living run's weights as they are, after the present step.

    It comes into the run's previews and among the samples.
    """
    run = _living(workspace, name)
    run.live_sample(settings_from(LiveSample, None, flags))
    click.echo(f"{name} generates it after this step, into {run.folder / 'previews'} and among the samples")


def _living(workspace: Workspace, name: str) -> Run:
    """The run, if it can take commands. Raises ConfigError."""
    run = Run.open(workspace, name)
    state = run.status.state
    if not state.alive:
        raise ConfigError(f"{name} is {state.value}, only a running one takes commands: workbench runs start {name}")
    return run
