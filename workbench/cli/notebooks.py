"""`workbench notebooks`: the notebooks, copied out of the package to where they may be changed and run."""

from __future__ import annotations

import shutil
from pathlib import Path

import click

from workbench.cli.printing import say
from workbench.errors import CannotWrite
from workbench.paths import NOTEBOOKS
from workbench.workspace import writing


@click.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False))
def notebooks(folder: Path) -> None:
    """Copy the notebooks into FOLDER, which is made; no file there is replaced."""
    found = sorted(NOTEBOOKS.glob("*.ipynb"))
    if there := [one.name for one in found if (folder / one.name).exists()]:
        raise CannotWrite(f"{folder} has {there[0]} already, which would be replaced: name another folder")
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        for one in found:
            shutil.copyfile(one, folder / one.name)
            say(str(folder / one.name))
    say(f"open them: jupyter lab {folder}")
