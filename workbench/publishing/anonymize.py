"""Texts and settings without paths of this machine."""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import Any

MACHINE = (
    "preview_images",
    "tracker",
    "tracker_project",
    "device",
    "gpus",
    "loader_threads",
    "stall_timeout",
    "nccl_timeout",
    "push_to_hub",
    "repository",
)
PATH = re.compile(r"(?:^|(?<=[\s='\"(]))(?:~|[A-Za-z]:)?[/\\][^\s'\"]*[/\\][^\s'\"=]*")


def text(value: str) -> str:
    """A text in which paths of this machine have become the names at their ends."""
    return PATH.sub(lambda found: PurePath(found[0].replace("\\", "/")).name or "a folder", value)


def settings(values: dict[str, Any]) -> dict[str, Any]:
    """Settings without those that concern this machine alone, and without its paths."""
    return {name: _value(value) for name, value in values.items() if name not in MACHINE}


def _value(value: Any) -> Any:
    if isinstance(value, str):
        return text(value)
    return [_value(one) for one in value] if isinstance(value, list) else value
