"""Which files lie beside a clip and belong to it: control clips, references, masks, last frames, found by their names.

    clips/a.mp4   control/a.mp4, controls/, references/a.png, masks/a.mp4, last_frames/a.png    a folder of the kind
    a.mp4         a.mask.mp4, a.control.mp4, a.reference.png, a.last.png                        an ending of the kind

Columns of tables that name such files are read with the tables (layouts.tables) and count first. A file that belongs
to a clip is no clip of its own. A folder called masks by itself, with no clip beside it, is a folder of clips.
"""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from dataclasses import dataclass, field

from workbench.dataset_builder.sources.columns import IMAGE_SUFFIXES
from workbench.dataset_builder.sources.tree import KIND_OF_FOLDER, Tree, companion_kind_of, without_suffix

MEANT = ("videos", "clips", "targets", "target")  # of several folders that hold such a clip, these are meant


@dataclass
class FilesBeside:
    """found: clip -> kind -> file; orphans: files in folders of a kind without a clip of their name."""

    found: dict[str, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    orphans: list[str] = field(default_factory=list)


def files_beside(tree: Tree) -> FilesBeside:
    """The files of a tree that belong to its clips by their names, the ending before the folder."""
    beside = FilesBeside()
    named = {name: found for name in tree.media if (found := companion_kind_of(name))}
    if not named:
        return beside
    clips = defaultdict[tuple[str, ...], list[str]](list)
    for name in tree.media:
        if name not in named:
            parts = _parts(name)
            clips[parts].append(name)
            for at in range(len(parts) - 1):
                clips[(*parts[:at], "*", *parts[at + 1 :])].append(name)
    paired, left = set[str](), list[str]()
    for name, (kind, base) in sorted(named.items(), key=lambda item: (not item[1][1], item[0])):
        if (clip := _clip_of(name, base, clips)) is None:
            left.append(name)
        elif kind not in beside.found[clip]:
            beside.found[clip][kind] = name
            paired.add(_group(name, base))
        else:
            beside.orphans.append(name)  # a second of its kind
    beside.orphans += [name for name in left if _group(name, named[name][1]) in paired]
    return beside


def _group(name: str, base: str) -> str:
    """Files that are meant alike: those of a folder, or all with an ending of the kind."""
    return "" if base else name.rpartition("/")[0]


def _clip_of(name: str, base: str, clips: dict[tuple[str, ...], list[str]]) -> str | None:
    """The clip that a file belongs to, None where there is none or it is not clear which."""
    if base:
        return _clear(clips.get(_parts(f"{base}.mp4"), []))
    parts = _parts(name)
    for at in range(len(parts) - 2, -1, -1):
        if parts[at] in KIND_OF_FOLDER:
            key = (*parts[:at], "*", *parts[at + 1 :])
            inside = clips.get((*parts[:at], *parts[at + 1 :]), [])
            if found := _clear(clips.get(key, [])) or _clear(inside):
                return found
    return None


def _clear(fits: list[str]) -> str | None:
    """The one clip among those that fit: a video rather than a picture of it, one of a folder of clips."""
    for wanted in (
        fits,
        [name for name in fits if not name.lower().endswith(IMAGE_SUFFIXES)],
        [name for name in fits if {*_parts(name)[:-1]} & {*MEANT}],
    ):
        if len(wanted) == 1:
            return wanted[0]
    return None


def _parts(name: str) -> tuple[str, ...]:
    """The folders of a file and its name without the ending, as they are compared."""
    return tuple(unicodedata.normalize("NFC", without_suffix(name)).casefold().split("/"))
