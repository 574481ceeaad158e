"""Find out what was given: which layout, which videos and pictures, which captions, and what is wrong with them.

`survey` looks at names and captions alone and decodes nothing, so that a person can confirm it before an import. Hidden
files are skipped and links are not followed (a linked video is listed all the same, so that it gets a result). Not
covered: how layouts look (layouts), what is inside the videos (ingest), archives inside archives, several layouts below
one folder (give each folder by itself).
"""

from __future__ import annotations

import os
import stat
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from workbench.clips.media import SUFFIXES
from workbench.clips.records import METADATA
from workbench.dataset_builder.sources.archives import SUFFIXES as ARCHIVE_SUFFIXES
from workbench.dataset_builder.sources.archives import ArchiveTree, is_archive
from workbench.dataset_builder.sources.layouts import fitting, layout_named
from workbench.dataset_builder.sources.layouts.base import (
    IMAGE_SUFFIXES,
    MEDIA_SUFFIXES,
    MOST_TEXT_BYTES,
    TEXT_SUFFIXES,
    Columns,
    Layout,
    Problem,
    ReadingNotes,
    SourceFile,
    Tree,
    read_text,
    without_suffix,
)
from workbench.dataset_builder.sources.layouts.shards import META
from workbench.dataset_builder.sources.layouts.sidecars import CAPTION_SUFFIXES
from workbench.dataset_builder.sources.layouts.tables import CSV
from workbench.errors import DataError

MOST_SOURCES = 100_000
USUAL = Columns()


@dataclass(frozen=True)
class SurveyedFiles:
    """What one folder, archive, row of shards or handful of files holds.

    layout, others: names of the layout it is read as and of those that would fit as well; parts: how many archives
    size: bytes of its videos and pictures; problems: what to know before importing it -> the names it holds for
    refused: entry of an archive -> why it may not be read
    """

    path: Path
    layout: str
    others: tuple[str, ...]
    sources: tuple[SourceFile, ...]
    size: int
    problems: Mapping[Problem, tuple[str, ...]]
    refused: Mapping[str, str]
    parts: int = 1

    @property
    def images(self) -> int:
        return sum(source.name.lower().endswith(IMAGE_SUFFIXES) for source in self.sources)

    @property
    def captions(self) -> int:
        return sum(bool(source.caption) for source in self.sources)

    @property
    def sentence(self) -> str:
        """What it is in words: "cats: Lists prompts.txt and videos.txt: 3 videos, 2 captions, 1.2 MB"."""
        images, layout = self.images, layout_named(self.layout)
        counts = [_count(len(self.sources) - images, "video"), _count(images, "picture")]
        counts += [_count(self.parts, "archive") if self.parts > 1 else ""]
        named = ", ".join(count for count in counts if count) or "nothing to import"
        pictures = _count(sum(source.first_frame is not None for source in self.sources), "first frame")
        more = f"{self.captions} captions" + (f", {pictures}" if pictures else "")
        return f"{self.path.name}: {layout.title}: {named}, {more}, {self.size / 1e6:,.1f} MB"

    @property
    def warnings(self) -> list[str]:
        """A sentence a problem, with up to three of the names it holds for."""
        return [f"{self.path.name}: {_named(names)}: {problem}" for problem, names in self.problems.items()]


@dataclass(frozen=True)
class Survey:
    """Everything that was given, as it would be imported. too_many: only the first MOST_SOURCES are taken."""

    found: tuple[SurveyedFiles, ...]
    refused: Mapping[str, str]
    too_many: bool = False

    @property
    def sources(self) -> list[SourceFile]:
        return [source for part in self.found for source in part.sources]

    @property
    def problems(self) -> list[str]:
        """A sentence a problem, and one a source of which nothing can be taken."""
        warnings = [sentence for part in self.found for sentence in part.warnings]
        return [*warnings, *(f"refused: {name}: {reason}" for name, reason in self.refused.items())]

    @property
    def sentences(self) -> list[str]:
        """What a person should read before saying yes: a line a source, a line a problem, with up to three names."""
        lines = []
        for part in self.found:
            lines.append(part.sentence)
            lines += part.warnings
            reasons = Counter(part.refused.values())
            for reason in reasons:
                names = tuple(name for name, why in part.refused.items() if why == reason)
                lines.append(f"{part.path.name}: refused: {_named(names)}: {reason}")
        lines += [f"refused: {name}: {reason}" for name, reason in self.refused.items()]
        if self.too_many:
            lines.append(f"more than {MOST_SOURCES:,} videos: only the first {MOST_SOURCES:,} are taken")
        return lines


def find_sources(given: Iterable[Path | str], layout: str = "") -> list[SourceFile]:
    """The videos and pictures in what is given, each once. Raises DataError when nothing of it can be read."""
    return readable(survey(given, layout)).sources


def readable(surveyed: Survey) -> Survey:
    """The same. Raises DataError when nothing of it can be read."""
    if not surveyed.found and surveyed.refused:
        raise DataError("; ".join(f"{name}: {reason}" for name, reason in surveyed.refused.items()))
    return surveyed


def survey(given: Iterable[Path | str], layout: str = "", columns: Columns = USUAL) -> Survey:
    """Look at files, folders and archives without decoding anything.

    layout: the name of one to read everything as; "" to find it out; columns: what the columns of tables are called.
    Raises ConfigError for a name that is none, DataError when nothing that was given has that layout, or a table lacks
    a column that was named.
    """
    forced = layout_named(layout) if layout else None
    paths = list(dict.fromkeys(Path(os.path.abspath(Path(item).expanduser())) for item in given))
    refused: dict[str, str] = {}
    found: list[SurveyedFiles] = []
    seen: set[str] = set()
    fits = forced is None
    for tree in _trees(paths, refused):
        tree.columns = columns
        layouts = fitting(tree)
        fits = fits or forced in layouts
        chosen = forced if forced in layouts else next(iter(layouts), None)
        if chosen is not None:
            found.append(_read(tree, chosen, layouts, seen))
        else:
            refused |= {f"{tree.path.name}: {name}": reason for name, reason in tree.refused.items()}
            if tree.others:
                refused[f"{tree.path.name}: {_named(tuple(tree.others))}"] = Problem.OTHER
        if len(seen) > MOST_SOURCES:
            break
    if forced is not None and found and not fits:
        others = ", ".join(dict.fromkeys(part.layout for part in found))
        raise DataError(f"nothing here has the layout {layout!r} ({forced.title}): it looks like {others}")
    found = [part for part in found if part.sources or part.problems or part.refused]
    return Survey(tuple(_capped(_joined(found))), refused, len(seen) > MOST_SOURCES)


def _read(tree: Tree, layout: Layout, fits: list[Layout], seen: set[str]) -> SurveyedFiles:
    """What a tree holds in that layout; `seen` are the keys of sources that came before."""
    report = ReadingNotes()
    captions = layout.captions(tree, report)
    media = tree.media
    names = set(media)
    videos = {_stem(name) for name in media if not name.lower().endswith(IMAGE_SUFFIXES)}
    posters = {*report.names[Problem.POSTER], *report.first_frames.values()}
    sources, size = [], 0
    for name in dict.fromkeys([*captions, *media]):
        caption = captions.get(name, "")
        if name not in posters and _is_poster(name, bool(caption), videos, names):
            report.add(Problem.POSTER, name)
            posters.add(name)
        source = tree.source(name, caption)
        if picture := report.first_frames.get(name):
            source = replace(source, first_frame=tree.source(picture, ""))
        if name in posters or source.key in seen:
            continue
        seen.add(source.key)
        sources.append(source)
        size += tree.files[name]
        if not caption:
            report.add(Problem.NO_CAPTION, name)
    for name, encoding in tree.detected.items():
        report.add(Problem.ENCODING if encoding else Problem.UNREADABLE, f"{name} ({encoding})" if encoding else name)
    for name in tree.others:
        report.add(Problem.OTHER, name)
    problems = {problem: tuple(names) for problem, names in report.names.items() if names}
    others = tuple(other.name for other in fits if other is not layout)
    return SurveyedFiles(tree.path, layout.name, others, tuple(sources), size, problems, tree.refused)


def _is_poster(name: str, has_caption: bool, videos: set[str], names: set[str]) -> bool:
    """Whether a picture only shows what a video of its name holds: a thumbnail, a first frame."""
    if not name.lower().endswith(IMAGE_SUFFIXES) or _stem(name) not in videos:
        return False
    return not has_caption or any(without_suffix(name) + suffix in names for suffix in SUFFIXES)


def _stem(name: str) -> str:
    """ "a" of "videos/a.mp4"."""
    return without_suffix(name).rpartition("/")[2]


def _joined(found: list[SurveyedFiles]) -> Iterator[SurveyedFiles]:
    """Archives of one folder and layout that stand in a row, such as shards, as one."""
    last: SurveyedFiles | None = None
    for part in found:
        if last and is_archive(part.path) and part.layout == last.layout and _home(last) == part.path.parent:
            names = {problem: (*last.problems.get(problem, ()), *part.problems.get(problem, ()))
                     for problem in Problem if problem in last.problems or problem in part.problems}  # fmt: skip
            last = replace(last, path=part.path.parent, sources=last.sources + part.sources, size=last.size + part.size,
                           problems=names, refused={**last.refused, **part.refused}, parts=last.parts + 1)  # fmt: skip
            continue
        if last:
            yield last
        last = part
    if last:
        yield last


def _home(part: SurveyedFiles) -> Path | None:
    """The folder whose archives a part stands for, None when it is no archive."""
    return part.path if part.parts > 1 else part.path.parent if is_archive(part.path) else None


def _capped(found: Iterable[SurveyedFiles]) -> Iterator[SurveyedFiles]:
    left = MOST_SOURCES
    for part in found:
        if left:
            yield part if len(part.sources) <= left else replace(part, sources=part.sources[:left])
        left = max(0, left - len(part.sources))


def _count(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}" if number else ""


def _named(names: tuple[str, ...]) -> str:
    listed = ", ".join(repr(name) for name in names[:3])
    return listed if len(names) <= 3 else f"{len(names):,} ({listed} ...)"


# ---- what was given, as trees ---------------------------------------------------------------------------------------


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
        self._paths = dict(files)
        self._given = set(given)
        self._others = list(others)
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


def _trees(given: list[Path], refused: dict[str, str]) -> Iterator[Tree]:
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
            yield ArchiveTree(path, read_text(record) if _is_own_file(record) else "")
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
    return FilesTree(given[0].parent, taken, whole, named)


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
        raise DataError(f"{path} cannot be read ({error.strerror}): check its permissions") from error
