"""Input files: copies of the pictures and videos that samples begin with, so that samples stay reproducible.

    samples/inputs/<sha256>.<ext>

Not covered: reading them (pictures), whether the model takes them (inputs).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from workbench import policy
from workbench.clips.records import file_sha256
from workbench.sampler.pictures import check_picture, check_video
from workbench.sampler.settings import SampleSettings
from workbench.workspace import Workspace, writing

FOLDER = "inputs"
Kind = Literal["picture", "video"]
# Which settings name a file.
INPUT_FILES: dict[str, Kind] = {"image": "picture", "video": "video", "continue_from": "video"}


def keep(workspace: Workspace, path: Path, kind: Kind) -> Path:
    """The file's copy in the workspace, made where there is none. Raises ConfigError for what is none, CannotWrite."""
    path = policy.resolve(path, kind)
    folder = workspace.samples / FOLDER
    if path.parent == folder:
        return path
    (check_picture if kind == "picture" else check_video)(path)
    target = folder / f"{file_sha256(path)}{path.suffix.lower()}"
    if not target.exists():
        temporary = folder / f".{os.getpid()}-{target.name}"
        with writing(target):
            folder.mkdir(parents=True, exist_ok=True)
            try:
                shutil.copyfile(path, temporary)
                os.replace(temporary, target)
            finally:
                temporary.unlink(missing_ok=True)
    return target


def kept(workspace: Workspace, many: Sequence[SampleSettings]) -> list[SampleSettings]:
    """The same settings with every file that they name kept in the workspace. Raises ConfigError, CannotWrite."""
    known: dict[tuple[str, Kind], str] = {}

    def kept_file(file: str, kind: Kind) -> str:
        if (file, kind) not in known:
            known[file, kind] = str(keep(workspace, Path(file), kind))
        return known[file, kind]

    found = []
    for settings in many:
        files = {name: kept_file(file, kind) for name, kind in INPUT_FILES.items() if (file := getattr(settings, name))}
        found.append(settings.changed(**files) if files else settings)
    return found
