"""A grid whose videos are written by hand, without a worker: two prompts by base model and two checkpoints."""

from __future__ import annotations

import numpy as np

from tests.written_run import write_run
from workbench.compare import Grid, GridSettings
from workbench.runs.checkpoints import LORA, folder_of
from workbench.runs.run import EXPORT, Run
from workbench.sampler.samples import write_sample
from workbench.workspace import Workspace

FRAMES = 9


def run_to_compare(workspace: Workspace, prompts: tuple[str, ...]) -> Run:
    """A run "first" with two checkpoints and an export."""
    run = write_run(workspace, "first", 200, preview_prompts=prompts, device="cpu")
    for step in (100, 200):
        (folder_of(run.folder, step) / LORA).touch()
    (run.folder / EXPORT).touch()
    return run


def write_grid(workspace: Workspace, prompts: tuple[str, ...] = ("a cat", "a dog"), done: int = 1) -> Grid:
    """A grid of that run; the videos of the first columns are done, by default those of the base model."""
    run_to_compare(workspace, prompts)
    grid = Grid.create(workspace, GridSettings(run="first"))
    frames = np.zeros((FRAMES, 64, 64, 3), np.uint8)
    frames += np.arange(0, 20 * FRAMES, 20, np.uint8)[:, None, None, None]  # each is brighter than the one before
    for row in grid.state().cells:
        for cell in row[:done]:
            record = {"settings": cell.settings.model_dump(mode="json"), "loras": [], "seconds": 2.0}
            write_sample(grid.video(cell.key), frames, 8, record)
    return grid
