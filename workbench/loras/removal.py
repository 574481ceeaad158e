"""Remove LoRAs from the library, and restore them. Starred, best and published LoRAs are never removed.

    loras/.removed/ID/removed.json      the record: name, title, from (path in the workspace), files, bytes, time
    loras/.removed/ID/...               the files, moved here

`preview` and `to_remove` list what would be removed. Runs also remove their own old checkpoints (runs.checkpoints).
"""

from __future__ import annotations

import contextlib
import dataclasses
import shutil
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, ClassVar

from workbench.display.quantities import byte_size, moment
from workbench.errors import ConfigError, Unknown
from workbench.jobs.reading import folders_in
from workbench.loras.library import LibraryLora, all_loras, checkpoints_of, find
from workbench.settings import Settings, field
from workbench.snapshots import Shown, Snapshot
from workbench.workspace import Workspace, confined, disk, fresh_folder, read_json, size_of, write_json, writing
from workbench.workspace.lora_names import ALSO, folder

REMOVED, RECORD = ".removed", "removed.json"
DAY = 24 * 3600
SECTION = "What is removed"


class CleaningSettings(Settings):
    """Which LoRAs a cleanup removes."""

    checkpoints: int = field(1, title="Checkpoints kept", section=SECTION, low=1, high=1000)
    """How many of the newest checkpoints to keep of each run that has ended."""

    days: int = field(0, title="Older than", section=SECTION, low=0, high=10_000, unit="days")
    """Remove only LoRAs that are at least this old. 0: any age."""

    made: bool = field(False, title="Also LoRAs of no run", section=SECTION, advanced=True)
    """Also remove merged, resized, extracted and imported LoRAs. Runs' exports are kept."""


@dataclass(frozen=True)
class PlannedRemoval:
    """A LoRA to remove. paths: files and folders to move;  id: for `restore`, once it is removed."""

    lora: LibraryLora
    paths: tuple[Path, ...]
    bytes: int
    id: str = dataclasses.field(default="", compare=False)


class RemovedLora(Snapshot):
    """A LoRA in the bin."""

    COLUMNS: ClassVar[tuple[str, ...]] = ("id", "title", "bytes", "time")

    id: str
    """Its id in the bin, as `loras restore` takes it."""

    name: str
    """Name of the LoRA before it was removed."""

    title: str
    """Display name."""

    bytes: Annotated[int, Shown("size", byte_size, right=True)]
    """Size of its files in bytes."""

    time: Annotated[float, Shown("removed", moment)]
    """When it was removed, as Unix time."""


# ---- what would be removed -------------------------------------------------------------------------------------------


def preview(workspace: Workspace, names: Sequence[str]) -> list[PlannedRemoval]:
    """List what removing these LoRAs would move. Raises ConfigError with the reason if one must stay."""
    found = [find(workspace, name) for name in dict.fromkeys(names)]
    for lora in found:
        if reason := reason_to_keep(lora):
            raise ConfigError(f"{lora.title} {reason}")
    return [_planned(lora) for lora in found]


def reason_to_keep(lora: LibraryLora) -> str:
    """Say why a LoRA cannot be removed; "" if it can."""
    if lora.starred:
        return "is starred and stays: remove the star first"
    if lora.best:
        return "is the best checkpoint of its run and stays"
    if lora.published:
        return f"is published ({lora.published.get('url', 'on the Hub')}) and stays, because it is the source"
    if lora.run is not None and lora.run.status.state.alive:
        return "belongs to an active run, which may need it: wait until the run ends, or stop it"
    return ""


def to_remove(workspace: Workspace, settings: CleaningSettings) -> list[PlannedRemoval]:
    """List what a cleanup would remove now, oldest first."""
    before = time.time() - settings.days * DAY
    runs = sorted(path.name for path in folders_in(workspace.runs))
    found = [lora for run in runs for lora in checkpoints_of(workspace, run)[: -settings.checkpoints]]
    if settings.made:
        found += [lora for lora in all_loras(workspace) if lora.run is None]
    old = [lora for lora in found if lora.created <= before and not reason_to_keep(lora)]
    return [_planned(lora) for lora in sorted(old, key=lambda lora: lora.created)]


def _planned(lora: LibraryLora) -> PlannedRemoval:
    if lora.run is not None and lora.step is None:
        paths = [lora.path, *(path for path in [lora.folder / ALSO] if path.exists())]
    else:
        paths = [lora.folder]
    return PlannedRemoval(lora, tuple(paths), sum(map(size_of, paths)))


# ---- removing and restoring ------------------------------------------------------------------------------------------


def remove(workspace: Workspace, names: Sequence[str]) -> list[PlannedRemoval]:
    """Move LoRAs to the bin, from which they can be restored until it is emptied. Raises ConfigError, CannotWrite."""
    return _moved(workspace, preview(workspace, names))


def clean(workspace: Workspace, settings: CleaningSettings) -> list[PlannedRemoval]:
    """Remove what `to_remove` lists, and return it. Raises CannotWrite."""
    return _moved(workspace, to_remove(workspace, settings))


def _moved(workspace: Workspace, planned: list[PlannedRemoval]) -> list[PlannedRemoval]:
    moved = []
    for one in planned:
        lora = one.lora
        target = fresh_folder(folder(workspace) / REMOVED, lora.name.replace("/", "-").replace("@", "-step-"))
        record = {
            "name": lora.name,
            "title": lora.title,
            "bytes": one.bytes,
            "time": time.time(),
            "from": str(one.paths[0].parent.relative_to(workspace.root)),
            "files": [path.name for path in one.paths],
        }
        write_json(target / RECORD, record)  # first, so that an interrupted move can be undone
        with writing(target):
            for path in one.paths:
                disk.replace(path, target / path.name)
        moved.append(replace(one, id=target.name))
    return moved


def removed(workspace: Workspace) -> list[RemovedLora]:
    """List what can be restored, most recently removed first."""
    found = []
    for path in (folder(workspace) / REMOVED).glob(f"*/{RECORD}"):
        with contextlib.suppress(ConfigError, TypeError, ValueError):  # not our file
            found.append(RemovedLora(**{**read_json(path), "id": path.parent.name}))
    return sorted(found, key=lambda gone: -gone.time)


def restore(workspace: Workspace, id: str) -> str:
    """Move a removed LoRA back and return its name. Raises Unknown, ConfigError, CannotWrite."""
    known = {gone.id for gone in removed(workspace)}
    if id not in known:
        raise Unknown(f"{id[:80]!r} is not in the bin: choose one of {', '.join(sorted(known)) or 'none'}")
    removed_folder = folder(workspace) / REMOVED / id
    record = read_json(removed_folder / RECORD)
    files = record.get("files")
    if not isinstance(files, list) or not record.get("from"):
        raise ConfigError(f"{removed_folder / RECORD} is damaged: move the files beside it back by hand")
    home = confined(workspace.root, str(record["from"]))
    names = [str(name) for name in files if confined(home, str(name)) and confined(removed_folder, str(name))]
    taken = [name for name in names if (home / name).exists() and (removed_folder / name).exists()]
    if taken:
        raise ConfigError(f"{record['title']} cannot be restored because {home / taken[0]} exists: move that away")
    with writing(home):
        home.mkdir(parents=True, exist_ok=True)
        for name in names:
            if (removed_folder / name).exists():
                disk.replace(removed_folder / name, home / name)
    shutil.rmtree(removed_folder, ignore_errors=True)
    return str(record["name"])


def empty(workspace: Workspace) -> int:
    """Delete the removed LoRAs for good and return the bytes freed. Raises CannotWrite."""
    removed_folder = folder(workspace) / REMOVED
    freed = size_of(removed_folder)
    with writing(removed_folder):
        if removed_folder.exists():
            shutil.rmtree(removed_folder)
    return freed
