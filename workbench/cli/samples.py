"""`workbench sample`: request videos from the sampling worker and wait for them. Ctrl-C cancels what is not done.

Not covered: generating (workbench.sampler), the worker's life (workbench.sampler.queue).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from workbench.cli.options import SettingsCommand, settings_flags, settings_from, with_workspace
from workbench.errors import ExitCode
from workbench.sampler import queue
from workbench.sampler.input_files import kept
from workbench.sampler.samples import settings_of
from workbench.sampler.settings import BatchSettings, SampleSettings, expand
from workbench.sampler.view import report, request_view
from workbench.settings import specs
from workbench.workspace import Workspace, read_json

POLL_SECONDS = 0.1
BATCH = tuple(spec.name for spec in specs(BatchSettings))


@click.command(cls=SettingsCommand)
@click.argument("prompt", required=False)
@settings_flags(BatchSettings)
@settings_flags(SampleSettings, leave_out=("prompt",))
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Settings and prompt from a video made here, the JSON beside one, or a JSON file of settings. Flags and a "
    "PROMPT win over it.",
)
@click.option("--verbose", "-v", is_flag=True, help="Print on stderr how each LoRA fitted, seed and steps.")
@with_workspace
def sample(workspace: Workspace, prompt: str | None, config: Path | None, verbose: bool, **flags: Any) -> int:
    """Generate videos of PROMPT and print the path of each. PROMPT - reads it from stdin.

    The first one loads the model; the worker keeps it warm for the next. --seed random gives another video each time.
    --config VIDEO.mp4 generates a video again, with the flags that are given changed.
    """
    if prompt is None and config is None:
        raise click.UsageError("Missing argument 'PROMPT': describe the video, or give --config FILE.")
    prompt = sys.stdin.read() if prompt == "-" else prompt
    batch = settings_from(BatchSettings, None, {name: flags.pop(name) for name in BATCH})
    if flags.get("seed") == "random":
        flags["seed"] = ""  # as in the form: an empty one
    base = settings_of(config, workspace) if config else None
    fixed = {} if prompt is None else {"prompt": prompt.strip()}
    settings = settings_from(SampleSettings, None, flags, base, **fixed)
    code = 0
    for done in generate_all(workspace, kept(workspace, expand(settings, batch))):
        if done.video is None:
            click.echo(f"Error: {done.message}", err=True)
            code = code or int(done.exit_code or ExitCode.BUG)
            continue
        click.echo(str(done.video))
        if verbose:
            click.echo("\n".join(report(read_json(done.video.with_suffix(".json")))), err=True)
    return code


def generate(workspace: Workspace, settings: SampleSettings) -> queue.Progress:
    """Generate one sample, with progress. Ctrl-C cancels it. Raises what `queue.submit` raises."""
    return generate_all(workspace, [settings])[0]


def generate_all(workspace: Workspace, many: Sequence[SampleSettings]) -> list[queue.Progress]:
    """Generate samples, with progress; returns how each ended. Ctrl-C cancels those that are not done."""
    ids = queue.submit_all(workspace, many)
    ended: list[queue.Progress] = []
    try:
        with _Bar(len(ids)) as bar:
            for sample_id in ids:
                while not (now := queue.progress(workspace, sample_id)).state.over:
                    bar.show(now, len(ended))
                    queue.revive(workspace)
                    time.sleep(POLL_SECONDS)
                ended.append(now)
    except KeyboardInterrupt:
        queue.cancel_all(workspace, ids)
        raise
    return ended


class _Bar:
    """A bar on a terminal; on anything else nothing, so that stdout holds the videos' paths alone."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __enter__(self) -> _Bar:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=30),
            TextColumn("{task.fields[note]}"),
            console=Console(file=sys.stderr),
            transient=True,
            disable=not sys.stderr.isatty(),
        )
        self._task = self._bar.add_task("waiting", total=None, note="")
        self._bar.start()
        return self

    def show(self, now: queue.Progress, done: int) -> None:
        """done: how many of all are over"""
        view = request_view(now)
        which = f"video {done + 1} of {self._count}: " if self._count > 1 else ""
        self._bar.update(
            self._task,
            description=which + view.status,
            completed=now.step,
            total=now.total or None,
            note=view.message,
        )

    def __exit__(self, *error: object) -> None:
        self._bar.stop()
