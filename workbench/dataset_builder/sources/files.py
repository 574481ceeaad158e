"""Build trees from the given paths: one per folder, one per archive, and one for all loose files.

Hidden files are skipped. Links are followed within the same folder, and from a snapshot in a Hub cache to its blobs.
All other links are refused with the reason.
"""

from __future__ import annotations

import errno
import gzip
import os
import re
import shutil
import stat
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from workbench.dataset_builder.sources.archives import ArchiveTree, as_lines, holds_videos, is_archive, not_read
from workbench.dataset_builder.sources.columns import (
    DELIMITED_SUFFIXES,
    JSON_SUFFIXES,
    MEDIA_SUFFIXES,
    MOST_TEXT_BYTES,
    PARQUET,
    PLAIN_TEXT_SUFFIXES,
    SIDECAR_SUFFIXES,
    TEXT_SUFFIXES,
    Columns,
    decode_text,
)
from workbench.dataset_builder.sources.layouts.text_files import META
from workbench.dataset_builder.sources.tree import SourceFile, Tree, without_suffix
from workbench.display.quantities import listed
from workbench.errors import ConfigError, DataError
from workbench.workspace import confined, named_paths

TABLES = ("metadata", "dataset", "captions", "train", "data")  # looked up beside files given one by one
SNAPSHOTS, BLOBS = "snapshots", "blobs"  # folders of the Hub's cache
BLOB_LINK = re.compile(rb"(\.\./)+blobs/[\w.-]+\s*")
LONGEST_LINK = 512  # bytes
HIDDEN = re.compile(r"/\.")
COPY = "replace it with the file itself"
FOLDER_LINK = "a link to a folder: import that folder itself"
GZIP = ".gz"
TOO_LONG = f"more than {MOST_TEXT_BYTES / 1024**2:.0f} MB of text: split it"


class FilesTree(Tree):
    """Files on disk, by the names that layouts use. given: names to import whatever their extension."""

    def __init__(
        self,
        path: Path,
        files: Mapping[str, Path],
        whole: bool = True,
        given: Iterable[str] = (),
        found: _Found | None = None,
    ) -> None:
        self._paths, self._given, self._found = dict(files), set(given), found or _Found()
        links = self._found.links
        sizes = {name: _size(links.get(name, file)) for name, file in files.items()}
        super().__init__(path, sizes, self._found.refused, whole)

    @cached_property
    def media(self) -> list[str]:
        known = set(super().media)
        return [name for name in self.files if name in known or self._prefix + name in self._given]

    @property
    def others(self) -> list[str]:
        return self._found.others

    def _data(self, name: str) -> bytes:
        path = self._found.links.get(name, self._paths[name])
        if name.lower().endswith(PARQUET):
            return as_lines(path, self.columns.video)
        return _text_bytes(path, packed=_is_gzipped_text(self._paths[name]))

    def _source(self, name: str, caption: str) -> SourceFile:
        found = self._found
        return SourceFile(self._paths[name], caption, target=found.links.get(name), refused=found.unread.get(name, ""))


@dataclass
class _Found:
    """Facts about the files of a folder.

    links: name -> target, for links that may be followed.
    unread: video or picture -> why it may not be read.
    refused: text, archive or folder -> why it is not read.
    others: files of other kinds.
    packed: archives, and tables that contain videos.
    """

    links: dict[str, Path] = field(default_factory=dict)
    unread: dict[str, str] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    others: list[str] = field(default_factory=list)
    packed: list[Path] = field(default_factory=list)

    def add(self, name: str, path: Path, root: Path | None) -> bool:
        """Record a file's link target, or why it may not be read. Return whether to list it."""
        try:
            target = _followed(path, root)
        except DataError as error:
            listed = name.lower().endswith(MEDIA_SUFFIXES)
            (self.unread if listed else self.refused)[name] = str(error)
            return listed
        if name.lower().endswith(PLAIN_TEXT_SUFFIXES) and _size(target) > MOST_TEXT_BYTES:
            self.refused[name] = TOO_LONG
            return False
        if target != path:
            self.links[name] = target
        return True

    def add_archive(self, name: str, path: Path, columns: Columns) -> bool:
        """Record an archive, or a table that cannot be read. Return whether the file is one of these."""
        try:
            if not _is_packed(path, columns):
                return False
            self.packed.append(path)
        except DataError as error:
            self.refused[name] = str(error)
        return True


def trees_of(given: list[Path], refused: dict[str, str], columns: Columns) -> Iterator[Tree]:
    """Yield a tree for each folder, for each archive (given or in a folder), and one for all other files."""
    # The page stores each dropped file in its own folder, so records given together count as beside their archives.
    records = {path.name: path for path in given if path.name.endswith(META)} if any(map(is_archive, given)) else {}
    packed, loose = _parted([path for path in given if path not in records.values()], refused, columns)

    def archives(paths: Iterable[Path], root: Path | None) -> Iterator[tuple[str, Tree]]:
        """Yield name and tree of archives in a folder or given by themselves, with the captions beside them."""
        for path in paths:
            beside = record_of(path)
            try:
                text = _text_beside(records.get(beside.name, beside), root or path.parent, refused)
                yield path.relative_to(root).as_posix() if root else path.name, ArchiveTree(path, text, columns)
            except (DataError, OSError) as error:
                refused[path.name] = str(error)

    def with_archives(tree: FilesTree, inside: Iterator[tuple[str, Tree]]) -> Iterator[Tree]:
        """Yield a tree, then its archives. If it may have captions for their members, open all archives first."""
        if any(map(columns.reads, tree.files)):
            tree.inside = list(inside)
            inside = iter(tree.inside)
        yield tree
        yield from (archive for _, archive in inside)

    # Captions given together with archives may belong to their members, so all these files are one tree.
    alone = [path for path in given if not path.is_dir()]
    for path in given:
        if path.is_dir():
            found = _Found()
            files = dict(_walk(path, found, columns))
            theirs = {record_of(archive) for archive in found.packed}
            tree = FilesTree(path, {name: file for name, file in files.items() if file not in theirs}, found=found)
            tree.beside = _text_beside(path.with_name(f"{path.name}.txt"), None, refused)
            yield from with_archives(tree, archives(found.packed, path))
        elif path == alone[0]:
            inside = archives(packed, None)
            yield from with_archives(_loose(loose, columns), inside) if loose else (archive for _, archive in inside)


def _parted(given: Iterable[Path], refused: dict[str, str], columns: Columns) -> tuple[list[Path], list[Path]]:
    """Split the given files into archives and others; record in `refused` why some are not read."""
    packed, loose = list[Path](), list[Path]()
    for path in given:
        if not path.is_dir():
            try:
                if not _is_gzipped_text(path) and (reason := not_read(path.name)):
                    raise DataError(reason)
                (packed if _is_packed(path, columns) else loose).append(path)
            except DataError as error:
                refused[path.name] = str(error)
    return packed, loose


def _is_packed(path: Path, columns: Columns) -> bool:
    """Whether a file is an archive, or a table that contains videos. Raises DataError for a damaged table."""
    return holds_videos(path, columns.video) if path.name.lower().endswith(PARQUET) else is_archive(path)


def _is_text(path: Path) -> bool:
    return path.name.lower().endswith(TEXT_SUFFIXES) or _is_gzipped_text(path)


def _is_gzipped_text(path: Path) -> bool:
    """Whether a file is a gzipped text or table. Such files are read under their name without ".gz"."""
    name = path.name.lower()
    return name.endswith(GZIP) and name.removesuffix(GZIP).endswith(PLAIN_TEXT_SUFFIXES)


def record_of(archive: Path) -> Path:
    """Return the path of a shard's captions, beside the shard."""
    return archive.with_name(archive.name.partition(".")[0] + META)


def _text_beside(path: Path, root: Path | None, refused: dict[str, str]) -> str:
    """Read the text file that belongs to a folder or archive and lies beside it; "" if there is none.

    A file beside a folder may be in a place that must not be read. It is then ignored.
    """
    try:
        named_paths.resolve(path.parent)
    except ConfigError:
        return ""
    if not os.path.lexists(path):
        return ""
    try:
        return decode_text(_text_bytes(_followed(path, root)))[0]
    except DataError as error:
        refused[path.name] = str(error)
        return ""


def _walk(folder: Path, found: _Found, columns: Columns) -> Iterator[tuple[str, Path]]:
    """Yield name and path of the videos, pictures and texts in a folder, sorted by name.

    Archives and files that are not read are recorded in `found`.
    """

    def failed(error: OSError) -> None:
        name = Path(error.filename).relative_to(folder).as_posix() + "/"
        found.refused[name] = f"it cannot be read ({error.strerror}): check its permissions"

    blobs: dict[str, Path] = {}
    for parent, folders, files in os.walk(folder, onerror=failed):
        prefix = "" if Path(parent) == folder else Path(parent).relative_to(folder).as_posix() + "/"
        visible = sorted(name for name in folders if not name.startswith("."))
        folders[:] = [name for name in visible if not Path(parent, name).is_symlink()]
        found.refused |= dict.fromkeys((f"{prefix}{name}/" for name in visible if name not in folders), FOLDER_LINK)
        for name in sorted(name for name in files if not name.startswith(".")):
            path, relative = Path(parent, name), prefix + name
            if _is_gzipped_text(path) and not path.with_suffix("").exists():
                relative = relative[: -len(GZIP)]
                if found.add(relative, path, folder):
                    yield relative, path
            elif columns.reads(name) or is_archive(path) or name.lower().endswith(MEDIA_SUFFIXES):
                if found.add(relative, path, folder) and not found.add_archive(relative, path, columns):
                    yield relative, path
            elif Path(parent).name == BLOBS:
                blobs[relative] = path  # in a Hub cache, read under the names of the links to them
            elif reason := not_read(name):
                found.refused[relative] = reason
            else:
                found.others.append(relative)
    read = set(found.links.values())
    found.others += [name for name, path in blobs.items() if path.resolve() not in read]


# ---- links ----------------------------------------------------------------------------------------------------------


def _followed(path: Path, root: Path | None) -> Path:
    """Return the ordinary file at a path: itself, or the target of a link. Raises DataError.

    A link may lead to a file below `root`, and from a snapshot in a Hub cache to that cache's blobs. Any other link in
    someone else's data could leak a private file into the dataset.
    """
    try:
        kind = path.lstat().st_mode
    except OSError:
        return path  # opening it will report the error
    try:
        if stat.S_ISLNK(kind):
            target = path.resolve(strict=True)
        elif not stat.S_ISREG(kind):  # opening a pipe would block
            raise DataError("not an ordinary file (a folder, pipe or device): use a file")
        elif text := _link_text(path):
            target = (path.parent / text).resolve(strict=True)
        else:
            return path
        kind = target.stat().st_mode
    except FileNotFoundError as error:
        raise DataError(f"it is a link to a file that does not exist: {COPY}") from error
    except (OSError, RuntimeError) as error:
        loops = isinstance(error, RuntimeError) or error.errno == errno.ELOOP
        reason = "points back to itself" if loops else f"cannot be followed ({error})"
        raise DataError(f"it is a link that {reason}: {COPY}") from error
    if stat.S_ISDIR(kind):
        raise DataError(f"it is a link to a folder: {FOLDER_LINK.partition(': ')[2]}")
    if not stat.S_ISREG(kind):
        raise DataError(f"it is a link to something that is not an ordinary file: {COPY}")
    top = root.resolve() if root else None
    below = top is not None and target.is_relative_to(top) and not HIDDEN.search(f"/{target.relative_to(top)}")
    # In a Hub cache, a snapshot consists of links to files in a folder of blobs.
    snapshots = next((folder for folder in path.parent.resolve().parents if folder.name == SNAPSHOTS), None)
    if not below and not (snapshots and target.parent == snapshots.parent / BLOBS):
        raise DataError(f"it is a link that leads outside the imported folder: {COPY}")
    try:
        return named_paths.resolve(target)
    except ConfigError as error:
        raise DataError(f"it is a link to a file that may not be read here: {COPY}") from error


def _link_text(path: Path) -> str:
    """Return the target of a link stored as a text file (on systems without links); "" for other files."""
    if SNAPSHOTS not in path.parts or path.lstat().st_size > LONGEST_LINK:
        return ""
    with path.open("rb") as file:
        found = BLOB_LINK.fullmatch(file.read(LONGEST_LINK))
    return found[0].decode().strip() if found else ""


# ---- files given one by one -----------------------------------------------------------------------------------------


def _loose(given: list[Path], columns: Columns) -> FilesTree:
    """Build a tree of files given one by one, with the captions and tables beside them on disk.

    The page stores each dropped file in its own folder, so folders are ignored unless names clash.
    """
    taken: dict[str, Path] = {}
    named: set[str] = set()
    folders: dict[Path, list[Path]] = {}
    for path in given:
        folders.setdefault(path.parent, []).append(path)
    known = _Found()
    whole = all(_is_text(path) or path.name.lower().endswith(MEDIA_SUFFIXES) for path in given)
    for number, (folder, paths) in enumerate(folders.items()):
        videos = [path for path in paths if not (_is_text(path) or columns.asks_for(path.name))]
        files = {path.name[: -len(GZIP)] if _is_gzipped_text(path) else path.name: path for path in paths}
        if videos:
            beside = _beside(folder, videos, columns)
            found = {path.name: path for path in beside if path.name not in files}
            whole = whole and not found
            files |= found
        prefix = f"{number}-{folder.name}/" if files.keys() & taken.keys() else ""
        taken |= {prefix + name: path for name, path in files.items() if known.add(prefix + name, path, None)}
        named |= {prefix + path.name for path in videos}
    tree = FilesTree(given[0].parent, taken, whole, named, known)
    tree.title = listed([path.name for path in given])
    return tree


def _beside(folder: Path, videos: Sequence[Path], columns: Columns) -> Iterator[Path]:
    """Find the caption files of these videos in their folder, and tables with common names."""
    names = {name.casefold() for path in videos for name in (path.name, path.stem)}
    try:
        found = sorted(folder.iterdir())
    except OSError:
        return
    for path in found:
        low, stem = path.name.lower(), without_suffix(path.name).casefold()
        is_sidecar = stem in names and (low.endswith(SIDECAR_SUFFIXES) or columns.asks_for(path.name))
        if is_sidecar or (stem in TABLES and low.endswith((*DELIMITED_SUFFIXES, *JSON_SUFFIXES))):
            yield path


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0  # importing it will report the error


def _text_bytes(path: Path, packed: bool = False) -> bytes:
    """Read a text file. Raises DataError."""
    try:
        with gzip.open(path) if packed else path.open("rb") as file:
            data = file.read(MOST_TEXT_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        why = f"{error}): copy it again" if packed else f"{getattr(error, 'strerror', '')}): check its permissions"
        raise DataError(f"{path.name} cannot be read ({why}") from error
    if len(data) > MOST_TEXT_BYTES:
        raise DataError(f"{path.name} has {TOO_LONG}")
    return data


# ---- uploaded files --------------------------------------------------------------------------------------------------

UPLOADS = "uploads"  # in the folder of the dataset's import task, until the next import


def inbox() -> Path:
    """Return the folder for the page's uploads. Raises ConfigError if this process does not serve the page."""
    if not (folder := os.environ.get("GRADIO_TEMP_DIR")):
        raise ConfigError("files is not empty, but nothing was uploaded: name files on this machine in sources")
    return Path(folder)


def keep_uploads(task: Path, files: Sequence[str]) -> list[Path]:
    """Move uploads to the import task's folder, so that they survive a restart; remove those of the previous import.

    files: names of uploads; duplicates are moved once. Raises ConfigError for a file that is missing or no upload.
    """
    once = [confined(inbox(), file) for file in dict.fromkeys(files)]
    if gone := [file.name for file in once if not file.is_file()]:
        raise ConfigError(f"{listed(gone)} is no longer on the server: drop it again")
    target = task / UPLOADS
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir(parents=True)
    kept = []
    for file in once:
        free, count = target / file.name, 1
        while free.exists():
            count += 1
            free = target / f"{file.stem}-{count}{file.suffix}"
        shutil.move(file, free)
        kept.append(free)
    return kept
