"""The demo: import the demo clips as two datasets and set up a run on a built-in model. Safe to run again."""

from __future__ import annotations

from collections.abc import Callable

from workbench.dataset_builder import Dataset
from workbench.errors import DataError
from workbench.families.facts import ALL_LINEAR
from workbench.paths import ASSETS
from workbench.runs.settings import TrainSettings
from workbench.workspace import Workspace

DEMO_CLIPS = ASSETS / "demo_clips"
KNOWN = "known"  # the folder of clips the model can already make; the other folder shows the new concept
MODEL = "tiny-cogvideox"  # the built-in model that learns the concept fastest
PROMPTS = DEMO_CLIPS / "prompts.txt"  # prompts for the concept that no demo clip has as its caption
Progress = Callable[[str, int, int], None]


def concept() -> str:
    """Return the name of the folder whose concept the demo's LoRA learns. Raises DataError if there are no clips."""
    folders = sorted(path.name for path in DEMO_CLIPS.glob("*") if path.is_dir() and path.name != KNOWN)
    if not folders:
        raise DataError(f"the demo clips are missing from {DEMO_CLIPS}: restore the folder from the repository")
    return folders[0]


def prompts() -> tuple[str, ...]:
    """Return the prompts that the demo samples with and without its LoRA; none is a training caption."""
    return tuple(line for line in PROMPTS.read_text(encoding="utf-8").splitlines() if line.strip())


def prepare(workspace: Workspace, on_progress: Progress = lambda *_: None) -> TrainSettings:
    """Import the demo clips, calling on_progress(dataset, done, total), and return settings that teach the concept."""

    def imported(folder: str) -> str:
        dataset = Dataset.ensure(workspace, f"demo {folder}")
        dataset.import_files([DEMO_CLIPS / folder], lambda done, total, _: on_progress(dataset.name, done, total))
        return dataset.name

    known = imported(KNOWN)  # first, since forms suggest the newest dataset
    return watched(imported(concept()), known)


def watched(dataset: str, known: str) -> TrainSettings:
    """Return what teach() returns, with previews often enough to see the concept appear."""
    return teach(dataset, known).changed(preview_prompts=prompts()[:2], preview_every=50, preview_steps=15)


def teach(dataset: str, known: str) -> TrainSettings:
    """Return settings that teach the built-in model one dataset, with a second one as regularization."""
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
        # Guidance subtracts the empty caption's prediction: had it learned the concept, known prompts would suffer.
        caption_dropout=0.0,
        rank=16,
        alpha=64.0,
        targets=ALL_LINEAR,
        preview_every=200,
        evaluate_every=50,
        save_every=200,
    )
