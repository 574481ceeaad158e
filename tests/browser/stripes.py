"""Six of the demo's clips, and settings that train on them alone: a run that is under way soon."""

from __future__ import annotations

from workbench import demo
from workbench.dataset_builder import Dataset
from workbench.runs.settings import TrainSettings
from workbench.workspace import Workspace

FILES = sorted(path for path in (demo.DEMO_CLIPS / demo.concept()).glob("*") if path.suffix in (".mp4", ".txt"))[:12]


def few_clips(workspace: Workspace) -> TrainSettings:
    """Take the clips in; the demo's settings without the clips of what the model knows."""
    dataset = Dataset.ensure(workspace, "stripes")
    dataset.import_files(FILES)
    return demo.teach(dataset.name, "none").changed(regularization_dataset=None, batch_size=2)
