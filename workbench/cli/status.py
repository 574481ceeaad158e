"""`workbench status` (what is happening, what to do next) and `workbench doctor` (is this machine ready?)."""

from __future__ import annotations

import click

from workbench.cli.options import json_flag, with_workspace
from workbench.cli.printing import print_json, print_table, say, say_lines
from workbench.errors import ExitCode
from workbench.operations import machine
from workbench.operations.overview import overview
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
    """Show active, waiting and failed runs, the newest samples and datasets, and what to do next."""
    seen = overview(workspace)
    if as_json:
        print_json(seen.model_dump(mode="json"))
        return
    if runs := [*seen.active, *seen.failed, *seen.ended]:
        print_table(
            ("run", "state", ""),
            [(one.name, one.state, one.message or one.activity.removeprefix(f"{one.state}: ")) for one in runs],
        )
    if seen.datasets:
        print_table(
            ("dataset", "contents", ""),
            [(one.name, one.contents, one.activity or one.next_step) for one in seen.datasets],
        )
    if seen.samples:
        rows = [(one.id, title_of(one), loras_used(one)) for one in seen.samples]
        print_table(("sample", "prompt", "LoRAs"), rows)
    if seen.machine:
        say(seen.machine)
    for step in seen.next_steps:
        say(f"{step.label}: {COMMAND_OF[step.kind].format(step.target)}")


@click.command()
@click.option("--quick", is_flag=True, help="Check packages and devices only, without the test training.")
@json_flag
@with_workspace
def doctor(workspace: Workspace, quick: bool, as_json: bool) -> int:
    """Check this machine: versions, device, disk, models, browser. Then import a clip and train two steps.

    Exits with 0 when nothing needs fixing.
    """
    if not quick:
        say("importing a clip and training two steps on the built-in model ...", err=True)
    checks = machine.doctor(workspace, quick=quick)
    wrong = sum(bool(one.remedy) for one in checks)
    if as_json:
        print_json([one.model_dump(mode="json") for one in checks])
    else:
        say_lines(line for one in checks for line in one.said)
        say(f"{wrong} to fix" if wrong else "all in order")
    return int(ExitCode.BAD_CONFIG) if wrong else 0
