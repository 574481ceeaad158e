"""`workbench sample`: ask the sampling worker for a video and wait for it. Ctrl-C takes the request back.

Not covered: drawing (workbench.sampler), the worker's life (workbench.sampler.queue).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from workbench.cli.options import SettingsCommand, settings_flags, settings_from, with_workspace
from workbench.errors import ExitCode
from workbench.sampler import queue
from workbench.sampler.settings import SampleSettings
from workbench.workspace import Workspace

POLL_SECONDS = 0.1
Show = Callable[[queue.Progress], None]


@click.command(cls=SettingsCommand)
@click.argument("prompt")
@settings_flags(SampleSettings, leave_out=("prompt",))
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Settings from a JSON file. Flags and the prompt win over it.",
)
@with_workspace
def sample(workspace: Workspace, prompt: str, config: Path | None, **flags: Any) -> int:
    """Draw a video of PROMPT and print where it lies.

    The first one loads the model; the worker keeps it warm for the next.
    """
    settings = settings_from(SampleSettings, config, flags, prompt=prompt)
    done = draw(workspace, settings)
    if done.video is None:
        click.echo(f"Error: {done.message}", err=True)
        return int(done.exit_code or ExitCode.BUG)
    click.echo(str(done.video))
    return 0


def draw(workspace: Workspace, settings: SampleSettings) -> queue.Progress:
    """Draw one sample, with progress, and say how it ended. Ctrl-C takes it back. Raises what `queue.submit` raises."""
    request = queue.submit(workspace, settings)
    try:
        with _Bar() as show:
            while not (now := queue.progress(workspace, request)).state.over:
                show(now)
                time.sleep(POLL_SECONDS)
    except KeyboardInterrupt:
        queue.cancel(workspace, request)
        raise
    return now


class _Bar:
    """A bar on a terminal; on anything else nothing, so that stdout holds the video's path alone."""

    def __enter__(self) -> Show:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            MofNCompleteColumn(),
            TextColumn("{task.fields[note]}"),
            console=Console(file=sys.stderr),
            transient=True,
            disable=not sys.stderr.isatty(),
        )
        self._task = self._bar.add_task("waiting", total=None, note="")
        self._bar.start()
        return self._show

    def _show(self, now: queue.Progress) -> None:
        left = f"{now.seconds_left:.0f} s left" if now.seconds_left else now.message
        self._bar.update(
            self._task, description=now.state.value, completed=now.step, total=now.total or None, note=left
        )

    def __exit__(self, *error: object) -> None:
        self._bar.stop()
