"""Compare recipes on new concepts: how soon does a LoRA show its concept, and what do known prompts lose?

    python benchmarks/recipes.py --json FILE                                   every recipe on the concepts for tuning
    python benchmarks/recipes.py --concepts aside --recipes demo --sheets DIR  one on the concepts kept aside
    python benchmarks/recipes.py --concepts cross ring --recipes demo share-0.3 --seeds 1 2 3

A recipe is a few settings that differ from the demo's. All recipes read equally many clips, from 24 clips of the
concept and, if they ask for them, 64 known ones. Samples of untrained prompts are judged by assets/tiny_check.py at
three checkpoints: "shown" is the share of the concept's prompts that show it, "known" the share of known prompts that
are fully right, "leak" the share of known prompts that show the concept. The first row is the base model. A
checkpoint's LoRA holds the training weights, the last one the exported weights: their average, if the recipe has one
(EMA, schedule-free). Seconds are those of the steps alone, and comparable only on an otherwise idle machine. The file
is written after each run, and runs in it are not repeated.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import concepts
import tiny_models
import tiny_world
import torch
from common import arguments, machine, report
from PIL import Image
from safetensors.torch import load_file

from workbench import demo
from workbench.clips.media import read_frames
from workbench.dataset_builder import Dataset
from workbench.families import default_model, find_model
from workbench.families.model import Model
from workbench.runs import checkpoints
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.trainer.trainable import LORA, WEIGHTS
from workbench.workspace import Workspace
from workbench.workspace.lora_names import ALSO

TUNING = ("stripes", "ring", "pink", "diagonally", "shrinks", "cross", "dots", "fades", "turns", "three")
# One of each kind. Nothing was tuned on them: they were chosen after the candidates were measured on the others.
ASIDE = ("gradient", "rectangle", "cyan", "across", "grows", "two")
SAMPLING_STEPS = 15  # fewer than the model's 25; verdicts agree in a third of the time
CLIPS = 4  # in a step of the demo
NO_KNOWN_CLIPS: dict[str, Any] = {"regularization_dataset": None}
PICTURES, KNOWN_AND_PICTURES = "pictures", "known-and-pictures"  # datasets
# Text and picture instead of text and clip, in some of the batches: the middle frame of each clip, with its caption.
WITH_PICTURES: dict[str, Any] = {
    "more_datasets": [PICTURES],
    "regularization_dataset": KNOWN_AND_PICTURES,
    "buckets": [f"{frames}x{tiny_world.SIZE}x{tiny_world.SIZE}" for frames in (tiny_world.FRAMES, 1)],
}
# A step with output preservation takes about as long as one without it on twice as many clips.
PRESERVED = NO_KNOWN_CLIPS | {
    "batch_size": CLIPS // 2,
    "preservation_prompts": [spec.caption() for spec in tiny_world.known_demo_specs()[:16]],
}
# Preserves with clips alone, as a run that changes the base model's own weights must.
TOWARDS_CLIPS: dict[str, Any] = {"regularization_target": "clips"}
ALL_WEIGHTS = TOWARDS_CLIPS | {"method": "full", "learning_rate": 1e-3}
ENDS = ["patch_embed", "proj_out", "norm_out", "norm_final"]
# The demo's settings before these measurements.
BEFORE = {"targets": "attention+feed-forward", "batch_size": 8, "alpha": 16.0, "regularization_target": "clips"}
RECIPES: dict[str, dict[str, Any]] = {
    "demo": {},
    "before": BEFORE,
    "towards-clips": TOWARDS_CLIPS,
    "attention": {"targets": "attention"},
    "attention+feed-forward": {"targets": "attention+feed-forward"},
    "batch-8": {"batch_size": 8},
    "batch-2": {"batch_size": 2},
    # Adam's steps do not depend on the size of a gradient: a rate 4 times higher for the up matrices (LoRA+) is the
    # same as so many times the alpha, and a rank-stabilised scale at rank 16 as 4 times.
    "alpha-16": {"alpha": 16.0},
    "alpha-256": {"alpha": 256.0},
    "rank-4": {"rank": 4, "alpha": 16.0},
    "rank-64": {"rank": 64, "alpha": 256.0},
    "dora": {"dora": True},
    "rate-1e-3": {"learning_rate": 1e-3},
    "rate-4e-3": {"learning_rate": 4e-3},
    "constant-rate": {"lr_schedule": "constant_with_warmup"},
    "averaged": {"ema_decay": 0.98},
    "muon": {"optimizer": "muon"},
    "schedule-free": {"optimizer": "schedule-free", "lr_schedule": "constant_with_warmup"},
    "prodigy": {"optimizer": "prodigy", "learning_rate": 1.0},
    "share-0.3": {"regularization_share": 0.3},
    "share-0.7": {"regularization_share": 0.7},
    "no-known-clips": NO_KNOWN_CLIPS,
    "preserved-1": PRESERVED | {"preservation_weight": 1.0},
    "preserved-4": PRESERVED | {"preservation_weight": 4.0},
    "more-noise": {"timestep_shift": 3.0},
    "less-noise": {"timestep_shift": 0.5},
    "min-snr": {"loss_weighting": "min-snr"},
    "all-weights": ALL_WEIGHTS,
    "all-weights-3e-4": ALL_WEIGHTS | {"learning_rate": 3e-4},
    "all-weights-no-known-clips": ALL_WEIGHTS | NO_KNOWN_CLIPS,
    "ends-in-full": TOWARDS_CLIPS | {"train_also": ENDS},
    "pictures-0.25": WITH_PICTURES | {"picture_share": 0.25},
    "pictures-0.5": WITH_PICTURES | {"picture_share": 0.5},
    "caption-dropout": {"caption_dropout": 0.1},
}
Row = dict[str, Any]


class Bench:
    """One concept on the built-in model: its datasets, its prompts, and the base model's results."""

    def __init__(self, concept: str, workspace: Workspace, model: Model, most: int | None) -> None:
        """most: prompts of each kind; all without it"""
        self.concept, self.workspace = concept, workspace
        self.model = replace(model, steps=SAMPLING_STEPS)
        self.settings = concepts.settings_for(workspace, concept, model.id)
        self.prompts = concepts.prompts_of(concept, 1, most)
        self.pipeline = tiny_models.load(Path(model.source))
        self.base = self.generate()

    def generate(self) -> list[torch.Tensor]:
        return [part.generate(self.pipeline, self.model) for part in self.prompts]

    def judged(self, samples: Sequence[torch.Tensor]) -> Row:
        own, known = samples
        specs = self.prompts[1].specs
        return {
            "shown": concepts.share(lambda clip, _: concepts.shows(clip, self.concept), own, self.prompts[0].specs),
            "known": concepts.share(concepts.is_right, known, specs),
            "leak": concepts.share(lambda clip, _: concepts.shows(clip, self.concept), known, specs),
        }

    def measure(self, recipe: str, seed: int, steps: int) -> tuple[list[Row], list[torch.Tensor]]:
        """Return rows at three checkpoints, and the last one's samples."""
        settings = changed(self.settings, RECIPES[recipe], steps).changed(seed=seed)
        run = Run.create(self.workspace, settings, f"{self.concept}-{recipe}-{seed}")
        concepts.finish(run)
        seconds = {line["step"]: line["seconds"] for line in run.metrics if "loss" in line}
        rows, samples = [], self.base
        for step in (settings.steps // 4, settings.steps // 2, settings.steps):
            made = run.folder if step == settings.steps else checkpoints.folder_of(run.folder, step)
            with trained(self.pipeline, made):
                samples = self.generate()
            spent = sum(one for at, one in seconds.items() if at <= step)
            rows.append({"step": step, "seconds": spent, **self.judged(samples)})
        return rows, samples


@contextmanager
def trained(pipeline: tiny_models.Pipeline, folder: Path) -> Iterator[None]:
    """Return the stock pipeline with the LoRA, weights, or both in the folder of a run or checkpoint."""
    files = [folder / WEIGHTS, folder / ALSO, *sorted((folder / "transformer").glob("*.safetensors"))]
    before = {name: value.clone() for name, value in pipeline.transformer.state_dict().items()}
    for file in files:
        if file.exists():
            found = pipeline.transformer.load_state_dict(load_file(file), strict=False)
            assert not found.unexpected_keys, found.unexpected_keys
    with concepts.lora_on(pipeline, folder / LORA) if (folder / LORA).exists() else nullcontext():
        yield
    pipeline.transformer.load_state_dict(before)


def import_pictures(workspace: Workspace, concept: str) -> None:
    """Make the datasets PICTURES, of the concept, and KNOWN_AND_PICTURES."""
    with tempfile.TemporaryDirectory() as folder:
        tiny_world.write_demo_clips(Path(folder), concept)
        pictures = []
        for clip in sorted(Path(folder).rglob("*.mp4")):
            picture = clip.with_name(f"{clip.stem}-picture.png")
            Image.fromarray(read_frames(clip, [tiny_world.FRAMES // 2])[0]).save(picture)
            shutil.copyfile(clip.with_suffix(".txt"), picture.with_suffix(".txt"))
            pictures.append(picture)
        own = [picture for picture in pictures if picture.parent.name == concept]
        Dataset.ensure(workspace, PICTURES).import_files(own)
        Dataset.ensure(workspace, KNOWN_AND_PICTURES).import_files([Path(folder) / demo.KNOWN])


def changed(settings: TrainSettings, recipe: Mapping[str, Any], steps: int) -> TrainSettings:
    """Return the demo's settings with a recipe's, four checkpoints, and nothing that costs extra time.

    steps: for the demo's batch size; smaller batches get more
    """
    steps = steps * CLIPS // recipe.get("batch_size", CLIPS)
    steps -= steps % 4
    quick = {"preview_every": 0, "evaluate_every": 0, "save_every": steps // 4, "keep_checkpoints": 9, "device": "cpu"}
    return settings.changed(steps=steps, **quick, **recipe)


def main() -> None:
    parser = arguments(__doc__.splitlines()[0], concepts=["ring"], recipes=["demo"], seeds=[1], steps=4, prompts=1)
    names = f"names, 'tuning' ({', '.join(TUNING)}) or 'aside' ({', '.join(ASIDE)})"
    parser.add_argument("--concepts", nargs="+", default=["tuning"], help=names)
    parser.add_argument("--recipes", nargs="+", choices=RECIPES, default=list(RECIPES))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--steps", type=int, default=1400)
    parser.add_argument("--prompts", type=int, help="limit for each kind")
    parser.add_argument("--sheets", type=Path, help="also write contact sheets of the last samples into this folder")
    options = parser.parse_args()
    rows = measured(options)
    report([{name: row.get(name, "") for name in rows[0]} for row in rows], options.json)


def measured(options: argparse.Namespace) -> list[Row]:
    """Return all rows: those in the file, and newly measured ones."""
    rows: list[Row] = json.loads(options.json.read_text())["rows"] if options.json and options.json.exists() else []
    groups = {"tuning": TUNING, "aside": ASIDE}
    _, model = find_model(default_model())
    for concept in [one for name in options.concepts for one in groups.get(name, (name,))]:
        wanted = [(recipe, seed) for recipe in options.recipes for seed in options.seeds]
        known = {(row["recipe"], row["seed"]) for row in rows if row["concept"] == concept}
        if not set(wanted) - known:
            continue
        with tempfile.TemporaryDirectory() as folder:
            bench = Bench(concept, Workspace.open(Path(folder)), model, options.prompts)
            if any("more_datasets" in RECIPES[recipe] for recipe in options.recipes):
                import_pictures(bench.workspace, concept)
            if not known:
                none = {"concept": concept, "recipe": "", "seed": "", "step": 0, "seconds": 0.0}
                rows.append(none | bench.judged(bench.base))
            for recipe, seed in wanted:
                if (recipe, seed) in known:
                    continue
                found, samples = bench.measure(recipe, seed, options.steps)
                rows += [{"concept": concept, "recipe": recipe, "seed": seed, **row} for row in found]
                print(json.dumps(rows[-1]), flush=True)
                if options.json:
                    options.json.write_text(json.dumps({**machine(), "rows": rows}, indent=2) + "\n")
                if options.sheets:
                    options.sheets.mkdir(parents=True, exist_ok=True)
                    sheet = options.sheets / f"{concept}-{recipe}-{seed}.png"
                    concepts.contact_sheet(bench.base[0], samples[0], sheet)
    return rows


if __name__ == "__main__":
    main()
