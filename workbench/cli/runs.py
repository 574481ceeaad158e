"""`workbench runs`: list runs, look at one, compare them, send them commands, keep their checkpoints.

Not covered: starting a new one (training), what is said of a run (workbench.runs.snapshot), the rules of keeping
(workbench.runs.checkpoints), how runs wait (workbench.runs.queue).
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import click

from workbench import jobs, strange_names
from workbench.cli import json_values
from workbench.cli.follow import doing, explain, follow, follow_job
from workbench.cli.options import (
    SettingsCommand,
    detach_flag,
    json_flag,
    settings_flags,
    settings_from,
    with_opened,
    with_workspace,
    yes_flag,
)
from workbench.cli.printing import ask, print_json, say, say_lines
from workbench.cli.run_list import print_runs
from workbench.cli.run_removal import group, note, remove, rename, restore
from workbench.cli.tables import print_table
from workbench.cli.targets import target_flag
from workbench.errors import ConfigError
from workbench.quantities import byte_size
from workbench.remote.targets import choose_target
from workbench.runs import checkpoints
from workbench.runs import queue as run_queue
from workbench.runs.analysis.comparison import compare as side_by_side
from workbench.runs.display import write_report
from workbench.runs.failures import STACKS
from workbench.runs.listing import SORT_KEYS, Order
from workbench.runs.previews import LiveSample
from workbench.runs.run import Run
from workbench.runs.snapshot import RunSnapshot, snapshot, to_json
from workbench.workspace import Workspace

LABEL = 28  # columns of a fact's name
LOG_LINES = 10


def _living(workspace: Workspace, name: str) -> Run:
    """The run, if it can take commands. Raises ConfigError."""
    run = Run.open(workspace, name)
    if reason := run.takes_no_commands:
        raise ConfigError(reason)
    return run


with_run, with_living_run = with_opened(Run.open), with_opened(_living)


@click.group(invoke_without_command=True)
@click.option(
    "--search",
    default="",
    metavar="WORDS",
    help="Only those that have every word somewhere: in their name, state, group, dataset, model or notes.",
)
@click.option("--group", metavar="GROUP", help='Only those of this group; "" for those without one.')
@click.option(
    "--sort", "order", type=click.Choice(list(SORT_KEYS)), default="newest", show_default=True, help="The order."
)
@json_flag
@with_workspace
@click.pass_context
def runs(
    context: click.Context, workspace: Workspace, search: str, group: str | None, order: Order, as_json: bool
) -> None:
    """List, watch, compare and command training runs, whoever started them. Without a command: list them."""
    if context.invoked_subcommand is None:
        print_runs(workspace, search, group, order, as_json)


for command in (note, group, rename, remove, restore):
    runs.add_command(command)


# ---- what is known of a run


@runs.command()
@with_run
@json_flag
def show(run: Run, as_json: bool) -> None:
    """How a run goes or went, and why.

    Also its checkpoints, the settings that differ from the defaults, and what it left.
    """
    seen = snapshot(run)
    if as_json:
        print_json(to_json(seen))
        return
    for label, text in _lines(seen):
        say(f"{label:<{LABEL}}{text}" if text else label)
    if seen.failure:
        say()
        explain(seen.failure)
    elif seen.log:
        say_lines(["log", *seen.log.split("\n")[-LOG_LINES:]])


def _lines(seen: RunSnapshot) -> Iterator[tuple[str, str]]:
    """What is known of a run: (label, text) a line."""
    activity = seen.activity.removeprefix(f"{seen.headline}: ")
    yield f"{seen.name}: {seen.headline}, {activity}".removesuffix(", "), ""
    if seen.position:
        yield "queue", f"{seen.position} of {len(seen.queue)}: workbench runs queue"
    if seen.failure:
        yield "failure", seen.failure.cause
    if seen.diagnosis:
        yield "diagnosis", seen.diagnosis.sentence
        yield from [("", seen.diagnosis.advice)] if seen.diagnosis.advice else []
    yield "folder", str(seen.run.folder)
    for fact in seen.facts:
        yield fact.label, fact.text
    for one in seen.notes:
        yield "note", one.text
    yield from [("group", seen.group)] if seen.group else []
    for number, line in enumerate(seen.own_notes.split("\n")):
        yield "" if number else "your notes", line
    yield from _checkpoints(seen)
    yield "previews", str(len(seen.previews.previews))
    if seen.settings is not None and seen.settings.method == "full":
        yield "model", str(seen.run.model or _not_there(seen))
    else:
        yield "LoRA", str(seen.run.lora or _not_there(seen))
    if seen.settings is None:
        yield "settings", "cannot be read by this version"
        return
    for setting, value in seen.settings.model_dump(exclude_defaults=True).items():
        yield f"  {setting} = {value}", ""


def _not_there(seen: RunSnapshot) -> str:
    """Why nothing was exported."""
    coming = seen.status.state.alive or seen.status.state in (jobs.State.NEW, jobs.State.STOPPED)
    return "not yet: written when the run finishes" if coming else "none: the run ended before it was written"


def _checkpoints(seen: RunSnapshot) -> Iterator[tuple[str, str]]:
    """A line a checkpoint: its step, and why it is kept or that it goes."""
    folder = seen.run.folder / checkpoints.FOLDER
    strange = strange_names.sentence(strange_names.strange_in(folder, "runs/*/checkpoints"), seen.run.folder)
    lines = [f"{one.step}  ({', '.join(one.reasons)})" if one.reasons else str(one.step) for one in seen.checkpoints]
    for number, line in enumerate([*(lines or ["none"]), *filter(None, [strange])]):
        yield "" if number else "checkpoints", line


@runs.command()
@click.argument("names", nargs=-1, required=True)
@json_flag
@with_workspace
def compare(workspace: Workspace, names: tuple[str, ...], as_json: bool) -> None:
    """Runs side by side: results, settings that differ."""
    made = side_by_side([Run.open(workspace, name) for name in names])
    if as_json:
        print_json(json_values.comparison(made))
        return
    print_table(["", *made.names], [[row, *values] for row, values in (*made.results, *made.settings)])


@runs.command()
@with_run
def report(run: Run) -> None:
    """Write a run's report and print where it lies.

    It is one HTML file that holds all it shows, videos included.
    """
    say(write_report(run))


@runs.command()
@with_run
@detach_flag
def decode(run: Run, detach: bool) -> int:
    """Make videos of previews that were kept as latents.

    The latents stay. Ctrl-C stops watching, not the work.
    """
    folder = run.decode_previews().folder

    def outcome() -> list[str]:
        return [f"{jobs.result(folder)['decoded']} previews decoded, in {run.folder / 'previews'}"]

    return follow_job(lambda: jobs.status(folder), outcome, "the previews are decoded in the background", detach=detach)


@runs.command()
@with_run
@json_flag
def stacks(run: Run, as_json: bool) -> None:
    """What every thread of a run does, or did when it hung."""
    alive = run.status.state.alive
    text = jobs.stacks(run.folder) if alive else _left_stacks(run)
    if as_json:
        print_json({"name": run.name, "alive": alive, "stacks": text})
        return
    say_lines(text)


def _left_stacks(run: Run) -> str:
    """What a run that hung has left. Raises ConfigError where there is nothing."""
    path = run.folder / STACKS
    text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
    if not text:
        state = run.status.state.value
        raise ConfigError(f"{run.name} is {state} and left no stacks: only a run that hung leaves them")
    return text


# ---- commands to a run


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
@target_flag
@click.option("--from-start", is_flag=True, help="Begin at step 0 again if it has no good checkpoint.")
@detach_flag
@with_workspace
def start(workspace: Workspace, name: str, target: str | None, from_start: bool, detach: bool) -> int:
    """Start a run, or let one that ended go on.

    It goes on from its newest good checkpoint. A run that has made steps but has none is refused: --from-start lets it
    begin again.
    """
    run = Run.open(workspace, name)
    if run.status.state is jobs.State.STOPPING:
        raise ConfigError(f"{run.name} still stops: start it when it has ended (workbench runs follow {run.name})")
    if target:
        choose_target(workspace, run, target)
    if not detach:
        return follow(run, begin=lambda: run.start(from_start))
    run.start(from_start)
    say(f"watch it: workbench runs follow {run.name}")
    return 0


@runs.command()
@with_living_run
@click.option("--grace", type=float, metavar="SECONDS", help="End it by force when it has not ended after this time.")
def stop(run: Run, grace: float | None) -> None:
    """Let a run finish its step, save and end."""
    run.stop(grace)
    state = run.status.state
    say(f"{run.name} {'saves and ends after this step' if state.alive else state.value}")


@runs.command()
@with_living_run
def pause(run: Run) -> None:
    """Hold a run after its step; `resume` lets it go on.

    It saves and frees the memory of its device, so that you can sample meanwhile.
    """
    run.pause()
    say(f"{run.name} pauses after this step: workbench runs resume {run.name}")


@runs.command()
@with_living_run
def resume(run: Run) -> None:
    """Let a paused run go on (`start` is for runs that have ended)."""
    run.resume()
    say(f"{run.name} goes on")


@runs.command()
@with_living_run
def save(run: Run) -> None:
    """Write a checkpoint after the present step."""
    run.save()
    say(f"{run.name} writes a checkpoint after this step")


@runs.command()
@with_living_run
@click.option("--prompt", help="Generate this one, not the run's own preview prompts.")
@click.option(
    "--scale", "scales", type=float, multiple=True, help="Strength of the LoRA: 0 is the base model, 1 usual."
)
def preview(run: Run, prompt: str | None, scales: tuple[float, ...]) -> None:
    """Generate preview videos after the present step.

    --scale may be given several times: --scale 0 --scale 0.5 --scale 1 compares.
    """
    run.preview(prompt, scales)
    say(f"{run.name} generates previews after this step, into {run.folder / 'previews'}")


@runs.command("live-sample", cls=SettingsCommand)
@with_living_run
@settings_flags(LiveSample)
def live_sample(run: Run, **flags: Any) -> None:
    """Generate one video with a living run's weights as they are, after the present step.

    It comes into the run's previews and among the samples.
    """
    run.live_sample(settings_from(LiveSample, (), flags))
    say(f"{run.name} generates it after this step, into {run.folder / 'previews'} and among the samples")


# ---- the queue, and which checkpoints are kept


@runs.command()
@click.option("--move", nargs=2, type=(str, int), metavar="NAME POSITION", help="Move a waiting run; 1 is next.")
@json_flag
@with_workspace
def queue(workspace: Workspace, move: tuple[str, int] | None, as_json: bool) -> None:
    """Which run trains now, and which wait, in order."""
    waiting = run_queue.move(workspace, *move) if move else run_queue.order(workspace)
    now = [(run, status) for run in Run.all(workspace) if (status := run.status).state.alive]
    now = [(run, status) for run, status in now if run.name not in waiting]
    if as_json:
        print_json({"now": [run.name for run, _ in now], "waiting": list(waiting)})
        return
    for run, status in now:
        say(f"now  {run.name}: {doing(status)} {status.step}/{status.total or '?'}")
    for position, name in enumerate(waiting, 1):
        say(f"{position:>3}  {name}")
    if not waiting:
        say("no run waits")


@runs.command()
@with_run
@click.argument("step", type=int)
def star(run: Run, step: int) -> None:
    """Keep the checkpoint of a step for good."""
    checkpoints.star(run.folder, step)
    say(f"the checkpoint of step {step} stays")


@runs.command()
@with_run
@click.argument("step", type=int)
def unstar(run: Run, step: int) -> None:
    """Let the checkpoint of a step go with the others."""
    checkpoints.unstar(run.folder, step)
    say(f"the checkpoint of step {step} goes when its turn comes")


@runs.command()
@with_run
@click.option("--keep", type=click.IntRange(1), required=True, metavar="N", help="How many of the newest stay.")
@yes_flag
def prune(run: Run, keep: int, yes: bool) -> None:
    """Remove old checkpoints; says which first, and asks.

    The newest N stay, and so do the best and the starred ones.
    """
    every = 0
    with contextlib.suppress(ConfigError):
        every = run.settings.keep_every
    going = checkpoints.doomed(run.folder, keep, every)
    for one in going:
        say(f"step {one.step}  {byte_size(one.bytes)}")
    if not going:
        say("nothing goes: the newest, the best and the starred checkpoints stay")
    elif yes or ask(f"Remove {len(going)} checkpoints, {byte_size(sum(one.bytes for one in going))}?"):
        gone = checkpoints.retire(run.folder, keep, every)
        say(f"removed {len(gone)} checkpoints, {byte_size(sum(one.bytes for one in gone))} are free")
    else:
        say("nothing was removed")
