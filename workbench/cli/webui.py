"""`workbench webui`, `api-token`, `mcp`: the page, in this process's place; its token; the same for agents."""

from __future__ import annotations

import os
import sys

import click

from workbench.cli.options import with_workspace
from workbench.cli.printing import say
from workbench.paths import PAGE
from workbench.workspace import Workspace


@click.command(context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
@with_workspace
def webui(workspace: Workspace, options: tuple[str, ...]) -> None:
    """Open the page in a browser; options are those of `python webui.py`."""
    # By its path: a file of that name in the current folder, or a package, is somebody else's.
    command = [sys.executable, str(PAGE), "--workspace", str(workspace.root), *options]
    sys.stdout.flush()
    os.execv(sys.executable, command)


@click.command("api-token")
@with_workspace
def api_token(workspace: Workspace) -> None:
    """Print the token with which programs use the page's HTTP API over this workspace; keep it as a password."""
    from workbench.api.key import api_token_of

    say(api_token_of(workspace.root))


@click.command()
@with_workspace
def mcp(workspace: Workspace) -> None:
    """Serve the workbench's operations to an agent, as tools of the Model Context Protocol on stdin and stdout.

    The page serves them, too, at /api/v1/mcp, with the token of `workbench api-token`.
    """
    from workbench.api.mcp import serve

    serve(workspace)
