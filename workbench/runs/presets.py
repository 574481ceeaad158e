"""Presets of one's own: settings saved under a name, to be chosen again and shared as a file.

    presets/NAME.json       settings as --config takes them, without those that name things of this workspace

Not covered: the settings of one run (its config.json), recipes.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from workbench.errors import ConfigError
from workbench.runs.settings import TrainSettings
from workbench.settings import parse
from workbench.workspace import Workspace, checked_slug, is_slug, read_json, slugify, write_json

# What is different in every workspace, or wants another value for every run.
OWN = (
    "dataset",
    "more_datasets",
    "regularization_dataset",
    "validation_dataset",
    "start_from",
    "preview_images",
    "repository",
)


def names(workspace: Workspace) -> list[str]:
    """The presets there are, by name."""
    return sorted(path.stem for path in workspace.presets.glob("*.json") if is_slug(path.stem))


def save(workspace: Workspace, title: str, settings: TrainSettings) -> str:
    """Save settings under a title, in place of those of the same name; returns the name. Raises ConfigError."""
    if not title.strip():
        raise ConfigError("the preset has no name: write one, as in my-style")
    name = slugify(title)
    write_json(_path(workspace, name), _shared(settings.model_dump(mode="json")))
    return name


def load(workspace: Workspace, name: str) -> dict[str, Any]:
    """The settings of a preset; those that it does not name are to stay as they are. Raises ConfigError."""
    return _checked(_path(workspace, name))


def text(workspace: Workspace, name: str) -> str:
    """The file of a preset, to be given away. Raises ConfigError."""
    return json.dumps(load(workspace, name), indent=2, ensure_ascii=False) + "\n"


def add(workspace: Workspace, file: Path) -> str:
    """Take in a preset, or a run's config.json, that somebody shared; returns its name. Raises ConfigError."""
    name = slugify(file.stem)
    write_json(_path(workspace, name), _checked(file))
    return name


def _path(workspace: Workspace, name: str) -> Path:
    return workspace.presets / f"{checked_slug(name)}.json"


def _checked(file: Path) -> dict[str, Any]:
    values = read_json(file)
    if not isinstance(values, dict):
        raise ConfigError(f"{file.name} must hold a JSON object of settings: write it as {{...}}")
    parse(TrainSettings, values)
    return _shared(values)


def _shared(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in OWN}
