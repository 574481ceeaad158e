"""`workbench status`: what goes on in the workspace, and what comes next.

Not covered: what is shown (workbench.overview), one run (runs).
"""

from __future__ import annotations

import click

from workbench.cli.options import json_flag, with_workspace
from workbench.cli.printing import print_json, say
from workbench.cli.tables import print_table
from workbench.overview import NextStep, OverviewReader, RunLine, to_json
from workbench.sampler.view import loras_used, title_of
from workbench.workspace import Workspace

COMMAND_OF = {
    "demo": "workbench demo",
    "import": "workbench dataset import NAME FILES",
    "dataset": "workbench dataset show {0}",
    "train": "workbench train --dataset {0}",
    "run": "workbench runs show {0}",
    "sample": "workbench sample PROMPT --loras {0}",
}


@click.command()
@json_flag
@with_workspace
def status(workspace: Workspace, as_json: bool) -> None:
    """Show what goes on: runs at work, waiting or failed, the newest samples and datasets, and what comes next."""
    seen = OverviewReader(workspace).read()
    if as_json:
        print_json(to_json(seen))
        return
    if runs := [*seen.active, *seen.failed, *seen.ended]:
        print_table(("run", "state", ""), [_run(one) for one in runs])
    if seen.datasets:
        print_table(
            ("dataset", "contents", ""),
            [(one.name, one.contents, one.activity or one.next_step) for one in seen.datasets],
        )
    if seen.samples:
        rows = [(one.id, title_of(one), loras_used(one)) for one in seen.samples]
        print_table(("sample", "prompt", "LoRAs"), rows)
    for line in filter(None, (seen.machine, *map(_next, seen.next_steps))):
        say(line)


def _run(one: RunLine) -> tuple[str, str, str]:
    return one.name, one.state, one.message or one.activity.removeprefix(f"{one.state}: ")


def _next(step: NextStep) -> str:
    return f"{step.label}: {COMMAND_OF[step.kind].format(step.target)}"
