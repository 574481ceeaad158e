"""Exports that the page sends: one archive in the workspace's cache, written by the task as any other export.

    cache/downloads/DATASET/DATASET-20261123-101500.zip      the newest one of each dataset is kept

Not covered: writing it (files, job), the link on the page (ui.datasets.export).
"""

from __future__ import annotations

import time
from pathlib import Path

from workbench.dataset_builder.export.settings import ExportSettings
from workbench.dataset_builder.sources.layouts import layout_named
from workbench.dataset_builder.tasks import Task
from workbench.workspace import Workspace

FOLDER = "downloads"  # below the workspace's cache


def start_download(dataset: Path, settings: ExportSettings) -> None:
    """Export in the background to an archive that the page can send; the one before is deleted.

    settings: where to is not asked of them. Raises ConfigError, CannotWrite.
    """
    ending = ".tar" if layout_named(settings.layout).shards else ".zip"
    target = _folder(dataset) / f"{dataset.name}-{time.strftime('%Y%m%d-%H%M%S')}{ending}"
    Task(dataset, "export").start(settings.changed(target=str(target), repo_id=""))
    for earlier in _folder(dataset).glob(f"{dataset.name}-*"):
        if earlier != target:
            earlier.unlink(missing_ok=True)


def finished_download(dataset: Path) -> Path | None:
    """The archive that the last export wrote for the page; None where it went elsewhere, or has not finished."""
    target = Path(str(Task(dataset, "export").result.get("target", "")))
    return target if target.parent == _folder(dataset) and target.is_file() else None


def _folder(dataset: Path) -> Path:
    return Workspace.of(dataset).cache / FOLDER / dataset.name
