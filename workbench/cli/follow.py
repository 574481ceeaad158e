"""Watch jobs from the shell, and the commands that do: `runs follow`, `runs start`, `dataset follow`.

A terminal gets a progress bar, a log gets lines. Ctrl-C stops watching, not the job.
"""

from __future__ import annotations

import contextlib
import functools
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import click

from workbench import jobs
from workbench.cli.options import detach_flag, target_flag, with_workspace
from workbench.cli.printing import say, say_lines, visible
from workbench.dataset_builder.tasks import NAMES
from workbench.display.quantities import duration, loss_text
from workbench.errors import ExitCode
from workbench.jobs import State
from workbench.jobs.snapshot import JobSnapshot
from workbench.operations.runs import startable
from workbench.runs.analysis.curves import Curves, curves_of
from workbench.runs.run import Run
from workbench.runs.snapshot import snapshot
from workbench.workspace import Workspace

POLL_SECONDS = 0.2
PLAIN_SECONDS = 5.0  # between the lines of a log


class Bar:
    """A live progress bar."""

    def __init__(self, on_stderr: bool = False) -> None:
        """Show the bar. With on_stderr, stdout is left to the results and the bar disappears at the end."""
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}", markup=False),
            console=Console(stderr=on_stderr),
            transient=on_stderr,
        )
        self._task = self._progress.add_task("starting", total=None, note="")
        self._progress.start()

    def show(self, doing: str, step: int, total: int, note: str) -> None:
        self._progress.update(
            self._task, description=visible(doing), completed=step, total=total or None, note=visible(note)
        )

    def close(self) -> None:
        self._progress.stop()


class Lines:
    """Progress as plain lines: one when the phase changes, and one every few seconds."""

    def __init__(self) -> None:
        self._last: tuple[str, int] = ("", -1)
        self._next = 0.0

    def show(self, doing: str, step: int, total: int, note: str) -> None:
        now, last = (doing, step), self._last
        if now == last or (doing == last[0] and time.monotonic() < self._next):
            return
        self._last, self._next = now, time.monotonic() + PLAIN_SECONDS
        count = f" {step}/{total}" if total else ""
        say(f"{doing}{count}  {note}")

    def close(self) -> None:
        """Nothing to undo."""


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Defer Ctrl-C to the end of the block, so that it cannot leave a job half started."""
    pressed: list[int] = []
    if threading.current_thread() is not threading.main_thread():  # signals only reach the main thread
        yield
        return
    before = signal.signal(signal.SIGINT, lambda number, _: pressed.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if pressed:
        raise KeyboardInterrupt


def watch(
    read: Callable[[], jobs.Status], note: Callable[[], str] = lambda: "", begin: Callable[[], object] = lambda: None
) -> jobs.Status | None:
    """Show a job until it ends. Return its last status, or None after Ctrl-C.

    `note` returns the text beside the progress. `begin` starts the job, uninterrupted: a Ctrl-C during the start also
    only ends the watching.
    """
    view = Bar() if sys.stdout.isatty() else Lines()

    def show(status: jobs.Status) -> None:
        left = f"{duration(status.seconds_left)} left" if status.seconds_left is not None else ""
        doing = status.phase if status.state in (jobs.State.RUNNING, jobs.State.STARTING) else ""
        beside = ", ".join(filter(None, (note(), left)))
        view.show(doing or status.state.value, status.step, status.total, beside)

    try:
        with uninterrupted():
            begin()
        while (status := read()).state.alive:
            show(status)
            time.sleep(POLL_SECONDS)
        show(status)
    except KeyboardInterrupt:
        return None
    finally:
        view.close()
    return status


def follow_job(
    read: Callable[[], jobs.Status],
    outcome: Callable[[], Iterable[str]],
    goes_on: str,
    detach: bool = False,
    after_failure: Callable[[], Iterable[str]] = lambda: (),
) -> int:
    """Watch a job to its end, print the outcome, and return the exit code.

    Args:
        outcome, after_failure: Return the lines for a job that finished, and those below a failed job's error.
        goes_on: Printed after Ctrl-C, which exits with 0, and with `detach`, which does not watch.
    """
    if detach:
        say(goes_on)
        return 0
    status = watch(read)
    if status is None:
        say_lines(["", goes_on])
        return 0
    if status.state is jobs.State.FINISHED:
        for line in outcome():
            say(line)
        return 0
    return ended_badly(status, after_failure())


def ended_badly(status: jobs.Status, lines: Iterable[str] = ()) -> int:
    """Print why a job did not finish, with the lines below, and return the exit code."""
    say_lines([f"Error: {status.message or status.state.value}", *lines], err=True)
    return int(status.exit_code or ExitCode.BUG)


def follow_operation(started: JobSnapshot, read: Callable[[], JobSnapshot], detach: bool = False) -> int:
    """Watch a job that an operation started, unless it has ended, and return the exit code."""
    if started.state == jobs.State.FINISHED:
        say_lines(started.outcome())
        return 0
    return follow_job(
        lambda: jobs.status(Path(started.folder)),
        lambda: read().outcome(),
        started.goes_on,
        detach=detach,
        after_failure=lambda: read().after_failure(),
    )


# ---- runs


def follow(*runs: Run, begin: Callable[[], object] = lambda: None) -> int:
    """Start runs with `begin` and show them one after another until all have ended.

    Returns the exit code of the first run that did not finish, or 0 after Ctrl-C, which leaves the runs alone.
    """
    code = 0
    for number, run in enumerate(runs):
        status = _watch_run(run, (lambda: None) if number else begin)
        if status is None:
            what = "The run continues" if len(runs) == 1 else "The runs continue"
            again = f"{what}. Watch: workbench runs follow {run.name}; stop: workbench runs stop {run.name}"
            say_lines(["", again])
            return 0
        code = code or _report(run, status)
    return code


def _watch_run(run: Run, begin: Callable[[], object]) -> jobs.Status | None:
    curves = curves_of(run)
    return watch(lambda: run.status, lambda: _newest_losses(curves), begin)


def _newest_losses(curves: Curves) -> str:
    curves.refresh()
    parts = [f"loss {loss_text(curves.last['loss'])}"] if curves.last else []
    parts += [f"held-out {loss_text(loss)}" for loss in list(curves.held_out.values())[-1:]]
    return ", ".join(parts)


def _report(run: Run, status: jobs.Status) -> int:
    """Report how the run ended and what to do next."""
    if status.state is jobs.State.NEW:
        say(f"{run.name} was never started. Start it: workbench runs start {run.name}")
        return 0
    seen = snapshot(run)
    took = "".join(f" after {fact.text} of training" for fact in seen.facts if fact.key == "training_time")
    say(f"{run.name} {status.state.value} at step {seen.step}{took}")
    for fact in seen.facts:
        if fact.key == "held_out_loss":
            say(f"{fact.label} {fact.text}")
    if run.lora is not None:
        say(f"LoRA: {run.lora}")
    elif run.model is not None:
        say_lines([f"model: {run.model}", f"sample it: workbench sample PROMPT --model runs/{run.name}"])
    if status.state is jobs.State.FINISHED:
        return 0
    if failure := seen.failure:
        tail = [f"  | {line}" for line in failure.tail.split("\n") if failure.tail]
        say_lines([failure.cause, *(f"  {text}" for text in failure.sentences), *tail], err=True)
        say_lines(f"next: {action.command}" for action in failure.actions)
    elif seen.outcome:
        say(seen.outcome.text, err=True)
        say(f"next: workbench runs start {run.name}")
    return int(status.exit_code or ExitCode.BUG)


# ---- commands


@click.command("follow")
@click.argument("names", nargs=-1, required=True)
@with_workspace
def follow_runs(workspace: Workspace, names: tuple[str, ...]) -> int:
    """Watch one or more runs to the end.

    Ctrl-C stops watching, not the run.
    """
    return follow(*(Run.open(workspace, name) for name in names))


@click.command()
@click.argument("name")
@target_flag
@click.option("--from-start", is_flag=True, help="Start over at step 0 if the run has no good checkpoint.")
@detach_flag
@with_workspace
def start(workspace: Workspace, name: str, target: str | None, from_start: bool, detach: bool) -> int:
    """Start a run, or resume one that ended.

    It resumes from the newest good checkpoint. A run that has trained but has no good checkpoint needs --from-start.
    """
    run = startable(workspace, name, target or "")
    if not detach:
        return follow(run, begin=lambda: run.start(from_start))
    run.start(from_start)
    say(f"watch it: workbench runs follow {run.name}")
    return 0


@click.command("follow")
@click.argument("name")
@click.argument("task", type=click.Choice(NAMES))
@with_workspace
def follow_task(workspace: Workspace, name: str, task: str) -> int:
    """Watch a background task to the end. Ctrl-C stops watching, not the task."""
    from workbench.operations.dataset_tasks import job

    now = functools.partial(job, workspace, f"{name}/{task}")
    if (found := now()).state == State.NEW:
        say(f"{name} has never run the task {task}")
        return 0
    return follow_operation(found, now)
