"""Samples as files: a zip with each video by a readable name and its settings beside it, a GIF, a PNG of pictures, or a
folder with a GIF or PNG for each prompt.

No torch. Not covered: which samples (samples.SampleQuery).
"""

from __future__ import annotations

import json
import secrets
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

from workbench.clips import media
from workbench.errors import ConfigError
from workbench.sampler.samples import Sample, shareable
from workbench.workspace import Workspace, disk, replacing, slugify, writing
from workbench.workspace.zip_stream import write_zip

SUFFIXES = (".zip", ".gif", ".png")
MOST_TILES = 36  # videos in a GIF or PNG
NAME_LETTERS = 60  # of the prompt, in a file's name
DOWNLOADS = ".downloads"
KEPT_SECONDS = 3600.0  # that a file for the page is kept


def zip_contents(samples: Iterable[Sample], root: Path) -> Iterator[tuple[str, Path | bytes]]:
    """The files of the zip. root: of the workspace. The settings name no path of this machine."""
    for sample in samples:
        name = f"{sample.id[:15]}-{slugify(sample.settings.prompt)[:NAME_LETTERS].strip('-')}-{sample.id[-4:]}"
        yield f"{name}{sample.path.suffix}", sample.path
        if not sample.problem:
            yield f"{name}.json", json.dumps(shareable(sample.record, root), ensure_ascii=False, indent=1).encode()


def write_samples(samples: Sequence[Sample], target: Path, root: Path) -> None:
    """Write them to `target`, whole or not at all.

    Its ending says what it becomes: a zip file, a GIF with a row for each prompt, or the same as a PNG, where the
    samples are pictures. Without an ending it is a folder with a GIF or PNG for each prompt.

    root: of the workspace. Raises ConfigError for more than fit a GIF and for a PNG of videos, DataError, CannotWrite.
    """
    if target.suffix == ".zip":
        with replacing(target) as part:
            write_zip(part, zip_contents(samples, root))
        return
    by_prompt = groupby(sorted(samples, key=lambda one: one.settings.prompt), lambda one: one.settings.prompt)
    rows = [list(row) for _, row in by_prompt]
    if target.suffix:
        _write_tiles(rows, target)
        return
    with tempfile.TemporaryDirectory(prefix=f".{target.name}-", dir=target.parent) as temporary, writing(target):
        part = Path(temporary) / target.name
        for number, row in enumerate(rows, 1):
            name = f"{number:03d}-{slugify(row[0].settings.prompt)[:NAME_LETTERS].strip('-')}"
            _write_tiles([row], part / f"{name}{'.png' if all(map(_is_picture, row)) else '.gif'}")
        disk.replace(part, target)


def _write_tiles(rows: Sequence[Sequence[Sample]], target: Path) -> None:
    every = [one for row in rows for one in row]
    format = target.suffix.removeprefix(".").upper()
    if len(every) > MOST_TILES:
        raise ConfigError(f"{len(every)} samples are too many for one {format}, which shows {MOST_TILES}: export a zip")
    if format == "PNG" and (videos := [one for one in every if not _is_picture(one)]):
        raise ConfigError(
            f"{videos[0].id} is a video of {videos[0].record['frames']} frames, and a PNG shows pictures: export a GIF"
        )
    paths = [[one.video for one in row] for row in rows]
    with replacing(target) as part:
        (media.write_png if format == "PNG" else media.write_gif)(paths, part)


def _is_picture(sample: Sample) -> bool:
    return sample.record.get("frames") == 1


def write_download(samples: Sequence[Sample], workspace: Workspace, suffix: str) -> Path:
    """A file in the workspace for the page to send, of one of SUFFIXES; those of an hour ago are deleted.

    Raises what `write_samples` raises.
    """
    folder = workspace.samples / DOWNLOADS
    for old in folder.glob("samples-*"):
        if old.stat().st_mtime < time.time() - KEPT_SECONDS:
            old.unlink(missing_ok=True)
    folder.mkdir(exist_ok=True)
    target = folder / f"samples-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}{suffix}"
    write_samples(samples, target, workspace.root)
    return target
