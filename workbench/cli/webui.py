"""`workbench webui`, `api-token`, `mcp`, `notebooks`: the page, its token, agents' tools, copies of the notebooks."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import click

from workbench.cli.options import with_workspace
from workbench.cli.printing import say
from workbench.errors import CannotWrite
from workbench.paths import NOTEBOOKS, PAGE
from workbench.workspace import Workspace, writing


@click.command(context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
@with_workspace
def webui(workspace: Workspace, options: tuple[str, ...]) -> None:
    """Open the page in a browser. Takes the options of `python webui.py`."""
    # By path: a webui.py in the current folder, or a package of that name, may be somebody else's.
    command = [sys.executable, str(PAGE), "--workspace", str(workspace.root), *options]
    sys.stdout.flush()
    os.execv(sys.executable, command)


@click.command("api-token")
@with_workspace
def api_token(workspace: Workspace) -> None:
    """Print the token for the page's HTTP API on this workspace. Keep it like a password."""
    from workbench.api.key import api_token_of

    say(api_token_of(workspace.root))


@click.command()
@with_workspace
def mcp(workspace: Workspace) -> None:
    """Serve the operations to an agent as tools of the Model Context Protocol, on stdin and stdout.

    The page also serves them at /api/v1/mcp, with the token of `workbench api-token`.
    """
    from workbench.api.mcp import serve

    serve(workspace)


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
def notebooks(folder: Path) -> None:
    """Copy the notebooks into FOLDER without replacing any file there. Creates FOLDER if needed."""
    found = sorted(NOTEBOOKS.glob("*.ipynb"))
    if there := [one.name for one in found if (folder / one.name).exists()]:
        raise CannotWrite(f"{folder} already has {there[0]}: choose another folder")
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for one in found:
            shutil.copyfile(one, folder / one.name)
            say(str(folder / one.name))
    say(f"open them: jupyter lab {folder}")
