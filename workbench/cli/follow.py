"""Watch a job from the shell: a progress bar on a terminal, plain lines in a log. Ctrl-C stops watching, not the job.

Not covered: what a run is (workbench.runs.run), tasks of a dataset (datasets.tasks), how a job's state is known
(workbench.jobs).
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Protocol

import click

from workbench import jobs
from workbench.cli.next_steps import commands, failure_text
from workbench.errors import ExitCode
from workbench.jobs import duration
from workbench.runs.metrics import read_metrics
from workbench.runs.run import Run
from workbench.runs.snapshot import snapshot

POLL_SECONDS = 0.2
PLAIN_SECONDS = 5.0  # between the lines of a log that nobody watches live


class Losses:
    """The newest loss and held-out losses of a run, read as they are written."""

    def __init__(self, run: Run) -> None:
        self._run, self._offset = run, 0
        self.step = 0
        self.loss: float | None = None
        self.held_out: list[float] = []

    def refresh(self) -> None:
        lines, self._offset = read_metrics(self._run.folder, self._offset)
        for line in lines:
            self.step = line["step"]
            self.loss = line.get("loss", self.loss)
            if "held_out_loss" in line:
                self.held_out.append(line["held_out_loss"])

    def __str__(self) -> str:
        parts = [f"loss {self.loss:.4f}"] if self.loss is not None else []
        if self.held_out:
            parts.append(f"held-out {self.held_out[-1]:.4f}")
        return ", ".join(parts)


class StatusView(Protocol):
    """Something that shows a status."""

    def show(self, status: jobs.Status, losses: str) -> None: ...

    def close(self) -> None: ...


class Bar:
    """A live progress bar."""

    def __init__(self) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn

        self._progress = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TextColumn("{task.fields[left]}"),
            TextColumn("{task.fields[losses]}"),
        )
        self._task = self._progress.add_task("starting", total=None, left="", losses="")
        self._progress.start()

    def show(self, status: jobs.Status, losses: str) -> None:
        left = f"{duration(status.seconds_left)} left" if status.seconds_left is not None else ""
        self._progress.update(
            self._task,
            description=doing(status),
            completed=status.step,
            total=status.total or None,
            left=left,
            losses=losses,
        )

    def close(self) -> None:
        self._progress.stop()


class Lines:
    """A line when the phase changes, and one every few seconds."""

    def __init__(self) -> None:
        self._last: tuple[str, int] = ("", -1)
        self._next = 0.0

    def show(self, status: jobs.Status, losses: str) -> None:
        now, last = (doing(status), status.step), self._last
        if now == last or (now[0] == last[0] and time.monotonic() < self._next):
            return
        self._last, self._next = now, time.monotonic() + PLAIN_SECONDS
        count = f" {status.step}/{status.total}" if status.total else ""
        left = f"{duration(status.seconds_left)} left" if status.seconds_left is not None else ""
        click.echo(f"{now[0]}{count}  " + ", ".join(filter(None, (losses, left))))

    def close(self) -> None:
        """Nothing to undo."""


def doing(status: jobs.Status) -> str:
    """What the job does now, in a word or two."""
    if status.state in (jobs.State.RUNNING, jobs.State.STARTING):
        return status.phase or status.state.value
    return status.state.value


@contextlib.contextmanager
def _uninterrupted() -> Iterator[None]:
    """A Ctrl-C within the block counts at its end: whoever starts a job and watches it knows that it was started."""
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
    read: Callable[[], jobs.Status], losses: Callable[[], str] = lambda: "", begin: Callable[[], object] = lambda: None
) -> jobs.Status | None:
    """Show a job until it is over; returns how it ended, None when Ctrl-C ended the watching.

    begin: starts it. A Ctrl-C while it does ends the watching, too, and not the command.
    """
    view: StatusView = Bar() if sys.stdout.isatty() else Lines()
    try:
        with _uninterrupted():
            begin()
        while (status := read()).state.alive:
            view.show(status, losses())
            time.sleep(POLL_SECONDS)
        view.show(status, losses())
    except KeyboardInterrupt:
        return None
    finally:
        view.close()
    return status


def follow(*runs: Run, begin: Callable[[], object] = lambda: None) -> int:
    """Show runs one after another until all are over; returns the exit code of the first that did not end well.

    begin: starts them. Ctrl-C leaves them alone and returns 0.
    """
    code = 0
    for number, run in enumerate(runs):
        ended = _follow(run, (lambda: None) if number else begin)
        if ended is None:
            what = "The run goes on" if len(runs) == 1 else "The runs go on"
            click.echo(
                f"\n{what}. See it again: workbench runs follow {run.name}; end it: workbench runs stop {run.name}"
            )
            return 0
        code = code or ended
    return code


def _follow(run: Run, begin: Callable[[], object]) -> int | None:
    """One run to its end; None when Ctrl-C ended the watching."""
    losses = Losses(run)

    def newest() -> str:
        losses.refresh()
        return str(losses)

    status = watch(lambda: run.status, newest, begin)
    return None if status is None else report(run, status, losses)


def report(run: Run, status: jobs.Status, losses: Losses) -> int:
    """Say how the run ended and what to do next."""
    if status.state is jobs.State.NEW:
        click.echo(f"{run.name} was never started: workbench runs start {run.name}")
        return 0
    seen = snapshot(run)
    seconds = (status.ended_at or 0) - (status.started_at or 0)
    took = f" after {duration(seconds)}" if seconds > 0 else ""
    click.echo(f"{run.name} {status.state.value} at step {losses.step}{took}")
    for fact in seen.facts:
        if fact.key == "held_out_loss":
            click.echo(f"{fact.label} {fact.text}")
    if run.lora is not None:
        click.echo(f"LoRA: {run.lora}")
    if status.state is jobs.State.FINISHED:
        return 0
    if seen.failure:
        click.echo(failure_text(seen.failure), err=True)
        for line in commands(seen.failure):
            click.echo(line)
    elif seen.outcome:
        click.echo(seen.outcome.text, err=True)
        click.echo(f"next: workbench runs start {run.name}")
    return int(status.exit_code or ExitCode.BUG)
