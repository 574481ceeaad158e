"""Samples as one file, for a download: a zip with each video by a readable name and its settings beside it, or a GIF.

No torch. Not covered: which samples (samples.SampleQuery).
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from pathlib import Path

from workbench.clips import media
from workbench.errors import ConfigError
from workbench.sampler.samples import Sample, shareable
from workbench.workspace import Workspace, replacing, slugify
from workbench.zip_stream import write_zip

SUFFIXES = (".zip", ".gif")
MOST_TILES = 36  # videos in a GIF
NAME_LETTERS = 60  # of the prompt, in a file's name
DOWNLOADS = ".downloads"
KEPT_SECONDS = 3600.0  # that a file for the page is kept


def zip_contents(samples: Iterable[Sample], root: Path) -> Iterator[tuple[str, Path | bytes]]:
    """The files of the zip. root: of the workspace. The settings name no path of this machine."""
    for sample in samples:
        name = f"{sample.id[:15]}-{slugify(sample.settings.prompt)[:NAME_LETTERS].strip('-')}-{sample.id[-4:]}"
        yield f"{name}.mp4", sample.path
        yield f"{name}.json", json.dumps(shareable(sample.record, root), ensure_ascii=False, indent=1).encode()


def write_samples(samples: Sequence[Sample], target: Path, root: Path) -> None:
    """Write them to `target`, whole or not at all: by its ending a zip file, or a GIF with a row for each prompt.

    root: of the workspace. Raises ConfigError for more than fit a GIF, DataError, CannotWrite.
    """
    if target.suffix != ".gif":
        with replacing(target) as part:
            write_zip(part, zip_contents(samples, root))
        return
    if len(samples) > MOST_TILES:
        raise ConfigError(f"these are {len(samples)} samples, a GIF shows {MOST_TILES} at most: choose fewer, or a zip")
    by_prompt = sorted(samples, key=lambda one: one.settings.prompt)
    rows = [[one.path for one in row] for _, row in groupby(by_prompt, lambda one: one.settings.prompt)]
    with replacing(target) as part:
        media.write_gif(rows, part)


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
