"""Import clips from your own code, registered as an entry point of an installed package.

    [project.entry-points."video_lora_workbench.sources"]
    simulation = "my_package:Simulation"

The entry point is called with the text after the name ("seed7" for own_source simulation=seed7) and returns an iterable
of dicts: name, caption, and either video (the path of a file) or frames (uint8 [F, H, W, 3]) with fps. The items are
written to a folder of videos and captions, which is then imported like any other.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from workbench.clips import media
from workbench.errors import ConfigError, DataError
from workbench.workspace import disk, make_folder, write_text, writing

ENTRY_POINTS = "video_lora_workbench.sources"
RULE = "each item is a dict of name, caption, and either video (a path) or frames (uint8 [F, H, W, 3]) with fps"


def fetch(source: str, folder: Path, on_item: Callable[[int], None]) -> Path:
    """Write the items of NAME or NAME=TEXT to the folder and return it. Files already there are kept, to resume.

    Args:
        on_item: Called with the number of items after each one; may raise to stop.

    Raises:
        ConfigError: No installed package has a source with this name.
        DataError: An item is invalid, or two have the same name.
        CannotWrite: The disk is full or the folder is read-only.
    """
    name, _, text = source.strip().partition("=")
    known = {entry.name: entry for entry in metadata.entry_points(group=ENTRY_POINTS)}
    if name not in known:
        installed = f"installed are {', '.join(sorted(known))}" if known else "no installed package has one"
        raise ConfigError(f"own_source is {name[:80]!r}, {installed}: name an entry point of the group {ENTRY_POINTS}")
    make_folder(folder)
    seen = set[str]()
    for number, item in enumerate(known[name].load()(text), 1):
        _write(item, number, folder, seen)
        on_item(number)
    return folder


def _write(item: Any, number: int, folder: Path, seen: set[str]) -> None:
    if not isinstance(item, Mapping):
        raise DataError(f"item {number} is {type(item).__name__}: {RULE}")
    name, video, frames = str(item.get("name", "")), item.get("video"), item.get("frames")
    if not name or name.startswith(".") or Path(name).name != name or name.casefold() in seen:
        raise DataError(f"item {number} is named {name[:80]!r}, must be a unique file name: rename it")
    seen.add(name.casefold())
    if (video is None) == (frames is None):
        raise DataError(f"item {number}, {name}: {RULE}")
    target = folder / f"{name}{Path(str(video)).suffix if video is not None else '.mp4'}"
    if not target.exists():
        if video is None:
            _encode(frames, item.get("fps"), target, f"item {number}, {name}")
        elif not Path(video).is_file():
            raise DataError(f"item {number}, {name}: {video} is not a file")
        else:
            part = target.with_name(".part")
            with writing(target):
                shutil.copyfile(video, part)
                disk.replace(part, target)
    write_text(folder / f"{name}.txt", str(item.get("caption", "")))


def _encode(frames: Any, fps: Any, path: Path, what: str) -> None:
    """Encode frames almost losslessly, like all training clips."""
    import numpy as np

    pixels = np.asarray(frames)
    if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[-1] != 3 or not len(pixels):
        raise DataError(f"{what}: frames are {pixels.dtype} {list(pixels.shape)}, must be uint8 [F, H, W, 3]")
    if not isinstance(fps, int | float) or not 1 <= fps <= 240:
        raise DataError(f"{what}: fps is {fps!r}, must be a number from 1 to 240")
    media.encode(pixels, path, float(fps), crf=None)
