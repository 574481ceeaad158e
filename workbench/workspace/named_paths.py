"""The one way from a path that a person wrote to a file: expanded, links resolved, below a folder that is open here.

A page that other machines can reach is confined to some folders, and so are the imports that it starts; a visitor of
the demo, and all that they start, to their own. Everything else may read what its user may.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import Any

from workbench.errors import ConfigError

VARIABLE = "WORKBENCH_ROOTS"  # a JSON list of folders, to which a process is confined from its beginning
_roots: list[Path] = []


def confine(roots: Sequence[Path]) -> None:
    """From now on this process takes only paths below these folders; none: any."""
    _roots[:] = [root.resolve() for root in roots]


def roots() -> list[Path]:
    """List the folders below which a path must lie; none: any path will do."""
    return _roots or [Path(root).resolve() for root in json.loads(os.environ.get(VARIABLE, "[]"))]


def variables(folders: Sequence[Path]) -> dict[str, str]:
    """Return the variable that confines a job to these folders."""
    return {VARIABLE: json.dumps([str(folder) for folder in folders])} if folders else {}


def resolve(path: Path | str, name: str = "the path") -> Path:
    """Return the file or folder that a person names. name: of the setting, for the sentence. Raises ConfigError."""
    text = str(path)
    try:
        found = Path(text).expanduser().resolve()
        found.exists()  # raises for what no system takes as a name
    except (OSError, ValueError, RuntimeError) as error:
        sentence = f"{name} is {text[:80]!r}, which is no path that can be read: check its spelling"
        raise ConfigError(sentence, {name: sentence}) from error
    if (allowed := roots()) and not any(found.is_relative_to(root) for root in allowed):
        below = f"{' or '.join(map(str, allowed))}{' (started with --root)' if _roots else ''}"
        sentence = f"{name} is {str(found)[:200]!r}, which this page may not read: use one below {below}"
        raise ConfigError(sentence, {name: sentence})
    return found


def checked(path: Path | str, name: str = "the path") -> Path:
    """As `resolve`, under the very name that was given, by which captions are found: absolute, links unresolved.

    It must lie below an open folder, and lead into one.
    """
    resolve(path, name)
    found = Path(os.path.abspath(Path(path).expanduser()))  # ".." is taken out of the name, whatever is a link in it
    if not resolve(found, name).is_dir():
        resolve(found.parent, name)
    return found


def check_setting(name: str, value: Any) -> None:
    """Raises ConfigError when a setting that may name files, beside other things, names one that is not open here."""
    if roots():
        for text in value if isinstance(value, tuple | list) else [value]:
            for one in {text.strip(), text.strip().rpartition("=")[0]} if isinstance(text, str) else ():  # a LoRA=SCALE
                if one and names_file(one):
                    resolve(one, name)


def names_file(text: str) -> bool:
    """Whether it is a path, and no name of a model, a run or a repository."""
    if not text:
        return False
    if text.startswith(("/", "~", ".", "\\")) or "\0" in text or ".." in PurePosixPath(text).parts:
        return True
    try:
        return Path(text).exists()
    except OSError:  # longer than a name can be
        return True
