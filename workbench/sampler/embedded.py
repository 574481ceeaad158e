"""What a video's file says of itself: its record without the paths of this machine, and how such a record is read here.

Files of the workspace keep their place in it (`samples/inputs/...`, `runs/ring/...`), others their name alone. Not
covered: the record beside the video, which keeps whole paths (samples).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

WHOLE = re.compile(r"[/\\~]|[A-Za-z]:[/\\]")
TEXTS = ("prompt", "negative_prompt")  # what a person wrote is no path, whatever it begins with
PATHS = ("image", "video", "continue_from", "loras")


def shareable(value: Any, root: Path | None) -> Any:
    """A record, or a part of it, in which no text is a path of this machine; root: the workspace's folder."""
    if isinstance(value, Mapping):
        return {name: one if name in TEXTS else shareable(one, root) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [shareable(one, root) for one in value]
    return _shortened(value, root) if isinstance(value, str) and WHOLE.match(value) else value


def _shortened(text: str, root: Path | None) -> str:
    path = Path(text)
    if root is not None and path.is_relative_to(root):
        return path.relative_to(root).as_posix()
    return PurePath(text.replace("\\", "/")).name or "a folder"


def localised(settings: Mapping[str, Any], root: Path) -> dict[str, Any]:
    """Settings of a shareable record with the files that lie in this workspace by their whole paths."""
    found = dict(settings)
    for name in PATHS:
        value = found.get(name)
        if isinstance(value, str):
            found[name] = _whole(value, root)
        elif isinstance(value, list):
            found[name] = [_whole(one, root) if isinstance(one, str) else one for one in value]
    return found


def _whole(text: str, root: Path) -> str:
    """`text` may go on with =SCALE."""
    name, equals, scale = text.rpartition("=") if ".safetensors=" in text else (text, "", "")
    if not name or "\0" in name or WHOLE.match(name) or ".." in PurePath(name).parts or not (root / name).is_file():
        return text
    return f"{root / name}{equals}{scale}"
