"""The code in a run's model card is run as it stands, with the installed and with older packages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.patience import PATIENCE
from tests.version_environments import environment, python
from workbench import demo, jobs
from workbench.clips import media
from workbench.dataset_builder import Dataset
from workbench.runs.run import CARD, Run
from workbench.runs.settings import TrainSettings
from workbench.workspace import Workspace

OLDER = ("diffusers==0.35.2", "peft==0.18.0")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A run of two steps on the built-in image-to-video model."""
    workspace = Workspace.open(tmp_path_factory.mktemp("card") / "workspace")
    dataset = Dataset.create(workspace, "stripes")
    dataset.import_files(sorted((demo.DEMO_CLIPS / demo.concept()).glob("*"))[:4])
    chosen = {"steps": 2, "held_out": 0, "preview_every": 0, "rank": 2}
    made = Run.create(workspace, TrainSettings(model="tiny-cogvideox-i2v", dataset=dataset.name, **chosen))
    made.start()
    assert jobs.wait(made.folder, PATIENCE).state is jobs.State.FINISHED, jobs.log_tail(made.folder)
    return made


@pytest.mark.parametrize("pins", [(), OLDER], ids=["installed", "older"])
def test_the_code_of_a_runs_card_makes_a_video(pins: tuple[str, ...], run: Run) -> None:
    found = re.search(r"```python\n(.*?)```", (run.folder / CARD).read_text(encoding="utf-8"), re.DOTALL)
    assert found
    assert str(Path.home()) not in found[1]
    assert "torch_dtype=dtype" in found[1]
    assert "manual_seed(" in found[1]
    video = run.folder / "video.mp4"
    video.unlink(missing_ok=True)
    variables = environment(*pins) if pins else environment_here()
    python(found[1], variables, cwd=run.folder)
    assert media.probe(video).frames == 9


def environment_here() -> dict[str, str]:
    import os

    return {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
