"""A workspace with a run of a random miniature model: three checkpoints and an export that can be seen."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sampler.conftest import WriteLora, toy_folder, write_lora
from tests.written_run import write_run
from workbench import jobs
from workbench.runs.checkpoints import LORA, folder_of
from workbench.runs.run import EXPORT, Run
from workbench.sampler import queue
from workbench.workspace import Workspace, write_json

__all__ = ["toy_folder", "write_lora"]
STEPS = (10, 20, 30)
PROMPTS = ("a red circle moves left", "a blue square", "the video")


def written(workspace: Workspace, toy: Path, write: WriteLora, name: str = "demo") -> Run:
    """A finished run of the miniature."""
    run = write_run(
        workspace,
        name,
        steps=40,
        model=str(toy),
        device="cpu",
        preview_prompts=PROMPTS,
        preview_steps=2,
        frames=9,
    )
    shutil.rmtree(run.folder / "checkpoints")
    for step in STEPS:
        write(folder_of(run.folder, step) / LORA, seed=step)
        write_json(folder_of(run.folder, step) / "MANIFEST.json", {"step": step, "files": {}})
    shutil.copy(folder_of(run.folder, 30) / LORA, run.folder / EXPORT)
    return run


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, toy_folder: Path, write_lora: WriteLora) -> Iterator[Workspace]:
    """A workspace with the run "demo", whose worker is ended after the last test."""
    workspace = Workspace.open(tmp_path_factory.mktemp("grids") / "workspace")
    written(workspace, toy_folder, write_lora)
    yield workspace
    jobs.kill(queue.worker_folder(workspace))
    for job in workspace.grids.glob("*/.*"):
        jobs.kill(job)
