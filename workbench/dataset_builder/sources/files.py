"""What was given, as trees: one for each folder, one for each archive, and one for all loose files.

Hidden files are skipped and links are not followed (a linked video is listed all the same, so that it gets a result).
Not covered: what lies in an archive (archives), which layout a tree has (survey).
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

from workbench.clips.records import METADATA
from workbench.dataset_builder.sources.archives import SUFFIXES as ARCHIVE_SUFFIXES
from workbench.dataset_builder.sources.archives import ArchiveTree, is_archive
from workbench.dataset_builder.sources.layouts.shards import META
from workbench.dataset_builder.sources.layouts.tables import CSV
from workbench.dataset_builder.sources.layouts.text_files import CAPTION_SUFFIXES
from workbench.dataset_builder.sources.text import MOST_TEXT_BYTES, decode_text
from workbench.dataset_builder.sources.tree import MEDIA_SUFFIXES, TEXT_SUFFIXES, SourceFile, Tree
from workbench.errors import DataError

MOST_NAMES = 3


class FilesTree(Tree):
    """Files on disk under the names that layouts know them by.

    given: imported whatever their ending says; others: files of other kinds that lie there, too
    """

    def __init__(
        self,
        path: Path,
        files: Mapping[str, Path],
        whole: bool = True,
        given: Iterable[str] = (),
        others: Iterable[str] = (),
    ) -> None:
        self._paths, self._given, self._others = dict(files), set(given), list(others)
        super().__init__(path, {name: _size(file) for name, file in files.items()}, {}, whole)

    @cached_property
    def media(self) -> list[str]:
        known = set(super().media)
        return [name for name in self.files if name in known or self._prefix + name in self._given]

    @property
    def others(self) -> list[str]:
        return self._others

    def _data(self, name: str) -> bytes:
        return _text_bytes(self._paths[name])

    def _source(self, name: str, caption: str) -> SourceFile:
        return SourceFile(self._paths[name], caption)


def trees_of(given: list[Path], refused: dict[str, str]) -> Iterator[Tree]:
    """A tree for each folder, for each archive (given, or lying in a folder), and one for all other files."""
    # A page puts each file that is dropped on it into a folder of its own, so those given count as lying beside it.
    records = {path.name: path for path in given if path.name.endswith(META)} if any(map(is_archive, given)) else {}
    loose = [path for path in given if not path.is_dir() and not is_archive(path) and path not in records.values()]
    for path in given:
        if path.is_dir():
            others: list[str] = []
            files = dict(_walk(path, others))
            plain = {name: file for name, file in files.items() if not is_archive(file)}
            yield FilesTree(path, plain, others=others)
            yield from _archives((file for file in files.values() if is_archive(file)), refused, {})
        elif is_archive(path):
            yield from _archives([path], refused, records)
        elif loose:
            yield _loose(loose)
            loose = []


def _archives(paths: Iterable[Path], refused: dict[str, str], records: Mapping[str, Path]) -> Iterator[Tree]:
    """records: files of captions that were given with the archives, by name; others lie beside them."""
    for path in paths:
        name = path.name.partition(".")[0] + META
        record = records.get(name, path.with_name(name))
        try:
            yield ArchiveTree(path, decode_text(_text_bytes(record))[0] if _is_own_file(record) else "")
        except (DataError, OSError) as error:
            refused[path.name] = str(error)


def _walk(folder: Path, others: list[str]) -> Iterator[tuple[str, Path]]:
    """Name -> path of the videos, pictures, texts and archives in a folder, in order of their names.

    The names of all other files go into `others`.
    """
    for parent, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        prefix = Path(parent).relative_to(folder).as_posix() + "/"
        for name in sorted(name for name in files if not name.startswith(".")):
            path, low = Path(parent, name), name.lower()
            read_here = low.endswith((*TEXT_SUFFIXES, *ARCHIVE_SUFFIXES))
            relative = prefix.removeprefix("./") + name
            if _is_own_file(path) if read_here else low.endswith(MEDIA_SUFFIXES):
                yield relative, path
            else:
                others.append(relative)


def _loose(given: list[Path]) -> FilesTree:
    """Files given one by one, with the captions and tables that lie beside them on disk.

    A page puts each file that is dropped on it into a folder of its own, so the folders do not count, unless names
    of two folders clash.
    """
    taken: dict[str, Path] = {}
    named: set[str] = set()
    folders: dict[Path, list[Path]] = {}
    for path in given:
        folders.setdefault(path.parent, []).append(path)
    whole = all(path.name.lower().endswith((*TEXT_SUFFIXES, *MEDIA_SUFFIXES)) for path in given)
    for number, (folder, paths) in enumerate(folders.items()):
        videos = [path for path in paths if not path.name.lower().endswith(TEXT_SUFFIXES)]
        files = {path.name: path for path in paths}
        if videos:
            beside = [path.with_suffix(suffix) for path in videos for suffix in CAPTION_SUFFIXES]
            beside += [folder / table for table in (METADATA, CSV)]
            found = {path.name: path for path in beside if path.name not in files and _is_own_file(path)}
            whole = whole and not found
            files |= found
        prefix = f"{number}-{folder.name}/" if files.keys() & taken.keys() else ""
        taken |= {prefix + name: path for name, path in files.items()}
        named |= {prefix + path.name for path in videos}
    tree = FilesTree(given[0].parent, taken, whole, named)
    tree.title = first_names([path.name for path in given])
    return tree


def first_names(names: Sequence[str]) -> str:
    """ "a.mp4, b.mp4 and 3 more" for a message."""
    more = f" and {len(names) - MOST_NAMES:,} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more


def _is_own_file(path: Path) -> bool:
    """An ordinary file, no link: a downloaded folder cannot make us read another place's text."""
    try:
        return stat.S_ISREG(path.lstat().st_mode)
    except OSError:
        return False


def _size(path: Path) -> int:
    try:
        return path.lstat().st_size
    except OSError:
        return 0  # it gets its import result when it is opened


def _text_bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(MOST_TEXT_BYTES)
    except OSError as error:
        raise DataError(f"{path.name} cannot be read ({error.strerror}): check its permissions") from error
