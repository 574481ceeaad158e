"""WebDataset: tar files, each clip a group of members of one name: 000.mp4 with 000.txt, 000.caption or 000.json."""

from __future__ import annotations

import contextlib
import json
from collections import defaultdict
from collections.abc import Iterator, Sequence

from workbench.dataset_builder.layouts.base import TEXT_COLUMNS, Item, Layout, Problem, Report, Tree, Writer, one_line

SUFFIXES = ("txt", "caption", "json")
SHARD_BYTES = 1_000_000_000  # what readers of shards are made for
SHARD_CLIPS = 10_000


class Shards(Layout):
    name = "webdataset"
    title = "WebDataset shards (.tar)"
    description = (
        "Tar files in which a clip and its caption follow one another under one name: 000.mp4, 000.txt. Read one "
        "after the other, never unpacked."
    )

    def recognise(self, tree: Tree) -> bool:
        if not tree.path.name.lower().endswith((".tar", ".tar.gz", ".tgz")):
            return False
        texts = {key for key, suffix in map(_split, tree.files) if suffix in SUFFIXES}
        return any(_split(name)[0] in texts for name in tree.media)

    def captions(self, tree: Tree, report: Report) -> dict[str, str]:
        texts: dict[str, dict[str, str]] = defaultdict(dict)
        for name in tree.files:
            key, suffix = _split(name)
            if suffix in SUFFIXES:
                texts[key][suffix] = name
        found = {
            name: report.clean(name, _caption(tree, texts.get(_split(name)[0], {}), report)) for name in tree.media
        }
        for key in texts.keys() - {_split(name)[0] for name in found}:
            report.add(Problem.NO_VIDEO, next(iter(texts[key].values())))
        return found

    def write(self, items: Sequence[Item], writer: Writer, first_frames: bool) -> None:
        for number, group in enumerate(_groups(items) if writer.splits else [items]):
            with writer.shard(f"shard-{number:06d}.tar") as shard:
                for item in group:
                    shard.file(item.name, item.file)
                    shard.text(f"{item.stem}.txt", one_line(item.caption))
                    shard.text(f"{item.stem}.json", json.dumps(item.facts))


def _split(name: str) -> tuple[str, str]:
    """("train/000", "mp4") of "train/000.mp4": WebDataset's key ends at the first dot of the file name."""
    folder, _, file = name.rpartition("/")
    key, _, suffix = file.partition(".")
    return f"{folder}/{key}", suffix.lower()


def _caption(tree: Tree, texts: dict[str, str], report: Report) -> str:
    for suffix in SUFFIXES:
        name = texts.get(suffix)
        text = tree.text(name) if name else ""
        if name and suffix == "json" and text:
            row: object = None
            with contextlib.suppress(ValueError, RecursionError):
                row = json.loads(text)
            if not isinstance(row, dict):
                report.add(Problem.BROKEN, name)
                continue
            text = next((value for key in TEXT_COLUMNS if isinstance(value := row.get(key), str) and value), "")
        if text.strip():
            return text
    return ""


def _groups(items: Sequence[Item]) -> Iterator[list[Item]]:
    """The clips of each shard."""
    group: list[Item] = []
    size = 0
    for item in items:
        length = item.file.stat().st_size
        if group and (size + length > SHARD_BYTES or len(group) == SHARD_CLIPS):
            yield group
            group, size = [], 0
        group.append(item)
        size += length
    if group:
        yield group
