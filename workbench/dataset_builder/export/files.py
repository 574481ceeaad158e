"""Write a dataset in another tool's layout into a new folder, .zip or .tar.

Nothing is ever overwritten, and what is written appears whole or not at all. Clips are copied byte for byte. Not
covered: how layouts look (sources.layouts), the Hub (hub_push).
"""

from __future__ import annotations

import os
import re
import shutil
from contextlib import closing
from pathlib import Path, PurePosixPath

from workbench import policy
from workbench.clips.records import Clip, read_clips, read_info
from workbench.dataset_builder.export.settings import ExportSettings
from workbench.dataset_builder.export.writers import OnClip, writer_for
from workbench.dataset_builder.sources.layouts import layout_named
from workbench.dataset_builder.sources.layouts.base import ExportedClip
from workbench.errors import ConfigError, DataError
from workbench.workspace import confined, sync_folder, writing


def export(dataset: Path, settings: ExportSettings, on_clip: OnClip = lambda *_: None) -> Path:
    """Write the dataset to `settings.target`; returns its absolute path. Raises ConfigError, DataError, CannotWrite."""
    target = policy.resolve(settings.target, "target")
    if target.is_relative_to(dataset.resolve()):
        raise ConfigError(f"target is {target}, which lies inside the dataset itself: choose a place outside it")
    if os.path.lexists(target):
        raise ConfigError(f"target is {target}, which is there already: choose another name")
    found = exported_clips(dataset, settings.trigger_word)
    part = target.with_name(f".{target.name}.{dataset.name}.part")
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove(part)  # an export that was killed
    try:
        with closing(writer_for(target, part, settings.hard_links, len(found), on_clip)) as writer:
            layout_named(settings.layout).write(found, writer, settings.first_frames)
        _publish(part, target)
    finally:
        _remove(part)
    return target


def exported_clips(dataset: Path, trigger_word: bool) -> list[ExportedClip]:
    """The dataset's clips as layouts write them, in the dataset's order. Raises DataError when a file is missing."""
    info, found = read_info(dataset), read_clips(dataset)
    if not found:
        raise DataError(f"{dataset.name} has no clips to export: import some")
    taken: set[str] = set()
    result = []
    for clip in found:
        file = confined(dataset, clip.file_name)
        if not file.is_file():
            raise DataError(f"{clip.file_name} is missing in {dataset.name}: bring it back, or remove the clip")
        path = PurePosixPath(clip.file_name)
        stem = re.sub(r"[^A-Za-z0-9_-]+", "_", path.stem)
        name = stem + path.suffix
        while name.lower() in taken:
            stem += "_"
            name = stem + path.suffix
        taken.add(name.lower())
        caption = info.caption(clip) if trigger_word else clip.text
        result.append(ExportedClip(clip, file, name, caption, _first_frame(dataset, clip)))
    return result


def _first_frame(dataset: Path, clip: Clip) -> Path | None:
    """The picture that came with a clip as its first frame. Raises DataError when it is missing."""
    if not (name := clip.first_frame):
        return None
    if not (picture := confined(dataset, name)).is_file():
        raise DataError(f"{name}, the first frame of {clip.file_name}, is missing in {dataset.name}: bring it back")
    return picture


def _publish(part: Path, target: Path) -> None:
    """Give what was written its name. Raises ConfigError when something else took that name meanwhile."""
    with writing(target):
        os.sync()
        try:
            if part.is_dir():
                os.rename(part, target)
            else:
                os.link(part, target)  # unlike a rename, it replaces nothing
        except OSError:
            if os.path.lexists(target):
                raise ConfigError(f"target is {target}, which is there already: choose another name") from None
            os.rename(part, target)  # a disk without links
        sync_folder(target.parent)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
