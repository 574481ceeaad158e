"""Watch jobs from the shell: a progress bar on a terminal, lines in a log. Ctrl-C stops watching, not the job.

Also the commands that only watch: `runs follow`, `runs start`, `dataset follow`.
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
from typing import TYPE_CHECKING

import click

from workbench import jobs
from workbench.cli.options import detach_flag, target_flag, with_workspace
from workbench.cli.printing import say, say_lines, visible
from workbench.dataset_builder.tasks import NAMES
from workbench.display.quantities import duration, loss_text
from workbench.errors import ExitCode
from workbench.jobs import State
from workbench.operations.registry import JobSnapshot
from workbench.operations.runs import startable
from workbench.runs.analysis.curves import Curves, curves_of
from workbench.runs.failures import Failure
from workbench.runs.run import Run
from workbench.runs.snapshot import snapshot
from workbench.workspace import Workspace

if TYPE_CHECKING:
    from rich.progress import Progress

POLL_SECONDS = 0.2
PLAIN_SECONDS = 5.0  # between the lines of a log that nobody watches live


class Bar:
    """A live progress bar."""

    def __init__(self, on_stderr: bool = False) -> None:
        """on_stderr: where stdout holds results alone; the bar is removed at the end."""
        self._progress = _progress(on_stderr)
        self._task = self._progress.add_task("starting", total=None, note="")
        self._progress.start()

    def show(self, doing: str, step: int, total: int, note: str) -> None:
        self._progress.update(
            self._task, description=visible(doing), completed=step, total=total or None, note=visible(note)
        )

    def close(self) -> None:
        self._progress.stop()


def _progress(on_stderr: bool) -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

    return Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=30),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}", markup=False),
        console=Console(stderr=on_stderr),
        transient=on_stderr,
    )


class Lines:
    """A line when the phase changes, and one every few seconds."""

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


def doing(status: jobs.Status) -> str:
    """What the job does now, in a word or two."""
    if status.state in (jobs.State.RUNNING, jobs.State.STARTING):
        return status.phase or status.state.value
    return status.state.value


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Defer Ctrl-C to the end of the block, so that a job is never half started."""
    pressed: list[int] = []
    if threading.current_thread() is not threading.main_thread():  # only that one gets it
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
    """Show a job until it is over; returns how it ended, None when Ctrl-C ended the watching.

    note: what is shown beside the progress;  begin: starts the job. A Ctrl-C while it does ends the watching, too, and
    not the command.
    """
    view = Bar() if sys.stdout.isatty() else Lines()

    def show(status: jobs.Status) -> None:
        left = f"{duration(status.seconds_left)} left" if status.seconds_left is not None else ""
        view.show(doing(status), status.step, status.total, ", ".join(filter(None, (note(), left))))

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
    """Watch a job to its end and say what came of it; returns the exit code for the shell.

    outcome: lines for one that finished;  goes_on: printed when Ctrl-C ends the watching, which ends with 0
    detach: do not watch it;  after_failure: lines below the error of one that failed
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
    """Say why a job did not finish, and these lines below; returns the exit code for the shell."""
    say_lines([f"Error: {status.message or status.state.value}", *lines], err=True)
    return int(status.exit_code or ExitCode.BUG)


def follow_operation(started: JobSnapshot, read: Callable[[], JobSnapshot], detach: bool = False) -> int:
    """Watch a job that an operation has started, unless it is over already; returns the exit code for the shell."""
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
    """Show runs one after another until all are over; returns the exit code of the first that did not end well.

    begin: starts them. Ctrl-C leaves them alone and returns 0.
    """
    code = 0
    for number, run in enumerate(runs):
        status = _watch_run(run, (lambda: None) if number else begin)
        if status is None:
            what = "The run goes on" if len(runs) == 1 else "The runs go on"
            again = f"{what}. See it again: workbench runs follow {run.name}; end it: workbench runs stop {run.name}"
            say_lines(["", again])
            return 0
        code = code or _report(run, status)
    return code


def _watch_run(run: Run, begin: Callable[[], object]) -> jobs.Status | None:
    curves = curves_of(run)
    return watch(lambda: run.status, lambda: _newest(curves), begin)


def _newest(curves: Curves) -> str:
    """The newest loss and held-out loss."""
    curves.refresh()
    parts = [f"loss {loss_text(curves.last['loss'])}"] if curves.last else []
    parts += [f"held-out {loss_text(loss)}" for loss in list(curves.held_out.values())[-1:]]
    return ", ".join(parts)


def _report(run: Run, status: jobs.Status) -> int:
    """Report how the run ended and what to do next."""
    if status.state is jobs.State.NEW:
        say(f"{run.name} was never started: workbench runs start {run.name}")
        return 0
    seen = snapshot(run)
    took = "".join(f" after {fact.text} of training" for fact in seen.facts if fact.key == "training_time")
    say(f"{run.name} {status.state.value} at step {seen.curves.last.get('step', 0)}{took}")
    for fact in seen.facts:
        if fact.key == "held_out_loss":
            say(f"{fact.label} {fact.text}")
    if run.lora is not None:
        say(f"LoRA: {run.lora}")
    elif run.model is not None:
        say_lines([f"model: {run.model}", f"sample it: workbench sample PROMPT --model runs/{run.name}"])
    if status.state is jobs.State.FINISHED:
        return 0
    if seen.failure:
        explain(seen.failure, err=True)
    elif seen.outcome:
        say(seen.outcome.text, err=True)
        say(f"next: workbench runs start {run.name}")
    return int(status.exit_code or ExitCode.BUG)


def explain(failure: Failure, err: bool = False) -> None:
    """What happened and what helps, the log's last lines, then a command for each action that helps.

    err: all but the commands goes to stderr
    """
    tail = [f"  | {line}" for line in failure.tail.split("\n") if failure.tail]
    say_lines([failure.cause, *(f"  {text}" for text in failure.sentences), *tail], err=err)
    for action in failure.actions:
        say(f"next: {action.command}")


# ---- commands


@click.command("follow")
@click.argument("names", nargs=-1, required=True)
@with_workspace
def follow_runs(workspace: Workspace, names: tuple[str, ...]) -> int:
    """Watch a run, or several, to the end.

    Ctrl-C stops watching, not the run.
    """
    return follow(*(Run.open(workspace, name) for name in names))


@click.command()
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
    """Watch a task until it ends. Ctrl-C stops watching, not the task."""
    from workbench.operations.dataset_tasks import job

    now = functools.partial(job, workspace, f"{name}/{task}")
    if (found := now()).state == State.NEW:
        say(f"{name} never had the task {task}")
        return 0
    return follow_operation(found, now)
