"""Files that a browser has uploaded: kept in the dataset's import task until the next import."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from workbench.dataset_builder.sources.files import first_names
from workbench.errors import ConfigError
from workbench.workspace import confined

FOLDER = "uploads"


def inbox() -> Path:
    """Return the folder that the page's server puts uploads into.

    Raises:
        ConfigError: This process serves no page.
    """
    if not (folder := os.environ.get("GRADIO_TEMP_DIR")):
        raise ConfigError("files is not empty, but nothing was uploaded here: name files of this machine in sources")
    return Path(folder)


def keep(task: Path, files: Sequence[str]) -> list[Path]:
    """Move uploaded files into the import task's folder, so that a restart of the server does not take them away.

    Each is imported by itself, so that every one of them gets a result. A file named twice is imported once.

    Args:
        task: The task's folder. Uploads of the last import, which is over, are removed.

    Raises:
        ConfigError: A file is gone, or is no upload.
    """
    once = [confined(inbox(), file) for file in dict.fromkeys(files)]
    if gone := [file.name for file in once if not file.is_file()]:
        raise ConfigError(f"{first_names(gone)} is no longer on the server: drop it again")
    target = task / FOLDER
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    kept = []
    for file in once:
        free, count = target / file.name, 1
        while free.exists():
            count += 1
            free = target / f"{file.stem}-{count}{file.suffix}"
        shutil.move(file, free)
        kept.append(free)
    return kept
