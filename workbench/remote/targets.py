"""The targets of a workspace: `targets/NAME.json`, a file a target, plain settings without secrets.

Not covered: what the settings mean (settings), whether a target is ready (the backend's `check`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from workbench.errors import ConfigError
from workbench.remote.settings import KINDS
from workbench.settings import Settings
from workbench.workspace import Workspace, checked_slug, read_json, slugify

if TYPE_CHECKING:
    from pathlib import Path

FOLDER = "targets"
LOCAL = "local"  # this machine


def names(workspace: Workspace) -> list[str]:
    """The names of the targets, sorted."""
    return sorted(path.stem for path in (workspace.root / FOLDER).glob("*.json"))


def load(workspace: Workspace, name: str) -> Settings:
    """A target's settings, of the class of its kind. Raises ConfigError."""
    path = _path(workspace, name)
    if not path.exists():
        known = ", ".join(names(workspace)) or "none yet: workbench targets add"
        raise ConfigError(f"there is no target {name!r}: choose one of {known}")
    values = read_json(path)
    kind = values.get("kind") if isinstance(values, dict) else None
    if kind not in KINDS:
        raise ConfigError(f"{path} has the kind {kind!r}: use one of {', '.join(KINDS)}")
    return KINDS[kind].load(path)


def save(workspace: Workspace, name: str, target: Settings) -> None:
    """Save a target under a name; one of that name is replaced. Raises ConfigError, CannotWrite."""
    if name == LOCAL or slugify(name) != name:
        raise ConfigError(f"the name {name!r} cannot be a target's: use small letters, digits and '-', and not {LOCAL}")
    target.save(_path(workspace, name))


def remove(workspace: Workspace, name: str) -> None:
    """Remove a target; runs that are there go on. Raises ConfigError."""
    load(workspace, name)
    _path(workspace, name).unlink()


def _path(workspace: Workspace, name: str) -> Path:
    return workspace.root / FOLDER / f"{checked_slug(name)}.json"
