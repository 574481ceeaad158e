"""The first thing a newcomer runs: the demo clips become two datasets, and a run on a built-in model is set up.

Running it again takes nothing in twice.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from workbench.dataset_builder import Dataset
from workbench.errors import DataError
from workbench.families.facts import ALL_LINEAR
from workbench.paths import ASSETS
from workbench.runs.settings import TrainSettings
from workbench.workspace import Workspace

DEMO_CLIPS = ASSETS / "demo_clips"
KNOWN = "known"  # clips of things the model knows; the other folder shows the new concept
MODEL = "tiny-cogvideox"  # of the built-in models the one that learns the concept soonest
PROMPTS = DEMO_CLIPS / "prompts.txt"  # captions of the concept that are in no demo clip
Progress = Callable[[str, int, int], None]


def concept() -> str:
    """What the demo's LoRA teaches: the name of the folder of clips. Raises DataError when the clips are missing."""
    folders = sorted(path.name for path in DEMO_CLIPS.glob("*") if path.is_dir() and path.name != KNOWN)
    if not folders:
        raise DataError(f"the demo clips are missing from {DEMO_CLIPS}: restore the folder from the repository")
    return folders[0]


def prompts() -> tuple[str, ...]:
    """What the demo generates with and without its LoRA; none of it was trained on."""
    return tuple(line for line in PROMPTS.read_text(encoding="utf-8").splitlines() if line.strip())


def prepare(workspace: Workspace, on_progress: Progress = lambda *_: None) -> TrainSettings:
    """Take in the demo clips and return the settings that teach the concept. `on_progress(dataset, done, total)`."""
    datasets = {}
    for name in (concept(), KNOWN):
        dataset = Dataset.ensure(workspace, f"demo {name}")
        report = partial(_report, on_progress, dataset.name)
        dataset.import_files([DEMO_CLIPS / name], report)
        datasets[name] = dataset.name
    return teach(datasets[concept()], datasets[KNOWN]).changed(preview_prompts=prompts()[:3])


def teach(dataset: str, known: str) -> TrainSettings:
    """Settings that teach the built-in model what one dataset shows, and keep what it knew by another."""
    return TrainSettings(
        model=MODEL,
        dataset=dataset,
        regularization_dataset=known,
        regularization_share=0.5,
        regularization_target="base model",
        held_out=2,
        steps=600,
        batch_size=4,
        learning_rate=2e-3,
        lr_schedule="cosine",
        # An empty caption that learned stripes would push the known prompts away from them: guidance subtracts it.
        caption_dropout=0.0,
        rank=16,
        alpha=64.0,
        targets=ALL_LINEAR,
        preview_every=200,
        evaluate_every=50,
        save_every=200,
    )


def _report(on_progress: Progress, dataset: str, done: int, total: int, _: Any) -> None:
    on_progress(dataset, done, total)
