"""Sources that are fetched before they are imported: datasets of the Hub, and clips from a person's own code.

Tokens are handled by workbench.hub. Own code is an entry point of an installed package:

    [project.entry-points."video_lora_workbench.sources"]
    simulation = "my_package:Simulation"

It is called with the text after the name ("seed7" for own_source simulation=seed7) and returns an iterable of dicts:
name, caption, and either video (the path of a file) or frames (uint8 [F, H, W, 3]) with fps. The items are written to
a folder of videos and captions, which is then imported like any other.
"""

from __future__ import annotations

import functools
import hashlib
import re
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from fnmatch import fnmatch
from importlib import metadata
from pathlib import Path
from typing import Any

from workbench.clips import media
from workbench.clips.records import LATENTS
from workbench.clips.video_files import SUFFIXES
from workbench.dataset_builder.sources import archives
from workbench.dataset_builder.sources.columns import IMAGE_SUFFIXES, PARQUET, PLAIN_TEXT_SUFFIXES
from workbench.display.quantities import byte_size
from workbench.errors import CannotWrite, ConfigError, DataError
from workbench.hub import client, explained
from workbench.workspace import confined, make_folder, replacing, write_text, writing

WANTED = (*SUFFIXES, *IMAGE_SUFFIXES, LATENTS, *PLAIN_TEXT_SUFFIXES, *archives.ARCHIVE_SUFFIXES, PARQUET)
HIDDEN = re.compile(r"/\.")
AT_ONCE = 8  # parallel downloads
OnFile = Callable[[int, int], None]
"""Called with (files done, total); may raise to stop, which keeps the files downloaded so far."""


@dataclass(frozen=True)
class Remote:
    """A dataset repository, or one configuration of it, at one commit. files: name -> bytes, of importable files."""

    repo_id: str
    commit: str
    files: Mapping[str, int]
    config: str = ""

    @property
    def sentence(self) -> str:
        """Describe the download, for the user to confirm."""
        kinds = Counter(Path(name).suffix.lower() for name in self.files)
        named = ", ".join(f"{count:,} {kind}" for kind, count in kinds.most_common(4))
        return f"{self.repo_id} at {self.commit[:8]}: {byte_size(sum(self.files.values()))} to download: {named}"


def inspect(repo_id: str, revision: str = "", config: str = "") -> Remote:
    """Inspect a dataset repository, or one configuration of it.

    Raises ConfigError, ModelUnavailable, DataError if it has no videos or no such configuration.
    """
    with explained(repo_id):
        info = client().dataset_info(repo_id, revision=revision or None, files_metadata=True)
    siblings = info.siblings or []
    wanted = (s for s in siblings if s.rfilename.lower().endswith(WANTED) and not HIDDEN.search(f"/{s.rfilename}"))
    files = {s.rfilename: s.size or 0 for s in wanted}
    if config:
        files = _of_config(repo_id, config, getattr(info.card_data, "configs", None), files)
    if all(name.lower().endswith(PLAIN_TEXT_SUFFIXES) for name in files):
        unread = [(s.rfilename, reason) for s in siblings if (reason := archives.not_read(s.rfilename))]
        if unread:
            raise DataError(f"{repo_id} has no videos that can be read: {unread[0][0]} is {unread[0][1]}")
        raise DataError(f"{repo_id} has no videos, archives or parquet tables: name another dataset")
    return Remote(repo_id, info.sha or "", files, config)


def _of_config(repo_id: str, config: str, configs: object, files: Mapping[str, int]) -> dict[str, int]:
    """Return a configuration's files, as declared in the dataset's card, and all tables and captions. Raises
    DataError."""
    several = configs if isinstance(configs, list) else []
    declared = {str(one.get("config_name", "")): one for one in several if isinstance(one, dict)}
    if config not in declared:
        named = ", ".join(declared) or "none"
        raise DataError(
            f"hub_config is {config!r}, but the card of {repo_id} has {named}: choose one of them, or leave it empty"
        )
    data = declared[config].get("data_files") or f"{declared[config].get('data_dir', config)}/**"
    splits = data if isinstance(data, list) else [data]
    paths = [split.get("path", "") if isinstance(split, dict) else split for split in splits]
    patterns = [str(one).removeprefix("./") for path in paths for one in (path if isinstance(path, list) else [path])]
    return {
        name: size
        for name, size in files.items()
        if name.lower().endswith(PLAIN_TEXT_SUFFIXES) or any(fnmatch(name, pattern) for pattern in patterns)
    }


def fetch(remote: Remote, parent: Path, on_file: OnFile = lambda *_: None) -> Path:
    """Download to `parent`/OWNER--NAME/COMMIT and return that folder. Files already there are kept.

    Raises ModelUnavailable, DataError, CannotWrite, and what `on_file` raises.
    """
    chosen = f"-{hashlib.sha256(remote.config.encode()).hexdigest()[:8]}" if remote.config else ""
    folder = parent / remote.repo_id.replace("/", "--") / f"{remote.commit[:12]}{chosen}"
    names = [name for name in remote.files if confined(folder, name)]
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
        here = sum(path.stat().st_size for name in names if (path := folder / name).is_file())
        free = shutil.disk_usage(folder).free
    if (missing := sum(remote.files.values()) - here) > free:
        raise CannotWrite(f"{remote.repo_id} needs {missing:,} bytes but only {free:,} are free: free some space")
    download = functools.partial(
        client().hf_hub_download, remote.repo_id, repo_type="dataset", revision=remote.commit, local_dir=folder
    )
    with writing(folder), explained(remote.repo_id), ThreadPoolExecutor(AT_ONCE) as pool:
        waiting = [pool.submit(download, filename=name) for name in names]
        try:
            for done, one in enumerate(as_completed(waiting), 1):
                one.result()
                on_file(done, len(names))
        finally:
            pool.shutdown(cancel_futures=True)
    return folder


# ---- own code --------------------------------------------------------------------------------------------------------

ENTRY_POINTS = "video_lora_workbench.sources"
RULE = "each item is a dict of name, caption, and either video (a path) or frames (uint8 [F, H, W, 3]) with fps"


def fetch_own(source: str, folder: Path, on_item: Callable[[int], None]) -> Path:
    """Write the items of NAME or NAME=TEXT to the folder and return it. Files already there are kept, to resume.

    on_item: called with the number of items after each one; may raise to stop.

    Raises ConfigError for an unknown name, DataError for an invalid item or two of one name, CannotWrite.
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
    import numpy as np

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
            pixels, fps = np.asarray(frames), item.get("fps")
            if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[-1] != 3 or not len(pixels):
                given = f"frames are {pixels.dtype} {list(pixels.shape)}"
                raise DataError(f"item {number}, {name}: {given}, must be uint8 [F, H, W, 3]")
            if not isinstance(fps, int | float) or not 1 <= fps <= 240:
                raise DataError(f"item {number}, {name}: fps is {fps!r}, must be a number from 1 to 240")
            media.encode(pixels, target, float(fps), crf=None)  # almost losslessly, like all training clips
        elif not Path(video).is_file():
            raise DataError(f"item {number}, {name}: {video} is not a file")
        else:
            with replacing(target) as part:
                shutil.copyfile(video, part)
    write_text(folder / f"{name}.txt", str(item.get("caption", "")))
