"""Measure masked loss on the built-in model: is only the masked part learned, and as well as without masks?

    python benchmarks/masked_loss.py --json benchmarks/results/masked_loss_cpu.json --sheet docs/images/masked_loss.webp
    python benchmarks/masked_loss.py --write-clips      draw the clips in masked_clips/ again

Every training clip has two halves with a moving border: the upper one has a pink shape, which the caption names, the
lower one a cyan square, which no caption names. The model has never seen pink and cyan. The clip's mask is white over
the upper half and moves with it. The recipes differ only in the masked loss.

Samples of untrained prompts are judged by their colors: "concept" is the share of the concept's prompts that show pink,
"distractor" the share that show cyan, "known" the share of known prompts that are fully right, "known with distractor"
the share of known prompts that show cyan. The first row is the base model. Results are saved after each run, and runs
in the file are not repeated.
"""

from __future__ import annotations

import json
import random
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import concepts
import tiny_models
import tiny_world
import torch
from common import arguments, machine, report
from recipes import SAMPLING_STEPS

from workbench import demo
from workbench.clips import media
from workbench.dataset_builder import Dataset
from workbench.families import default_model, find_model
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.workspace import Workspace

CONCEPT, DISTRACTOR = "pink", "cyan"
CLIPS, PROMPTS = 24, 32
KEPT = Path(__file__).parent / "masked_clips"  # so that the numbers can be repeated, whatever encodes the next ones
RADIUS = (0.16, 0.19)  # of the side: so that a shape fits into a half
DRIFT = 0.05  # of the side: how far the halves move up or down, from the middle of the clip
NEAR, LEAST = 0.4, 10  # of a color, over three channels in [-1, 1]; pixels of it in a frame that shows it
RECIPES: dict[str, dict[str, Any]] = {
    "no mask": {},
    "mask": {"loss_mask": "inside"},
    "mask, the rest held": {"loss_mask": "inside", "outside_weight": 1.0},
}
Row = dict[str, Any]


# ---- clips


def specs() -> tuple[list[tiny_world.Spec], list[tiny_world.Spec]]:
    """Return the specifications of clips and samples, which are disjoint."""
    sideways = [one for one in tiny_world.combinations(tiny_world.SHAPES) if one.motion in ("left", "right")]
    pink = sorted({replace(one, colour=CONCEPT) for one in sideways})
    chosen = tiny_world.balanced_choice(pink, CLIPS + PROMPTS, seed=7)
    return chosen[:CLIPS], chosen[CLIPS:]


def drawn(spec: tiny_world.Spec, rng: random.Random, size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a clip [3, F, H, W] in [-1, 1] and its mask [F, H, W], 0 or 1."""
    frames = tiny_world.FRAMES
    drift = torch.linspace(-1, 1, frames) * rng.choice((-DRIFT, DRIFT))
    x, _ = tiny_world.path(spec.motion, rng, frames)
    place = rng.uniform(0.24, 0.26), rng.uniform(0.74, 0.76)
    clip = tiny_world.colour_value(spec.background, rng).view(3, 1, 1, 1).expand(3, frames, size, size)
    radius = rng.uniform(*RADIUS)
    for shape, colour, centre_x, y in (
        (spec.shape, CONCEPT, x, place[0]),
        ("square", DISTRACTOR, 1 - x, place[1]),
    ):
        matte = tiny_world.shape_mask(shape, centre_x, drift + y, radius, size)
        clip = tiny_world.colour_value(colour, rng).view(3, 1, 1, 1) * matte + clip * (1 - matte)
    _, down = tiny_world.pixel_grid(size)
    return clip, (down < 0.5 + drift.view(-1, 1, 1)).float().expand(frames, size, size)


def write_clips(folder: Path) -> None:
    """Write the concept's clips, captions and masks, which are kept with this script."""
    rng = random.Random("masked")
    folder.mkdir(parents=True, exist_ok=True)
    for number, spec in enumerate(specs()[0]):
        clip, mask = drawn(spec, rng, tiny_world.DEMO_SIZE)
        tiny_world.write_clip(clip, folder / f"{number:02d}.mp4")
        pixels = (mask * 255).byte()[..., None].expand(-1, -1, -1, 3).numpy()
        media.encode(pixels, folder / f"{number:02d}.mask.mp4", tiny_world.FPS, crf=None)
        (folder / f"{number:02d}.txt").write_text(spec.caption() + "\n", encoding="utf-8")


def make_datasets(workspace: Workspace) -> None:
    """Import the concept's clips with masks, and known clips, from the files behind the published numbers."""
    Dataset.ensure(workspace, demo.KNOWN).import_files([concepts.ROOT / "assets/demo_clips" / demo.KNOWN])
    dataset = Dataset.ensure(workspace, "halves")
    dataset.import_files([KEPT])
    assert len(dataset.clips) == CLIPS
    assert all(clip.mask for clip in dataset.clips)


# ---- samples


def has(clip: torch.Tensor, colour: str) -> bool:
    """Return whether at least half of the frames show something of a color."""
    value = torch.tensor(tiny_world.NEW_COLOURS[colour]).view(3, 1, 1, 1) / 127.5 - 1
    near = (clip - value).norm(dim=0) < NEAR
    return int((near.flatten(1).sum(1) >= LEAST).sum()) * 2 >= len(near)


class Bench:
    """The datasets, the prompts, and the base model's results."""

    def __init__(self, workspace: Workspace, most: int | None) -> None:
        _, model = find_model(default_model())
        self.workspace, self.model = workspace, replace(model, steps=SAMPLING_STEPS)
        self.prompts = (
            concepts.Prompts(specs()[1][:most], 1),
            concepts.Prompts(tiny_world.held_out()[: most or PROMPTS], 1000),
        )
        make_datasets(workspace)
        self.pipeline = tiny_models.load(Path(model.source))
        self.base = self.generate()

    def generate(self) -> list[torch.Tensor]:
        return [part.generate(self.pipeline, self.model) for part in self.prompts]

    def judged(self, samples: list[torch.Tensor]) -> Row:
        (own, known), (own_prompts, known_prompts) = samples, self.prompts
        return {
            "concept": concepts.share(lambda clip, _: has(clip, CONCEPT), own, own_prompts.specs),
            "distractor": concepts.share(lambda clip, _: has(clip, DISTRACTOR), own, own_prompts.specs),
            "known": concepts.share(concepts.is_right, known, known_prompts.specs),
            "known with distractor": concepts.share(lambda clip, _: has(clip, DISTRACTOR), known, known_prompts.specs),
        }

    def measure(self, recipe: str, seed: int, steps: int) -> tuple[Row, list[torch.Tensor]]:
        """Train a real run and judge its samples."""
        settings = demo.teach("halves", demo.KNOWN).changed(
            steps=steps, seed=seed, preview_every=0, evaluate_every=steps, save_every=steps, device="cpu"
        )
        settings = TrainSettings(**settings.model_dump() | RECIPES[recipe])
        run = Run.create(self.workspace, settings, f"{recipe.replace(', ', '-').replace(' ', '-')}-{seed}")
        concepts.finish(run)
        assert run.lora is not None
        with concepts.lora_on(self.pipeline, run.lora):
            samples = self.generate()
        lines = run.metrics
        measured = [line for line in lines if "held_out_loss" in line]
        row = {"seconds a step": sum(line["seconds"] for line in lines if "loss" in line) / steps}
        row |= {"held-out": measured[-1]["held_out_loss"], "outside": measured[-1].get("held_out_outside", "")}
        return self.judged(samples) | row, samples


def training_rows(count: int) -> list[list[torch.Tensor]]:
    """Return training clips with their masks below."""
    rng = random.Random("masked")
    pairs = [drawn(spec, rng, tiny_world.SIZE) for spec in specs()[0][:count]]
    return [[clip for clip, _ in pairs], [mask[None].expand(3, -1, -1, -1) * 2 - 1 for _, mask in pairs]]


def main() -> None:
    parser = arguments(__doc__.splitlines()[0], seeds=[1], steps=2, prompts=1, recipes=["mask, the rest held"])
    parser.add_argument("--recipes", nargs="+", choices=RECIPES, default=list(RECIPES))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--prompts", type=int, help="limit for each kind")
    parser.add_argument("--sheet", type=Path, help="also write a sheet of the first seed's samples to this file")
    parser.add_argument("--write-clips", action="store_true", help="only draw the clips and masks again")
    options = parser.parse_args()
    if options.write_clips:
        write_clips(KEPT)
        return
    rows: list[Row] = json.loads(options.json.read_text())["rows"] if options.json and options.json.exists() else []
    known = {(row["recipe"], row["seed"]) for row in rows}
    with tempfile.TemporaryDirectory() as folder:
        bench = Bench(Workspace.open(Path(folder)), options.prompts)
        if not rows:
            rows.append({"recipe": "base model", "seed": "", **bench.judged(bench.base)})
        shown = {"base model": bench.base[0]}
        for seed in options.seeds:
            for recipe in options.recipes:
                if (recipe, seed) in known:
                    continue
                row, samples = bench.measure(recipe, seed, options.steps)
                rows.append({"recipe": recipe, "seed": seed, **row})
                print(json.dumps(rows[-1]), flush=True)
                if seed == options.seeds[0]:
                    shown[recipe] = samples[0]
                if options.json:
                    options.json.write_text(json.dumps({**machine(), "rows": rows}, indent=2) + "\n")
            if options.sheet and len(shown) > 1 and seed == options.seeds[0]:
                count = min(6, len(bench.base[0]))
                concepts.filmstrips(
                    [*training_rows(count), *(list(clips[:count]) for clips in shown.values())], options.sheet
                )
    names = list(rows[-1])
    report([{name: row.get(name, "") for name in names} for row in rows], options.json)


if __name__ == "__main__":
    main()
