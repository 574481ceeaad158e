"""WebDataset: tar files, each clip a group of members of one name: 000.mp4 with 000.txt, 000.caption or 000.json.

The setting caption_column may name the ending of another member: longcap for 000.longcap. As SAT's trainers keep it,
captions may also stand beside the tar: shard-000.meta.jsonl, a line a clip, whose `key` is the members' name (or what
the clip's member 000.id says). What is written has the members that SAT's reader asks for: caption, fps and duration
(its data_video.py and sgm/webds.py). Not covered: resampling of shards.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Iterator, Sequence

from workbench.clips.records import Clip
from workbench.dataset_builder.sources.columns import column_names, file_name
from workbench.dataset_builder.sources.layouts.base import (
    ExportedClip,
    ExportedFiles,
    Layout,
    Problem,
    ReadingNotes,
    caption_in,
)
from workbench.dataset_builder.sources.layouts.json_records import BROKEN, read_json
from workbench.dataset_builder.sources.text import one_line
from workbench.dataset_builder.sources.tree import Tree

SUFFIXES = ("txt", "caption", "json")
ID = "id"
META = ".meta.jsonl"
SEVERAL = "-$#%@&"  # in SAT's shards it parts a record's key from the number of one of its clips
SHARD_BYTES = 1_000_000_000  # what readers of shards are made for
SHARD_CLIPS = 10_000


class WebDatasetShards(Layout):
    name = "webdataset"
    title = "WebDataset shards (.tar)"
    description = (
        "Tar files in which a clip and its caption follow one another under one name: 000.mp4, 000.txt. Read one "
        "after the other, never unpacked. Captions in a .meta.jsonl beside a shard are taken, too."
    )
    reads = "texts"
    shards = True

    def recognise(self, tree: Tree) -> bool:
        if not tree.path.name.lower().endswith((".tar", ".tar.gz", ".tgz")):
            return False
        texts = {key for key, suffix in map(_split, tree.files) if suffix in (*_suffixes(tree), ID)}
        return any(tree.beside or _split(name)[0] in texts for name in tree.media)

    def captions(self, tree: Tree, notes: ReadingNotes) -> dict[str, str]:
        texts: dict[str, dict[str, str]] = defaultdict(dict)
        for name in tree.files:
            key, suffix = _split(name)
            if suffix in (*_suffixes(tree), ID):
                texts[key][suffix] = name
        meta, used = _meta(tree, notes), set[str]()
        found = {}
        for name in tree.media:
            of_clip = texts.pop(_split(name)[0], {})
            key = next((key for key in _keys(tree, name, of_clip) if key in meta), "")
            used.add(key)
            notes.read |= {of_clip[ID]} if ID in of_clip else set()
            inside = _caption(tree, of_clip, name, notes)
            found[name] = notes.clean(name, meta[key]) if key else inside
            if key and inside and inside != found[name]:
                notes.add(Problem.DIFFERS, name)
        for key in meta.keys() - used:
            notes.add(Problem.NO_VIDEO, key)
        return found

    def files(self, clips: Sequence[ExportedClip], first_frames: bool) -> ExportedFiles:
        for clip in clips:
            yield clip.name, clip.file
            for suffix in ("txt", "caption"):
                yield f"{clip.stem}.{suffix}", one_line(clip.caption).encode()
            yield f"{clip.stem}.json", json.dumps(clip.facts).encode()
            if clip.clip.frames and clip.clip.fps:
                yield f"{clip.stem}.fps", repr(clip.clip.fps).encode()
                yield f"{clip.stem}.duration", repr(_duration(clip.clip)).encode()


def _split(name: str) -> tuple[str, str]:
    """("train/000", "mp4") of "train/000.mp4": WebDataset's key ends at the first dot of the file name."""
    folder, _, file = name.rpartition("/")
    key, _, suffix = file.partition(".")
    return f"{folder}/{key}", suffix.lower()


def _suffixes(tree: Tree) -> tuple[str, ...]:
    """The endings of members that hold captions, the one that counts first."""
    asked = tree.columns.caption.lower().lstrip(".")
    return tuple(dict.fromkeys((asked, *SUFFIXES) if asked else SUFFIXES))


def _meta(tree: Tree, notes: ReadingNotes) -> dict[str, str]:
    """Key -> caption of the records beside the shard."""
    if not tree.beside:
        return {}
    found, present, name = dict[str, str](), dict[str, None](), tree.path.name.partition(".")[0] + META
    rows, _ = read_json(tree.beside, tree.columns, lambda _: True)
    for where, row in rows:
        if row is BROKEN:
            notes.add(Problem.BROKEN, f"{name}, {where}")
            continue
        present |= dict.fromkeys(map(str, row))
        if (key := file_name(row.get("key"))) and (text := notes.cell(f"{name}, {where}", tree.columns.text(row))):
            found[key] = text
    if found and tree.columns.caption:
        notes.settings.add("caption_column")
    if present and not found:
        notes.add(Problem.NO_COLUMN, f"{name} (keys: {column_names(tuple(present))})")
    return found


def _keys(tree: Tree, name: str, texts: dict[str, str]) -> Iterator[str]:
    """What the record of a clip may be called: SAT's key first."""
    key = tree.full_name(name).partition(".")[0]
    yield key.partition(SEVERAL)[0]
    yield key.rpartition("/")[2].partition(SEVERAL)[0]
    if ID in texts:
        yield tree.text(texts[ID]).strip()


def _caption(tree: Tree, texts: dict[str, str], clip: str, notes: ReadingNotes) -> str:
    """The caption in a clip's members: the first that has one; notes others that differ."""
    caption = ""
    for suffix in _suffixes(tree):
        if name := texts.get(suffix):
            if suffix == tree.columns.caption.lower().lstrip("."):
                notes.settings.add("caption_column")
            found = notes.clean(clip, caption_in(tree, name, notes))
            if caption and found and found != caption:
                notes.add(Problem.DIFFERS, f"{clip} ({name})")
            caption = caption or found
    for name in texts.values() if caption or len(texts) > 1 else ():
        notes.unread.pop(name, None)  # a member of facts beside the caption lacks nothing
    return caption


def _duration(clip: Clip) -> float:
    """The clip's length in seconds, such that int(length * fps), by which SAT counts frames, gives all of them."""
    seconds = clip.frames / clip.fps
    while int(seconds * clip.fps) < clip.frames:
        seconds = math.nextafter(seconds, math.inf)
    return seconds


def shards_of(clips: Sequence[ExportedClip]) -> Iterator[list[ExportedClip]]:
    """The clips of each tar file, where there are several."""
    shard: list[ExportedClip] = []
    size = 0
    for clip in clips:
        length = clip.file.stat().st_size
        if shard and (size + length > SHARD_BYTES or len(shard) == SHARD_CLIPS):
            yield shard
            shard, size = [], 0
        shard.append(clip)
        size += length
    if shard:
        yield shard
