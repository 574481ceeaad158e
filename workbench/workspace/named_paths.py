"""Resolve paths that a person writes, and refuse those outside the folders that this process may read.

A page that other machines can reach is confined to some folders, as are the imports it starts; a visitor of the demo,
with everything they start, to their own folder. All other processes may read whatever their user may.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from workbench.errors import ConfigError

VARIABLE = "WORKBENCH_ROOTS"  # a JSON list of folders that a process is confined to from its start
_roots: list[Path] = []


def confine(roots: Sequence[Path]) -> None:
    """Accept only paths below these folders from now on, or any path if there are none."""
    _roots[:] = [root.resolve() for root in roots]


def roots() -> list[Path]:
    """List the folders that paths must be in. An empty list allows any path."""
    return _roots or [Path(root).resolve() for root in json.loads(os.environ.get(VARIABLE, "[]"))]


def variables(folders: Sequence[Path]) -> dict[str, str]:
    """Return the environment variable that confines a job to these folders."""
    return {VARIABLE: json.dumps([str(folder) for folder in folders])} if folders else {}


def resolve(path: Path | str, name: str = "the path") -> Path:
    """Resolve a path that a person wrote. name: the setting, for the message. Raises ConfigError."""
    text = str(path)
    try:
        found = Path(text).expanduser().resolve()
        found.exists()  # raises if the system cannot handle the name
    except (OSError, ValueError, RuntimeError) as error:
        raise ConfigError.of(
            name, f"{name} is {text[:80]!r}, a path that cannot be read: check its spelling"
        ) from error
    if (allowed := roots()) and not any(found.is_relative_to(root) for root in allowed):
        below = f"{' or '.join(map(str, allowed))}{' (started with --root)' if _roots else ''}"
        sentence = f"{name} is {str(found)[:200]!r}, which this page may not read: use one below {below}"
        raise ConfigError.of(name, sentence)
    return found


def checked(path: Path | str, name: str = "the path") -> Path:
    """Check a path like `resolve`, but keep its links, because captions are found by the name that was given.

    Both the path and what it links to must be in an allowed folder. Raises ConfigError.
    """
    resolve(path, name)
    found = Path(os.path.abspath(Path(path).expanduser()))  # removes ".." without following links
    if not resolve(found, name).is_dir():
        resolve(found.parent, name)
    return found


def check_setting(name: str, value: Any) -> None:
    """Raise ConfigError if a setting names a file outside the allowed folders. It may also hold other things."""
    if roots():
        for text in value if isinstance(value, tuple | list) else [value]:
            for one in {text.strip(), text.strip().rpartition("=")[0]} if isinstance(text, str) else ():  # a LoRA=SCALE
                if one and names_file(one):
                    resolve(one, name)


def names_file(text: str) -> bool:
    """Whether a text is a path rather than the name of a model, run or repository."""
    if not text:
        return False
    if text.startswith(("/", "~", ".", "\\")) or "\0" in text or ".." in PurePosixPath(text).parts:
        return True
    try:
        return Path(text).exists()
    except OSError:  # longer than a name can be
        return True
