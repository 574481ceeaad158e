"""Files without private data: a LoRA's notes, a video's comment, settings with paths of this machine.

Not covered: what is sent (lora, space).
"""

from __future__ import annotations

import json
import re
from pathlib import Path, PurePath
from typing import Any

from workbench.errors import DataError
from workbench.families.lora_files import DIFFUSERS_KEY, shortened
from workbench.workspace import writing

# Metadata that a LoRA file keeps. Other trainers write folders and captions there.
NOTES = ("format", DIFFUSERS_KEY, "base_model", "base_revision", "step", "trigger_word", "seed")
MACHINE = (
    "preview_images",
    "tracker",
    "tracker_project",
    "device",
    "gpus",
    "loader_threads",
    "stall_timeout",
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


def header(path: Path, more: dict[str, str]) -> tuple[bytes, int]:
    """(a safetensors file's header with no other metadata than NOTES, where its tensors begin). Raises DataError.

    more: notes that replace those of the file
    """
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        try:
            entries = json.loads(file.read(length))
            metadata = entries.pop("__metadata__", None) or {}
            notes = {name: str(value) for name, value in metadata.items() if name in NOTES}
            if DIFFUSERS_KEY in notes:
                notes[DIFFUSERS_KEY] = shortened(notes[DIFFUSERS_KEY])
        except ValueError:
            raise DataError(f"{path.name} is damaged: export it again") from None
    kept = dict(sorted({**notes, **more}.items()))
    data = json.dumps({"__metadata__": {"format": "pt", **kept}, **entries}, separators=(",", ":")).encode()
    data += b" " * (-len(data) % 8)  # tensors begin at a multiple of eight
    return len(data).to_bytes(8, "little") + data, 8 + length


def write_weights(source: Path, target: Path, head: bytes, begin: int) -> None:
    """The tensors of a file under another header. Raises CannotWrite."""
    import shutil

    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        with source.open("rb") as old, target.open("wb") as new:
            new.write(head)
            old.seek(begin)
            shutil.copyfileobj(old, new, 1 << 20)


def video(path: Path) -> bytes:
    """An mp4 with its pictures as they are and without its metadata: the prompt's record names files of this machine.

    Raises DataError.
    """
    from workbench.clips import media

    return media.without_comment(path)


def first_frame(path: Path) -> bytes:
    """The first frame of a video as a PNG. Raises DataError."""
    import io

    from PIL import Image

    from workbench.clips import media

    data = io.BytesIO()
    Image.fromarray(media.read_frames(path, [0])[0]).save(data, "PNG")
    return data.getvalue()
