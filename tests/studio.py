"""What the tests of the notebook's panels work in: a workspace with a dataset, and settings of a random miniature."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.patience import PATIENCE
from workbench import Dataset, Run, Workspace
from workbench.families import families
from workbench.jobs import State
from workbench.notebook import task_panel
from workbench.runs.settings import TrainSettings
from workbench.sampler import queue

# A loaded machine is no failure; an idle one needs a few seconds for any of these.
CLIPS = Path(__file__).resolve().parent.parent / "assets" / "demo_clips" / "stripes"


@dataclass
class Studio:
    """One workspace for all tests here, with a dataset imported through the panel."""

    workspace: Workspace
    settings: TrainSettings


@pytest.fixture(scope="module")
def studio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Studio]:
    # Inherited by every job: on a machine with other work, threads wait for one another.
    threads = pytest.MonkeyPatch()
    threads.setenv("OMP_NUM_THREADS", "1")
    folder = tmp_path_factory.mktemp("notebook")
    model = families()[0].toy(folder / "toy", "rotary")
    workspace = Workspace.open(folder / "workspace")
    settings = TrainSettings(
        model=model.id,
        dataset="rings",
        steps=4,
        rank=2,
        warmup_steps=0,
        preview_every=4,
        preview_steps=1,
        preview_prompts=("a ring",),
        evaluate_every=2,
        device="cpu",
    )
    Dataset.create(workspace, "rings")
    panel = task_panel(workspace, "rings", "import", sources=[str(path) for path in sorted(CLIPS.glob("*.mp4"))[:5]])
    panel.start()
    assert panel.wait(PATIENCE).state is State.FINISHED
    panel.close()
    yield Studio(workspace, settings)
    for run in Run.all(workspace):
        run.stop(grace=20)
    queue.stop_worker(workspace, grace=20)
    threads.undo()
