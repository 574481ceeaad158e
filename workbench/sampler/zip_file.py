"""Samples as one zip file, for a download: each video by a readable name, with its settings beside it. No torch.

Not covered: which samples (samples.SampleQuery).
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from workbench.sampler.samples import Sample, shareable
from workbench.workspace import Workspace, replacing, slugify
from workbench.zip_stream import write_zip

NAME_LETTERS = 60  # of the prompt, in a file's name
DOWNLOADS = ".downloads"
KEPT_SECONDS = 3600.0  # that a zip file for the page is kept


def zip_contents(samples: Iterable[Sample], root: Path) -> Iterator[tuple[str, Path | bytes]]:
    """The files of the zip. root: of the workspace. The settings name no path of this machine."""
    for sample in samples:
        name = f"{sample.id[:15]}-{slugify(sample.settings.prompt)[:NAME_LETTERS].strip('-')}-{sample.id[-4:]}"
        yield f"{name}.mp4", sample.path
        yield f"{name}.json", json.dumps(shareable(sample.record, root), ensure_ascii=False, indent=1).encode()


def write_samples(samples: Iterable[Sample], target: Path, root: Path) -> None:
    """Write them to `target`, whole or not at all. root: of the workspace. Raises CannotWrite."""
    with replacing(target) as part:
        write_zip(part, zip_contents(samples, root))


def write_download(samples: Iterable[Sample], workspace: Workspace) -> Path:
    """A zip file in the workspace for the page to send; those of an hour ago are deleted. Raises CannotWrite."""
    folder = workspace.samples / DOWNLOADS
    for old in folder.glob("*.zip"):
        if old.stat().st_mtime < time.time() - KEPT_SECONDS:
            old.unlink(missing_ok=True)
    folder.mkdir(exist_ok=True)
    target = folder / f"samples-{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(2)}.zip"
    write_samples(samples, target, workspace.root)
    return target
