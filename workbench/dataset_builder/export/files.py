"""Write a dataset in another tool's layout into a new folder, .zip or .tar.

Nothing is ever overwritten, and what is written appears whole or not at all. Clips are copied byte for byte. Not
covered: how layouts look (sources.layouts), the Hub (hub_push).
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shutil
import tarfile
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path, PurePosixPath

from workbench import policy
from workbench.clips.records import Clip, read_clips, read_info
from workbench.dataset_builder.export.settings import ExportSettings
from workbench.dataset_builder.sources.layouts import layout_named
from workbench.dataset_builder.sources.layouts.base import ExportedClip, ExportedFiles
from workbench.dataset_builder.sources.layouts.shards import shards_of
from workbench.errors import ConfigError, DataError
from workbench.workspace import confined, disk, sync_folder, writing
from workbench.workspace.zip_stream import write_zip, zip_stream

LONGEST_NAME = 80  # characters of an exported file, without its ending
RESERVED = re.compile(r"con|prn|aux|nul|(com|lpt)\d", re.IGNORECASE)  # names that Windows keeps for devices
OTHER_ARCHIVES = (".tar.gz", ".tgz", ".tar.bz2", ".tar.xz", ".7z", ".rar")
IN_SHARDS = "layout is webdataset, which is tar files already: choose {}"
OnClip = Callable[[int, int], None]
"""Called with (clips written, all clips) after each; may raise to stop, upon which nothing is left behind."""


def export(dataset: Path, settings: ExportSettings, on_clip: OnClip = lambda *_: None) -> Path:
    """Write the dataset to `settings.target`; returns its absolute path. Raises ConfigError, DataError, CannotWrite."""
    target = policy.resolve(settings.target, "target")
    if target.is_relative_to(dataset.resolve()):
        raise ConfigError(f"target is {target}, which lies inside the dataset itself: choose a place outside it")
    if os.path.lexists(target):
        raise ConfigError(f"target is {target}, which is there already: choose another name")
    clips = exported_clips(dataset, settings.trigger_word)
    part = target.with_name(f".{target.name}.{dataset.name}.part")
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        _remove(part)  # an export that was killed
    try:
        _write(clips, settings, target.name, part, on_clip)
        _publish(part, target)
    finally:
        _remove(part)
    return target


def export_stream(dataset: Path, settings: ExportSettings) -> Iterator[bytes]:
    """The dataset as a zip, piece by piece, in `settings.layout`. Raises ConfigError, DataError before the first."""
    layout = layout_named(settings.layout)
    if layout.shards:
        raise ConfigError(IN_SHARDS.format("a layout for a zip"))
    return zip_stream(layout.files(exported_clips(dataset, settings.trigger_word), settings.first_frames))


def exported_clips(dataset: Path, trigger_word: bool, readable: bool = True) -> list[ExportedClip]:
    """The dataset's clips as layouts write them, in the dataset's order. Raises DataError when a file is missing.

    readable: files are called by the clips' sources and times; otherwise by their content, which tells nobody those
    """
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
        wanted = stem = _portable(_title(clip) if readable else path.stem) or f"clip_{_portable(clip.id)}"
        count = 1
        while stem.lower() in taken:
            count += 1
            stem = f"{wanted}_{count}"
        taken.add(stem.lower())
        name = stem + path.suffix
        caption = info.caption(clip) if trigger_word else clip.text
        result.append(ExportedClip(clip, file, name, caption, _first_frame(dataset, clip)))
    return result


def _title(clip: Clip) -> str:
    """ "walk_0m12-0m15" of "walk.mp4 0:12-0:15"."""
    source = Path(clip.source).stem or Path(clip.master or clip.file_name).stem
    part = f"_{clip.times}" if clip.times else ""
    return source + part.replace(":", "m").replace(".", "s")


def _portable(text: str) -> str:
    """What every file system and trainer takes as a file's name; "" where nothing is left of it."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    stem = re.sub(r"[^A-Za-z0-9_-]+", "_", plain)
    if len(stem) > LONGEST_NAME:  # the times are at its end
        stem = stem[: LONGEST_NAME // 2] + "_" + stem[1 - LONGEST_NAME // 2 :]
    stem = stem.strip("_-")
    return f"clip_{stem}" if RESERVED.fullmatch(stem) else stem


def _first_frame(dataset: Path, clip: Clip) -> Path | None:
    """The picture that came with a clip as its first frame. Raises DataError when it is missing."""
    if not (name := clip.first_frame):
        return None
    if not (picture := confined(dataset, name)).is_file():
        raise DataError(f"{name}, the first frame of {clip.file_name}, is missing in {dataset.name}: bring it back")
    return picture


def _write(clips: Sequence[ExportedClip], settings: ExportSettings, name: str, part: Path, on_clip: OnClip) -> None:
    """Write a folder, zip or tar, as the target's name says, to `part`. Raises ConfigError, DataError, CannotWrite."""
    layout, done = layout_named(settings.layout), 0

    def counted(of: Sequence[ExportedClip]) -> ExportedFiles:
        nonlocal done
        paths = {clip.file for clip in of}
        for entry in layout.files(of, settings.first_frames):
            yield entry
            if entry[1] in paths:
                done += 1
                on_clip(done, len(clips))

    low = name.lower()
    if low.endswith(OTHER_ARCHIVES):
        raise ConfigError(f"target is {name}, must be a folder, .zip or .tar: videos do not shrink any further")
    if low.endswith(".tar"):
        _write_tar(part, counted(clips))
    elif low.endswith(".zip"):
        if layout.shards:
            raise ConfigError(IN_SHARDS.format("a folder or a .tar as target"))
        write_zip(part, counted(clips))
    else:
        with writing(part):
            part.mkdir()
        if not layout.shards:
            _write_folder(part, counted(clips), settings.hard_links)
            return
        for number, shard in enumerate(shards_of(clips)):
            _write_tar(part / f"shard-{number:06d}.tar", counted(shard))


def _write_folder(folder: Path, files: ExportedFiles, link: bool) -> None:
    for name, content in files:
        path = folder / name
        with writing(path):
            path.parent.mkdir(exist_ok=True)
            if isinstance(content, bytes):
                path.write_bytes(content)
                continue
            if link:
                with contextlib.suppress(OSError):  # another disk, or one without links
                    os.link(content, path)
                    continue
            shutil.copyfile(content, path)


def _write_tar(path: Path, files: ExportedFiles) -> None:
    """Without times and owners, so that the same dataset gives the same bytes."""
    with writing(path), tarfile.open(path, "w") as tar:
        for name, content in files:
            info = tarfile.TarInfo(name)
            if isinstance(content, bytes):
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
                continue
            info.size = content.stat().st_size
            with content.open("rb") as file:
                tar.addfile(info, file)


def _publish(part: Path, target: Path) -> None:
    """Give what was written its name. Raises ConfigError when something else took that name meanwhile."""
    with writing(target):
        disk.sync()
        try:
            if part.is_dir():
                disk.replace(part, target)
            else:
                os.link(part, target)  # unlike a rename, it replaces nothing
        except OSError:
            if os.path.lexists(target):
                raise ConfigError(f"target is {target}, which is there already: choose another name") from None
            disk.replace(part, target)  # a disk without links
        sync_folder(target.parent)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
