"""A workspace with one dataset and run folders, written with the classes that real jobs use."""

from __future__ import annotations

from pathlib import Path

import pytest

from workbench.clips import records
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.workspace import Workspace


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    opened = Workspace.open(tmp_path / "workspace")
    dataset = opened.dataset("cats")
    (dataset / "clips").mkdir(parents=True)
    names = [f"clips/{letter}.mp4" for letter in "abcd"]
    for name in names:
        (dataset / name).touch()
    records.write_clips(
        dataset, [records.Clip(file_name=name, text="a cat", fps=8, frames=40, width=64, height=64) for name in names]
    )
    records.write_info(dataset, records.DatasetInfo(title="Cats"))
    return opened


@pytest.fixture
def run(workspace: Workspace) -> Run:
    return Run.create(workspace, TrainSettings(dataset="cats", preview_prompts=("a cat",)), "first")
