"""Taking LoRAs off the shelf, and bringing them back. What is starred, best or published never goes.

    loras/.removed/ID/removed.json      what it was: name, title, from (path in the workspace), bytes, time
    loras/.removed/ID/...               the files themselves, moved, not copied

What will go can be asked before it goes. A run's checkpoints are also thinned by the run itself (runs.retention).
Not covered: runs as a whole.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench import jobs
from workbench.errors import ConfigError
from workbench.lora_names import folder
from workbench.loras.library import ShelfLora, checkpoints_of, find, shelf
from workbench.settings import Settings, field
from workbench.workspace import Workspace, fresh_folder, read_json, write_json, writing

REMOVED, RECORD = ".removed", "removed.json"
DAY = 24 * 3600
SECTION = "What goes"


class CleaningSettings(Settings):
    """Which LoRAs a cleaning takes away."""

    checkpoints: int = field(1, title="Checkpoints kept", section=SECTION, low=1, high=1000)
    """Of every run that is over, so many of its newest checkpoints stay."""

    days: int = field(0, title="Older than", section=SECTION, low=0, high=10_000, unit="days")
    """Only what was made so many days ago or earlier goes. 0: whatever its age."""

    made: bool = field(False, title="Also LoRAs of no run", section=SECTION, advanced=True)
    """Take merged, resized, extracted and imported LoRAs away, too; not runs' exports."""


@dataclass(frozen=True)
class Going:
    """What goes with a LoRA. paths: files and folders that are moved"""

    lora: ShelfLora
    paths: tuple[Path, ...]
    bytes: int


@dataclass(frozen=True)
class Gone:
    """A LoRA that was taken away and can be brought back."""

    id: str
    name: str
    title: str
    bytes: int
    time: float


# ---- what would go --------------------------------------------------------------------------------------------------


def preview(workspace: Workspace, names: Sequence[str]) -> list[Going]:
    """What would go with these LoRAs. Raises ConfigError where one must stay, saying why."""
    found = [find(workspace, name) for name in dict.fromkeys(names)]
    for lora in found:
        if reason := stays(lora):
            raise ConfigError(f"{lora.title} {reason}")
    return [_going(lora) for lora in found]


def stays(lora: ShelfLora) -> str:
    """Why a LoRA cannot be taken away, "" if it can."""
    if lora.starred:
        return "is starred and stays: take the star off first"
    if lora.best:
        return "is the best checkpoint of its run and stays"
    if lora.published:
        return f"is published ({lora.published.get('url', 'on the Hub')}) and stays, as what that was made from"
    if lora.run is not None and lora.run.status.state.alive:
        return "belongs to a run at work, which may need it: wait for its end, or stop it"
    return ""


def doomed(workspace: Workspace, settings: CleaningSettings) -> list[Going]:
    """What a cleaning would take away now, oldest first."""
    before = time.time() - settings.days * DAY
    runs = sorted(path.name for path in jobs.folders_in(workspace.runs))
    found = [lora for run in runs for lora in checkpoints_of(workspace, run)[: -settings.checkpoints]]
    if settings.made:
        found += [lora for lora in shelf(workspace) if lora.run is None]
    old = [lora for lora in found if lora.created <= before and not stays(lora)]
    return [_going(lora) for lora in sorted(old, key=lambda lora: lora.created)]


def _going(lora: ShelfLora) -> Going:
    if lora.run is not None and lora.step is None:
        paths = [lora.path, *(path for path in [lora.folder / "also.safetensors"] if path.exists())]
    else:
        paths = [lora.folder]
    return Going(lora, tuple(paths), sum(_bytes(path) for path in paths))


def _bytes(path: Path) -> int:
    if path.is_file():
        return path.stat().st_size
    return sum(one.stat().st_size for one in path.rglob("*") if one.is_file())


# ---- going and coming back ------------------------------------------------------------------------------------------


def remove(workspace: Workspace, names: Sequence[str]) -> list[Going]:
    """Take LoRAs away; they can be brought back until the removed ones are emptied. Raises ConfigError, CannotWrite."""
    going = preview(workspace, names)
    for one in going:
        _move(workspace, one)
    return going


def clean(workspace: Workspace, settings: CleaningSettings) -> list[Going]:
    """Take away what `doomed` says; returns what went. Raises CannotWrite."""
    going = doomed(workspace, settings)
    for one in going:
        _move(workspace, one)
    return going


def _move(workspace: Workspace, one: Going) -> None:
    lora = one.lora
    place = fresh_folder(folder(workspace) / REMOVED, lora.name.replace("/", "-").replace("@", "-step-"))
    record: dict[str, Any] = {
        "name": lora.name, "title": lora.title, "bytes": one.bytes, "time": time.time(),
        "from": str(one.paths[0].parent.relative_to(workspace.root)), "files": [path.name for path in one.paths],
    }  # fmt: skip
    write_json(place / RECORD, record)  # first: a move that is cut short can still be undone
    with writing(place):
        for path in one.paths:
            os.rename(path, place / path.name)


def removed(workspace: Workspace) -> list[Gone]:
    """What can be brought back, newest first."""
    found = []
    for path in (folder(workspace) / REMOVED).glob(f"*/{RECORD}"):
        with contextlib.suppress(ConfigError, KeyError, TypeError, ValueError, OverflowError):  # none of ours
            record = read_json(path)
            told = str(record["name"]), str(record["title"]), int(record["bytes"]), float(record["time"])
            found.append(Gone(path.parent.name, *told))
    return sorted(found, key=lambda gone: -gone.time)


def bring_back(workspace: Workspace, id: str) -> str:
    """Put what was taken away back in its place; returns the LoRA's name. Raises ConfigError, CannotWrite."""
    place = _place(workspace, id)
    record = read_json(place / RECORD)
    home = workspace.root / record["from"]
    taken = [name for name in record["files"] if (home / name).exists() and (place / name).exists()]
    if taken:
        raise ConfigError(f"{record['title']} cannot come back, its place {home / taken[0]} is taken: move that away")
    with writing(home):
        home.mkdir(parents=True, exist_ok=True)
        for name in record["files"]:
            if (place / name).exists():
                os.rename(place / name, home / name)
    shutil.rmtree(place, ignore_errors=True)
    return str(record["name"])


def _place(workspace: Workspace, id: str) -> Path:
    known = {gone.id for gone in removed(workspace)}
    if id not in known:
        raise ConfigError(
            f"{id[:80]!r} is not among what was removed: choose one of {', '.join(sorted(known)) or 'none'}"
        )
    return folder(workspace) / REMOVED / id


def empty(workspace: Workspace) -> int:
    """Delete for good what was taken away; returns the bytes that are free now. Raises CannotWrite."""
    place = folder(workspace) / REMOVED
    freed = _bytes(place) if place.exists() else 0
    with writing(place):
        if place.exists():
            shutil.rmtree(place)
    return freed
