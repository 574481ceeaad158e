"""`workbench doctor`: is everything in order on this machine? Each line says what is, and what to do if it is not."""

from __future__ import annotations

import click

from workbench.cli.options import json_flag, with_workspace
from workbench.cli.printing import print_json, say, say_lines
from workbench.errors import ExitCode
from workbench.operations import machine
from workbench.operations.shared import said
from workbench.workspace import Workspace


@click.command()
@click.option("--quick", is_flag=True, help="Check packages and devices only: import no clip, train nothing.")
@json_flag
@with_workspace
def doctor(workspace: Workspace, quick: bool, as_json: bool) -> int:
    """Check this machine: versions, device, disk, models, browser; then import a clip and train two steps.

    Ends with 0 when nothing needs fixing.
    """
    if not quick:
        say("importing a clip and training two steps on the built-in model ...", err=True)
    checks = machine.doctor(workspace, quick=quick)
    wrong = sum(bool(one.remedy) for one in checks)
    if as_json:
        print_json([one.model_dump(mode="json") for one in checks])
    else:
        say_lines(line for one in checks for line in said(one))
        say(f"{wrong} to fix" if wrong else "all in order")
    return int(ExitCode.BAD_CONFIG) if wrong else 0
