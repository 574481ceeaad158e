"""Survey import sources: detect their layout, videos, pictures, captions and problems.

`survey` reads only names and captions and decodes nothing, so that the user can check the result before importing.
"""

from __future__ import annotations

import os
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from workbench.clips.records import BESIDE_NAMES, LATENTS
from workbench.clips.video_files import OBSOLETE_SUFFIXES, OTHER_IMAGE_SUFFIXES, SUFFIXES
from workbench.dataset_builder.sources.archives import is_archive
from workbench.dataset_builder.sources.columns import CAPTION_SUFFIXES, IMAGE_SUFFIXES, TEXT_SUFFIXES, USUAL, Columns
from workbench.dataset_builder.sources.files import trees_of
from workbench.dataset_builder.sources.layouts import LAYOUTS, captions_of, layout_named
from workbench.dataset_builder.sources.layouts.base import Layout, Problem, ReadingNotes
from workbench.dataset_builder.sources.tree import (
    KIND_OF_FOLDER,
    SourceFile,
    Tree,
    companion_kind_of,
    folded_parts,
    join_numbered,
    numbered_rows,
    stem,
    without_suffix,
)
from workbench.display.quantities import byte_size, counted, listed
from workbench.errors import DataError

UNOPENED = "No video has been opened yet. The import will report any that cannot be read."
MOST_SOURCES = 100_000
NOT_TAKEN_SUFFIXES = (*OTHER_IMAGE_SUFFIXES, *OBSOLETE_SUFFIXES)
NO_MEDIA = "captions without videos are not imported: choose a folder or archive that has both"


@dataclass(frozen=True)
class SurveyedFiles:
    """The contents of one folder, archive, series of shards (`parts` archives), or group of single files.

    layout, others: the layout it is read as, and others that match.
    size: bytes of its videos and pictures.
    problems, refused: problem -> affected names; entry -> why it may not be read.
    title: names of files given one by one, or "".
    handed: number of videos in archives that its texts and tables have captions for.
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
    handed: int = 0

    @property
    def name(self) -> str:
        return self.title or self.path.name

    @property
    def sentence(self) -> str:
        """A summary: "cats: Lists prompts.txt and videos.txt: 3 videos, 2 captions, 1.2 MB"."""
        layout = layout_named(self.layout)
        read = [source.name.lower() for source in self.sources if not source.refused]
        images, latents = (sum(name.endswith(ends) for name in read) for ends in (IMAGE_SUFFIXES, LATENTS))
        not_taken = len(self.sources) - len(read) + sum(name.endswith(NOT_TAKEN_SUFFIXES) for name in read)
        if self.handed and not self.sources:
            return f"{self.name}: {layout.title}: {counted(self.handed, 'caption')} for videos in archives"
        counts = [
            (len(self.sources) - images - latents - not_taken, "video", ""),
            (images, "picture", ""),
            (latents, "file", " of latents"),
            (not_taken, "file", " that cannot be imported"),
            (self.parts if self.parts > 1 else 0, "archive", ""),
        ]
        kinds = Counter(kind for source in self.sources for kind, _ in source.companions)
        facts = [
            ", ".join(counted(number, noun) + rest for number, noun, rest in counts if number) or "nothing to import",
            counted(sum(bool(source.caption) for source in self.sources), "caption"),
            *(counted(kinds[kind], name) for kind, name in BESIDE_NAMES.items() if kinds[kind]),
            byte_size(self.size),
        ]
        return f"{self.name}: {layout.title}: {', '.join(facts)}"

    def warnings(self, *without: Problem) -> list[str]:
        """Describe each problem with up to three affected names."""
        found = [(problem, names) for problem, names in self.problems.items() if problem not in without]
        source = "" if self.title else f"{self.name}: "  # files given one by one have no name in common
        return [f"{source}{problem}: {_named(names)}" for problem, names in found]


@dataclass(frozen=True)
class Survey:
    """Everything that would be imported.

    found: the sources that can be imported.
    refused: archive or file -> why it cannot be read.
    others: files of other kinds in sources without anything to import.
    too_many: whether only the first MOST_SOURCES are imported.
    """

    found: tuple[SurveyedFiles, ...]
    refused: Mapping[str, str]
    others: tuple[str, ...] = ()
    too_many: bool = False

    @property
    def sources(self) -> list[SourceFile]:
        """All videos and pictures. Raises DataError if nothing can be read."""
        if not self.found and (self.refused or self.others):
            raise DataError("; ".join(self._unusable))
        return [source for part in self.found for source in part.sources]

    @property
    def problems(self) -> list[str]:
        """One line per problem and per refused source, without files of other kinds."""
        warnings = [sentence for part in self.found for sentence in part.warnings(Problem.OTHER)]
        return [*warnings, *(f"refused: {name}: {reason}" for name, reason in self.refused.items())]

    @property
    def skipped(self) -> list[str]:
        """Names of all files of other kinds, which are never opened."""
        return [*(name for part in self.found for name in part.problems.get(Problem.OTHER, ())), *self.others]

    @property
    def not_read(self) -> dict[str, str]:
        """Texts, archives and their members that are never opened -> why."""
        return {name: reason for part in self.found for name, reason in part.refused.items()}

    @property
    def _unusable(self) -> list[str]:
        """One line per refused source, and one for files of other kinds."""
        refused = [f"refused: {name}: {reason}" for name, reason in self.refused.items()]
        return [*refused, f"{Problem.OTHER}: {_named(self.others)}"] if self.others else refused

    @property
    def sentences(self) -> list[str]:
        """A report for the user: one line per source and per problem, with up to three names."""
        lines = []
        for part in self.found:
            lines.append(part.sentence)
            lines += part.warnings()
            linked = {source.name: source.refused for source in part.sources if source.refused}
            for reason in Counter([*part.refused.values(), *linked.values()]):
                names = tuple(name for name, why in (*part.refused.items(), *linked.items()) if why == reason)
                lines.append(f"{part.name}: refused: {_named(names)}: {reason}")
        lines += self._unusable
        if self.too_many:
            lines.append(f"more than {MOST_SOURCES:,} videos: only the first {MOST_SOURCES:,} are imported")
        return lines

    @property
    def preview(self) -> list[str]:
        """`sentences`, with a reminder that no video was opened if there is something to import."""
        return [*self.sentences, UNOPENED] if self.sources else self.sentences


def survey(
    given: Iterable[Path | str], layout: str = "", columns: Columns = USUAL, frame_rate: float | None = None
) -> Survey:
    """Survey files, folders and archives without decoding anything.

    layout: the layout to read everything as, or "" to detect it.
    frame_rate: treat each folder of numbered pictures as a video with this rate.

    Raises ConfigError for an unknown layout, DataError if nothing here has it or a named column does not exist.
    """
    forced = layout_named(layout) if layout else None
    paths = list(dict.fromkeys(Path(os.path.abspath(Path(item).expanduser())) for item in given))
    refused: dict[str, str] = {}
    other_files: list[str] = []
    found: list[SurveyedFiles] = []
    seen: set[str] = set()
    met: list[ReadingNotes] = []
    fits = forced is None
    for tree in trees_of(paths, refused, columns):
        for one in (tree, *(archive for _, archive in tree.inside)):
            one.columns = columns
            if frame_rate:
                join_numbered(one, frame_rate)
        layouts = [layout for layout in LAYOUTS if layout.recognize(tree)]  # none without videos or pictures
        if tree.handed.layout and not layouts[0].shards:
            layouts = list(dict.fromkeys([layout_named(tree.handed.layout), *layouts]))
        fits = fits or forced in layouts
        chosen = forced if forced in layouts else next(iter(layouts), None)
        if chosen is not None:
            found.append(_read(tree, chosen, layouts, seen, met, alone=forced is not None))
        else:
            refused |= {f"{tree.path.name}: {name}": reason for name, reason in tree.refused.items()}
            texts = [name for name in tree.texts if name.lower().endswith(TEXT_SUFFIXES)]
            refused |= {f"{tree.path.name}: {name}": NO_MEDIA for name in texts}
            other_files += tree.others
        if len(seen) > MOST_SOURCES:
            break
    if forced is not None and found and not fits:
        others = ", ".join(dict.fromkeys(part.layout for part in found))
        raise DataError(f"nothing here has the layout {layout!r} ({forced.title}): it looks like {others}")
    if found:
        _check_asked(columns, met)
    kept, left = list[SurveyedFiles](), MOST_SOURCES
    for part in _joined([part for part in found if part.sources or part.problems or part.refused]):
        if left:
            kept.append(part if len(part.sources) <= left else replace(part, sources=part.sources[:left]))
        left = max(0, left - len(part.sources))
    return Survey(tuple(kept), refused, tuple(other_files), len(seen) > MOST_SOURCES)


def _check_asked(columns: Columns, met: Sequence[ReadingNotes]) -> None:
    """Raise DataError if a column setting matches nothing here, because it is misspelled or meant for other files."""
    tables = [table for notes in met for table in notes.tables]
    for setting, value in (("caption_column", columns.caption), ("video_column", columns.video)):
        if not value or any(setting in notes.settings for notes in met):
            continue
        if tables:
            named = listed([str(table) for table in tables], 1)
            raise DataError(f"{setting} is {value!r}, which is not a column of {named}: choose one of its columns")
        what = "list, table or caption file" if setting == "caption_column" else "list or table"
        raise DataError(f"{setting} is {value!r}, but no {what} here has that name: check it, or leave it empty")


def _read(
    tree: Tree, layout: Layout, fits: list[Layout], seen: set[str], met: list[ReadingNotes], alone: bool
) -> SurveyedFiles:
    """Survey one tree as `layout`, one of those that match (`fits`), and extend the sources `seen` and notes `met`.

    alone: whether to read captions of this layout only, because the user chose it.
    """
    notes = ReadingNotes()
    readers = [one for one in LAYOUTS if one in fits or not one.shards]
    captions = captions_of(tree, [layout] if alone else readers, notes)
    met.append(notes)
    handed = _hand_over(tree, captions, notes, layout)
    beside, orphans = files_beside(tree)
    for name in orphans:
        notes.add(Problem.NO_CLIP, name)
    _take_beside(notes, beside, captions)
    media = tree.media
    names = set(media)
    videos = {stem(name) for name in media if not name.lower().endswith((*IMAGE_SUFFIXES, *NOT_TAKEN_SUFFIXES))}
    posters = {*notes.names[Problem.POSTER], *notes.left_out, *tree.handed.left_out}
    posters |= {*orphans} - captions.keys()
    sources, size = [], 0
    for name in dict.fromkeys([*(name for name in captions if name in names), *media]):
        caption = captions.get(name, "")
        # A picture with a video's name is its thumbnail or first frame.
        is_poster = name.lower().endswith(IMAGE_SUFFIXES) and stem(name) in videos
        if is_poster and caption:
            is_poster = any(without_suffix(name) + suffix in names for suffix in SUFFIXES)
        if is_poster and name not in posters:
            notes.add(Problem.POSTER, name)
            posters.add(name)
        companions = {kind: tree.source(file, "") for kind, file in notes.companions.get(name, {}).items()}
        source = replace(
            tree.source(name, caption),
            companions=tuple({**companions, **tree.handed.companions.get(name, {})}.items()),
        )
        if name in posters or source.key in seen:
            continue
        seen.add(source.key)
        sources.append(source)
        size += tree.files[name] + sum(tree.files.get(file, 0) for file in notes.companions.get(name, {}).values())
        if name.lower().endswith(NOT_TAKEN_SUFFIXES):
            notes.add(Problem.KIND, name)
        elif not (source.caption or source.refused or name.lower().endswith(LATENTS)):  # latents may contain a caption
            notes.add(Problem.NO_CAPTION, name)
    for name, encoding in tree.detected.items():
        notes.add(Problem.ENCODING if encoding else Problem.UNREADABLE, f"{name} ({encoding})" if encoding else name)
    _note_unread(tree, notes, layout.title if alone else "")
    for row in numbered_rows(tree):
        if not any(captions.get(name) for name in row.names):
            notes.add(Problem.FRAMES, row.sentence)
    problems = {problem: tuple(names) for problem, names in notes.names.items() if names}
    others = tuple(other.name for other in fits if other is not layout)
    facts = (tree.path, layout.name, others, tuple(sources), size, problems, tree.refused)
    return SurveyedFiles(*facts, title=tree.title, handed=handed)


# ---- files beside clips ----------------------------------------------------------------------------------------------

CLIP_FOLDERS = ("videos", "clips", "targets", "target")  # preferred if several folders have a matching clip


def files_beside(tree: Tree) -> tuple[dict[str, dict[str, str]], list[str]]:
    """Match companion files to clips by name. Endings take precedence over folders, and tables over both.

        clips/a.mp4   control/a.mp4, controls/, references/a.png, masks/a.mp4, last_frames/a.png    by folder
        a.mp4         a.mask.mp4, a.control.mp4, a.reference.png, a.last.png                        by ending

    A file that belongs to a clip is not a clip itself. Without matching clips, a folder called masks is one of clips.

    Returns:
        Clip -> kind -> file, and the orphans: files that look like companions but match no clip, or are a second one.
    """
    found, orphans = defaultdict[str, dict[str, str]](dict), list[str]()
    candidates = {name: of for name in tree.media if (of := companion_kind_of(name))}
    clips = defaultdict[tuple[str, ...], list[str]](list)
    for name in tree.media if candidates else ():
        if name not in candidates:
            parts = folded_parts(name)
            clips[parts].append(name)
            for at in range(len(parts) - 1):
                clips[(*parts[:at], "*", *parts[at + 1 :])].append(name)
    # If one file of a folder, or one found by its ending, matches a clip, those that match none are orphans, not clips.
    group = {name: "" if base else name.rpartition("/")[0] for name, (_, base) in candidates.items()}
    paired, left = set[str](), list[str]()
    for name, (kind, base) in sorted(candidates.items(), key=lambda item: (not item[1][1], item[0])):
        if (clip := _clip_of(name, base, clips)) is None:
            left.append(name)
        elif kind not in found[clip]:
            found[clip][kind] = name
            paired.add(group[name])
        else:
            orphans.append(name)
    return found, orphans + [name for name in left if group[name] in paired]


def _clip_of(name: str, base: str, clips: dict[tuple[str, ...], list[str]]) -> str | None:
    """Return the clip a file belongs to, or None if there is none or the match is ambiguous."""
    if base:
        return _only(clips.get(folded_parts(f"{base}.mp4"), []))
    parts = folded_parts(name)
    for at in range(len(parts) - 2, -1, -1):
        if parts[at] in KIND_OF_FOLDER:
            key = (*parts[:at], "*", *parts[at + 1 :])
            inside = clips.get((*parts[:at], *parts[at + 1 :]), [])
            if found := _only(clips.get(key, [])) or _only(inside):
                return found
    return None


def _only(matches: list[str]) -> str | None:
    """Return the only match, else the only video, else the only one in a folder of clips, else None."""
    for narrowed in (
        matches,
        [name for name in matches if not name.lower().endswith(IMAGE_SUFFIXES)],
        [name for name in matches if {*folded_parts(name)[:-1]} & {*CLIP_FOLDERS}],
    ):
        if len(narrowed) == 1:
            return narrowed[0]
    return None


def _take_beside(notes: ReadingNotes, found: Mapping[str, Mapping[str, str]], captions: Mapping[str, str]) -> None:
    """Add companions found by name to those named in tables, which take precedence.

    A file with its own caption, different from the clip's, is a clip itself.
    """
    named = {file for of_clip in notes.companions.values() for file in of_clip.values()}
    for clip, files in found.items():
        for kind, file in files.items():
            if file in named or captions.get(file, "") not in ("", captions.get(clip, "")):
                continue
            notes.left_out.add(file)
            if kind not in notes.companions[clip]:
                notes.companions[clip][kind] = file
            else:
                notes.add(Problem.COMPANION, file)


def _hand_over(tree: Tree, captions: Mapping[str, str], notes: ReadingNotes, layout: Layout) -> int:
    """Tell the archives of a tree, which are read next, what it says about their members; return how many have
    captions."""
    count = 0
    for name, (archive, member) in tree.guests.items():
        if caption := captions.get(name, ""):
            archive.handed.captions[member] = caption
            archive.handed.layout = layout.name
            count += 1
        if companions := notes.companions.get(name):
            archive.handed.companions[member] = {kind: tree.source(file, "") for kind, file in companions.items()}
        if name in notes.left_out:
            archive.handed.left_out.add(member)
    return count


def _note_unread(tree: Tree, notes: ReadingNotes, only: str) -> None:
    """Note every file that was not used. only: title of the layout that the user chose, or ""."""
    for name in tree.texts:
        if not name.lower().endswith(TEXT_SUFFIXES):
            if name not in notes.read:
                notes.add(Problem.OTHER, name)
        elif name in notes.unread:
            notes.add(Problem.NOT_READ, f"{name} ({notes.unread[name]})")
        elif name not in notes.read and tree.whole:
            if only:
                notes.add(Problem.NOT_READ, f"{name} (only captions of the layout {only!r} are read)")
            else:
                notes.add(Problem.UNPAIRED_TEXT if name.lower().endswith(CAPTION_SUFFIXES) else Problem.NOT_READ, name)
    for name in tree.others:
        notes.add(Problem.OTHER, name)


def _joined(found: list[SurveyedFiles]) -> list[SurveyedFiles]:
    """Merge consecutive archives with the same folder and layout, such as shards."""
    joined: list[SurveyedFiles] = []
    for part in found:
        last = joined[-1] if joined else None
        home = None  # the folder of the archives merged so far
        if last:
            home = last.path if last.parts > 1 else last.path.parent if is_archive(last.path) else None
        if last and is_archive(part.path) and part.layout == last.layout and home == part.path.parent:
            both = [problem for problem in Problem if problem in last.problems or problem in part.problems]
            joined[-1] = replace(
                last,
                path=part.path.parent,
                sources=last.sources + part.sources,
                size=last.size + part.size,
                problems={one: (*last.problems.get(one, ()), *part.problems.get(one, ())) for one in both},
                refused={**last.refused, **part.refused},
                parts=last.parts + 1,
            )
        else:
            joined.append(part)
    return joined


def _named(names: tuple[str, ...]) -> str:
    return listed([repr(name) for name in names])
