"""Match companion files (control clips, references, masks, last frames) to clips by name.

    clips/a.mp4   control/a.mp4, controls/, references/a.png, masks/a.mp4, last_frames/a.png    by folder
    a.mp4         a.mask.mp4, a.control.mp4, a.reference.png, a.last.png                        by ending

Companions named in tables (layouts.tables) take precedence. A file that belongs to a clip is not a clip itself, but a
folder called masks without matching clips is a folder of clips.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field

from workbench.dataset_builder.sources.columns import IMAGE_SUFFIXES
from workbench.dataset_builder.sources.tree import KIND_OF_FOLDER, Tree, companion_kind_of, folded_parts

CLIP_FOLDERS = ("videos", "clips", "targets", "target")  # preferred if several folders have a matching clip


@dataclass
class FilesBeside:
    """found: clip -> kind -> file; orphans: files that look like companions but match no clip, or are a second one."""

    found: dict[str, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    orphans: list[str] = field(default_factory=list)


def files_beside(tree: Tree) -> FilesBeside:
    """Find the companion files of a tree. Endings take precedence over folders."""
    beside = FilesBeside()
    candidates = {name: found for name in tree.media if (found := companion_kind_of(name))}
    if not candidates:
        return beside
    clips = defaultdict[tuple[str, ...], list[str]](list)
    for name in tree.media:
        if name not in candidates:
            parts = folded_parts(name)
            clips[parts].append(name)
            for at in range(len(parts) - 1):
                clips[(*parts[:at], "*", *parts[at + 1 :])].append(name)
    paired, left = set[str](), list[str]()
    for name, (kind, base) in sorted(candidates.items(), key=lambda item: (not item[1][1], item[0])):
        if (clip := _clip_of(name, base, clips)) is None:
            left.append(name)
        elif kind not in beside.found[clip]:
            beside.found[clip][kind] = name
            paired.add(_group(name, base))
        else:
            beside.orphans.append(name)
    beside.orphans += [name for name in left if _group(name, candidates[name][1]) in paired]
    return beside


def _group(name: str, base: str) -> str:
    """Return the folder of a file found by folder, or "" for all files found by ending.

    If one file of a group matches a clip, those that match none are orphans rather than clips.
    """
    return "" if base else name.rpartition("/")[0]


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
