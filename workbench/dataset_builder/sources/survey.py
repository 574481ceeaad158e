"""Find out what was given: which layout, which videos and pictures, which captions, and what is wrong with them.

`survey` looks at names and captions alone and decodes nothing, so that a person can confirm it before an import. Hidden
files are skipped and links are not followed (a linked video is listed all the same, so that it gets a result). Not
covered: how layouts look (layouts), what is inside the videos (ingest), archives inside archives, several layouts below
one folder (give each folder by itself).
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from workbench.clips.media import SUFFIXES
from workbench.dataset_builder.sources.archives import is_archive
from workbench.dataset_builder.sources.files import trees_of
from workbench.dataset_builder.sources.layouts import fitting, layout_named
from workbench.dataset_builder.sources.layouts.base import Layout, Problem, ReadingNotes
from workbench.dataset_builder.sources.tree import (
    IMAGE_SUFFIXES,
    Columns,
    SourceFile,
    Tree,
    without_suffix,
)
from workbench.errors import DataError
from workbench.quantities import byte_size, counted

UNOPENED = "No video was opened yet: the import finds out whether each can be read, and says so."
MOST_SOURCES = 100_000
USUAL = Columns()


@dataclass(frozen=True)
class SurveyedFiles:
    """What one folder, archive, row of shards or handful of files holds.

    layout, others: names of the layout it is read as and of those that would fit as well; parts: how many archives
    size: bytes of its videos and pictures; problems: what to know before importing it -> the names it holds for
    refused: entry of an archive -> why it may not be read;  title: the files' names, of files given one by one
    """

    path: Path
    layout: str
    others: tuple[str, ...]
    sources: tuple[SourceFile, ...]
    size: int
    problems: Mapping[Problem, tuple[str, ...]]
    refused: Mapping[str, str]
    parts: int = 1
    title: str = ""

    @property
    def name(self) -> str:
        """What people know it by."""
        return self.title or self.path.name

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
        return f"{self.name}: {layout.title}: {named}, {more}, {byte_size(self.size)}"

    def warnings(self, *without: Problem) -> list[str]:
        """A sentence a problem, with up to three of the names it holds for."""
        found = [(problem, names) for problem, names in self.problems.items() if problem not in without]
        return [f"{self.name}: {_named(names)}: {problem}" for problem, names in found]


@dataclass(frozen=True)
class Survey:
    """Everything that was given, as it would be imported.

    refused: archive -> why it cannot be read;  others: files of other kinds, where nothing lies that is taken
    too_many: only the first MOST_SOURCES are taken
    """

    found: tuple[SurveyedFiles, ...]
    refused: Mapping[str, str]
    others: tuple[str, ...] = ()
    too_many: bool = False

    @property
    def sources(self) -> list[SourceFile]:
        """All videos and pictures. Raises DataError when nothing of what was given can be read."""
        if not self.found and (self.refused or self.others):
            raise DataError("; ".join([*self._refusals, *self._skipped_lines]))
        return [source for part in self.found for source in part.sources]

    @property
    def problems(self) -> list[str]:
        """A sentence a problem, and one a source of which nothing can be taken; without the files of other kinds."""
        warnings = [sentence for part in self.found for sentence in part.warnings(Problem.OTHER)]
        return [*warnings, *self._refusals]

    @property
    def skipped(self) -> list[str]:
        """The names of all files of other kinds, which nobody opens."""
        return [*(name for part in self.found for name in part.problems.get(Problem.OTHER, ())), *self.others]

    @property
    def _refusals(self) -> list[str]:
        return [f"refused: {name}: {reason}" for name, reason in self.refused.items()]

    @property
    def _skipped_lines(self) -> list[str]:
        return [f"{_named(self.others)}: {Problem.OTHER}"] if self.others else []

    @property
    def sentences(self) -> list[str]:
        """What a person should read before saying yes: a line a source, a line a problem, with up to three names."""
        lines = []
        for part in self.found:
            lines.append(part.sentence)
            lines += part.warnings()
            reasons = Counter(part.refused.values())
            for reason in reasons:
                names = tuple(name for name, why in part.refused.items() if why == reason)
                lines.append(f"{part.name}: refused: {_named(names)}: {reason}")
        lines += [*self._refusals, *self._skipped_lines]
        if self.too_many:
            lines.append(f"more than {MOST_SOURCES:,} videos: only the first {MOST_SOURCES:,} are taken")
        return lines

    @property
    def preview(self) -> list[str]:
        """The same, and what a survey cannot know; empty when there is nothing to import."""
        return [*self.sentences, UNOPENED] if self.sources else self.sentences


def survey(given: Iterable[Path | str], layout: str = "", columns: Columns = USUAL) -> Survey:
    """Look at files, folders and archives without decoding anything.

    layout: the name of one to read everything as; "" to find it out; columns: what the columns of tables are called.
    Raises ConfigError for a name that is none, DataError when nothing that was given has that layout, or a table lacks
    a column that was named.
    """
    forced = layout_named(layout) if layout else None
    paths = list(dict.fromkeys(Path(os.path.abspath(Path(item).expanduser())) for item in given))
    refused: dict[str, str] = {}
    other_files: list[str] = []
    found: list[SurveyedFiles] = []
    seen: set[str] = set()
    fits = forced is None
    for tree in trees_of(paths, refused):
        tree.columns = columns
        layouts = fitting(tree)
        fits = fits or forced in layouts
        chosen = forced if forced in layouts else next(iter(layouts), None)
        if chosen is not None:
            found.append(_read(tree, chosen, layouts, seen))
        else:
            refused |= {f"{tree.path.name}: {name}": reason for name, reason in tree.refused.items()}
            other_files += tree.others
        if len(seen) > MOST_SOURCES:
            break
    if forced is not None and found and not fits:
        others = ", ".join(dict.fromkeys(part.layout for part in found))
        raise DataError(f"nothing here has the layout {layout!r} ({forced.title}): it looks like {others}")
    found = [part for part in found if part.sources or part.problems or part.refused]
    return Survey(tuple(_capped(_joined(found))), refused, tuple(other_files), len(seen) > MOST_SOURCES)


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
    return SurveyedFiles(tree.path, layout.name, others, tuple(sources), size, problems, tree.refused, title=tree.title)


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
            names = {
                problem: (*last.problems.get(problem, ()), *part.problems.get(problem, ()))
                for problem in Problem
                if problem in last.problems or problem in part.problems
            }
            last = replace(
                last,
                path=part.path.parent,
                sources=last.sources + part.sources,
                size=last.size + part.size,
                problems=names,
                refused={**last.refused, **part.refused},
                parts=last.parts + 1,
            )
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
    return counted(number, noun) if number else ""


def _named(names: tuple[str, ...]) -> str:
    listed = ", ".join(repr(name) for name in names[:3])
    return listed if len(names) <= 3 else f"{len(names):,} ({listed} ...)"
