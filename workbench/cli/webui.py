"""`workbench webui`: the page, in this process's place. Its own options are passed on."""

from __future__ import annotations

import os
import sys

import click

from workbench.cli.options import with_workspace
from workbench.paths import CODE
from workbench.workspace import Workspace

# By its path: a file of that name in the current folder, or a package, is somebody else's.
PROGRAM = CODE / "webui.py"


@click.command(context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
@with_workspace
def webui(workspace: Workspace, options: tuple[str, ...]) -> None:
    """Open the page in a browser; options are those of `python webui.py`."""
    command = [sys.executable, str(PROGRAM), "--workspace", str(workspace.root), *options]
    sys.stdout.flush()
    os.execv(sys.executable, command)
