"""Fixtures for the dataset builder's tests."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dataset_builder import footage
from tests.patience import PATIENCE
from workbench.dataset_builder.settings import CheckSettings
from workbench.dataset_builder.tasks import Task
from workbench.jobs import State

LONG = "a yellow square moves left on white and further " * 8


@pytest.fixture(scope="session")
def checked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset of a fault a clip, checked by the real job for the embedded model; never change it."""
    videos = {
        "good": footage.pan(1), "still": footage.still(2), "shake": footage.shaky(3), "flash": footage.flashing(4),
        "cut": footage.cut(5, 6), "bars": footage.barred(7), "blur": footage.blurred(8), "short": footage.pan(9, 4),
        "image": footage.pan(10, 1), "copy": footage.pan(1)[:, 2:-2, 2:-2],
    }  # fmt: skip
    captions = {
        "good": f"zwx a red circle moves up on blue. {LONG}", "flash": LONG, "still": "", "shake": "red",
        "bars": "a circle on blue", "blur": "A circle  on blue",
    }  # fmt: skip
    dataset = footage.write_footage(tmp_path_factory.mktemp("checked") / "faults", videos, captions, trigger="zwx")
    task = Task(dataset, "check")
    task.start(CheckSettings())
    status = task.wait(PATIENCE)
    assert status.state == State.FINISHED, status.message
    return dataset
