"""A small run to send somewhere."""

from __future__ import annotations

import pytest

from workbench.dataset_builder import Dataset
from workbench.families.model import Model
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.workspace import Workspace


@pytest.fixture
def run(workspace: Workspace, dataset: Dataset, toy_model: Model) -> Run:
    """Longer than any test waits for, with a checkpoint and a preview every five steps."""
    chosen = TrainSettings(
        model=toy_model.source,
        dataset="squares",
        steps=100_000,
        rank=2,
        learning_rate=0.001,
        preview_every=5,
        held_out=1,
        preview_steps=1,
        preview_prompts=("a red square",),
        evaluate_every=5,
        save_every=5,
        frames=9,
    )
    return Run.create(workspace, chosen, "cats")
