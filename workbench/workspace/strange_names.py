"""Find files in a workspace that the workbench did not create, such as copies and backups. Readers ignore them.

Names that begin with a dot belong to the workbench or the system and are not reported.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from workbench.display.quantities import listed
from workbench.workspace.layout import Workspace, is_slug, step_of

CACHED = re.compile(r"[0-9a-f]{40}\.safetensors")
FOLDERS = "downloads|encoding|reconstructions|measured|strips|plans|converted|loras|page"  # in the cache
SHOWN_NAMES = 5  # in a sentence
Rule = Callable[[Path], bool]


def _folder(path: Path) -> bool:
    return is_slug(path.name) and path.is_dir()


def _step(path: Path) -> bool:
    return step_of(path.name) is not None and path.is_dir()


# In a run's previews: the first frames and other inputs they were given.
SHOWN = re.compile(r"(picture-\d+|told-[0-9a-f]{8}-[a-z0-9_-]+)\.(png|mp4)")
RULES: dict[str, Rule] = {
    "datasets": _folder,
    "runs": _folder,
    "grids": _folder,
    "loras": lambda path: _folder(path) or path.name == "stars.json",
    "samples": lambda path: path.name.isdecimal() or re.fullmatch(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", path.name) is not None,
    "cache": lambda path: CACHED.fullmatch(path.name) is not None or re.fullmatch(FOLDERS, path.name) is not None,
    "locks": lambda path: path.suffix in (".lock", ".wanted"),
    "runs/*/checkpoints": _step,
    "runs/*/previews": lambda path: _step(path) or SHOWN.fullmatch(path.name) is not None,
}


def strange_names(workspace: Workspace) -> list[Path]:
    """List the files of a workspace that readers ignore."""
    folders = [(folder, rule) for pattern, rule in RULES.items() for folder in workspace.root.glob(pattern)]
    return sorted(path for folder, rule in folders for path in _strange(folder, rule))


def strange_in(folder: Path, pattern: str) -> list[Path]:
    """List the ignored files of one folder, by the rule of a pattern such as "runs" or "runs/*/checkpoints"."""
    return sorted(_strange(folder, RULES[pattern]))


def _strange(folder: Path, rule: Rule) -> Iterator[Path]:
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.startswith((".", "_")) and not rule(Path(entry.path)):
                yield Path(entry.path)


def sentence(paths: list[Path], root: Path) -> str:
    """Name the files in a sentence; "" if there are none."""
    if not paths:
        return ""
    names = listed([repr(str(path.relative_to(root))) for path in paths], SHOWN_NAMES)
    return f"ignored, because the workbench did not create them: {names}"
