"""Files that the workbench did not create: copies, backups, files of other programs. Readers leave them out.

Names that begin with a point belong to this workbench or to the system, and are not looked at.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from workbench.workspace.layout import Workspace
from workbench.workspace.names import is_slug, step_of

CACHED = re.compile(r"[0-9a-f]{40}\.safetensors")
FOLDERS = "downloads|encoding|reconstructions|measured|strips|plans|converted|loras|page"  # of the cache
Rule = Callable[[Path], bool]


def _folder(path: Path) -> bool:
    return is_slug(path.name) and path.is_dir()


def _step(path: Path) -> bool:
    return step_of(path.name) is not None and path.is_dir()


# Of previews: the first frame of one, and what else it was told.
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
    """What no reader looks at, below the workspace."""
    return sorted(path for pattern, rule in RULES.items() for path in _in(workspace.root, pattern, rule))


def strange_in(folder: Path, pattern: str) -> list[Path]:
    """The same in one folder, by the rule of a pattern above: "runs", "runs/*/checkpoints"."""
    return sorted(_entries(folder, RULES[pattern]))


def _in(root: Path, pattern: str, rule: Rule) -> Iterator[Path]:
    for folder in root.glob(pattern):
        yield from _entries(folder, rule)


def _entries(folder: Path, rule: Rule) -> Iterator[Path]:
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.startswith((".", "_")) and not rule(Path(entry.path)):
                yield Path(entry.path)


def sentence(paths: list[Path], root: Path, most: int = 5) -> str:
    """A sentence that names them, "" where there are none."""
    if not paths:
        return ""
    names = ", ".join(repr(str(path.relative_to(root))) for path in paths[:most])
    more = f" and {len(paths) - most} more" if len(paths) > most else ""
    return f"ignored, because the workbench did not create them: {names}{more}"
