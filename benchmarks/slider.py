"""Do sliders change what they were trained for, evenly, at equal seeds, and keep the rest?

    python benchmarks/slider.py                     both kinds, three seeds, on the built-in model
    python benchmarks/slider.py --kinds size --guidance 0.5 --reach 1

size is learned from prompts for usual and small shapes, without clips. speed is a word unknown to the model, learned
from pairs of clips that are drawn from the same numbers, faster and slower. Both are tried on untrained prompts, at
strengths from -2 to 2 from the same noise, with the stock pipeline.

At -2 the size slider aims at the base model's output for the word small, with guidance 0.5 and usual prompts as both
positive and neutral, so there it cannot be better than those rows.

moved: share of the picture that the shape covers (size), or pixels of its path (speed), averaged over prompts;  rising:
share of neighboring strengths of a prompt that increase;  kept: share of clips with the prompt's background, color and
direction, according to assets/tiny_check.py;  right: share whose shape is right, too. The model draws small shapes
badly, and its VAE reconstructs them badly. For comparison, the base model also gets them as words ("small"), and clips
with drawn shapes are only encoded and decoded ("drawn at RADIUS"): the best that a size slider could reach.
"""

from __future__ import annotations

import argparse
import itertools
import random
import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import concepts
import tiny_check
import tiny_models
import tiny_world
import torch
from common import arguments, report, write
from PIL import Image

from workbench.dataset_builder import Dataset, companions
from workbench.families import default_model, find_model
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.workspace import Workspace

STRENGTHS = (-2.0, -1.0, 0.0, 1.0, 2.0)
SHEET_PROMPTS = 8
FASTER, SLOWER = 1.3, 0.7  # than the known world's shapes
RADII = (0.15, 0.18, 0.2)  # of drawn shapes, of the side; usual ones have 0.2 to 0.245
KEPT = ("background", "colour", "motion")
Row = dict[str, Any]


def settings_for(kind: str, workspace: Workspace, seed: int, options: argparse.Namespace) -> TrainSettings:
    """Return settings of a slider from small to usual shapes, with usual prompts as neutral, or from slow to fast."""
    specs = tiny_world.balanced_choice(tiny_world.training_specs(), options.pairs, seed=seed)
    usual = tuple(spec.caption() for spec in specs)
    what: dict[str, Any]
    if kind == "speed":
        what = {"slider_from": "pairs", "dataset": pairs_of_speeds(workspace, specs, seed), "held_out": 0}
    else:
        what = {
            "slider_positive": usual,
            "slider_negative": tuple(caption.replace("a ", "a small ", 1) for caption in usual),
            "slider_neutral": usual,
            "slider_guidance": options.guidance,
            "slider_reach": options.reach,
            "slider_samples": options.samples,
        }
    return TrainSettings(model=default_model()).changed(
        **what,
        steps=options.steps,
        batch_size=options.batch,
        learning_rate=options.learning_rate,
        rank=8,
        alpha=8.0,
        warmup_steps=min(20, options.steps - 1),
        preview_every=0,
        evaluate_every=0,
        save_every=options.steps,
        seed=seed,
        device="cpu",
    )


def pairs_of_speeds(workspace: Workspace, specs: Sequence[tiny_world.Spec], seed: int) -> str:
    """Make a dataset of fast clips, each with its slow one as reference, and return its name."""
    dataset = Dataset.ensure(workspace, f"speeds-{seed}")
    with tempfile.TemporaryDirectory() as folder:
        for name, speed in (("fast", FASTER), ("slow", SLOWER)):
            (Path(folder) / name).mkdir()
            for number, spec in enumerate(specs):
                clip = tiny_world.draw(spec, random.Random(f"{seed} {number}"), tiny_world.DEMO_SIZE, speed=speed)
                tiny_world.write_clip(clip, Path(folder) / name / f"{number:02d}.mp4")
                (Path(folder) / name / f"{number:02d}.txt").write_text(spec.caption() + "\n", encoding="utf-8")
        dataset.import_files([Path(folder) / "fast"])
        for clip in dataset.clips:
            companions.attach(dataset.folder, clip, "reference", Path(folder) / "slow" / Path(clip.source).name)
    return dataset.name


def size(clip: torch.Tensor) -> float:
    """Return the share of the picture that the shape covers, averaged over the frames."""
    return float(tiny_check.foreground(clip)[2].mean())


def travel(clip: torch.Tensor) -> float:
    """Return how far the shape moves, in pixels."""
    seen, x, y = tiny_check.centres(tiny_check.foreground(clip)[2])
    if len(seen) < 2:
        return 0.0
    # Over the frames in which it is seen, as if it were seen in all.
    right, down = tiny_check.way(seen, x, y)
    return max(abs(right), abs(down)) * (clip.shape[1] - 1) / float(seen[-1] - seen[0])


MOVED: dict[str, Callable[[torch.Tensor], float]] = {"size": size, "speed": travel}


def judged(clips: Sequence[torch.Tensor], specs: Sequence[tiny_world.Spec], kind: str) -> Row:
    """Return the columns of a row from clips and their specifications."""
    found = [tiny_check.inspect(clip).matches(spec) for clip, spec in zip(clips, specs, strict=True)]
    return {
        "moved": statistics.mean(map(MOVED[kind], clips)),
        "kept": statistics.mean(all(one[part] for part in KEPT) for one in found),
        "right": statistics.mean(one["all"] for one in found),
    }


def measure(kind: str, workspace: Workspace, seed: int, options: argparse.Namespace) -> tuple[list[Row], torch.Tensor]:
    """Train once and return the rows and the clips [strengths, prompts, 3, F, H, W]."""
    run = Run.create(workspace, settings_for(kind, workspace, seed, options), f"slider-{kind}-{seed}")
    status = concepts.finish(run)
    assert run.lora is not None
    assert status.started_at is not None
    assert status.ended_at is not None
    specs = tiny_world.held_out()[: options.prompts]
    pipeline, clips = tiny_models.load(Path(find_model(default_model())[1].source)), []
    prompts = [spec.caption() for spec in specs]
    with concepts.lora_on(pipeline, run.lora):
        for strength in STRENGTHS:
            pipeline.set_adapters(["lora"], [strength])
            clips.append(tiny_models.sample(pipeline, prompts, seed=1000 * seed))
    moved = [[MOVED[kind](clip) for clip in of_strength] for of_strength in clips]
    rising = [after > before for pair in itertools.pairwise(moved) for before, after in zip(*pair, strict=True)]
    case = f"{kind}, seed {seed}"
    rows: list[Row] = [
        {"case": f"{case}, strength {strength:g}", **judged(of_strength, specs, kind)}
        for strength, of_strength in zip(STRENGTHS, clips, strict=True)
    ]
    monotone = all(before["moved"] < after["moved"] for before, after in itertools.pairwise(rows))
    blank = {"kept": "", "right": ""}
    rows.append({"case": f"{case}, rising", "moved": statistics.mean(rising), **blank})
    rows.append({"case": f"{case}, means rise at every strength", "moved": monotone, **blank})
    rows.append({"case": f"{case}, whole run, seconds", "moved": status.ended_at - status.started_at, **blank})
    return rows, torch.stack(clips)


def at_best(options: argparse.Namespace) -> list[Row]:
    """Measure the base model on the word small, and its VAE on smaller shapes."""
    specs = tiny_world.held_out()[: options.prompts]
    pipeline = tiny_models.load(Path(find_model(default_model())[1].source))
    small = tiny_models.sample(pipeline, [replace(spec, small=True).caption() for spec in specs], seed=1000)
    rows: list[Row] = [{"case": "size, base model, small", **judged(small, specs, "size")}]
    usual = tiny_world.USUAL
    for radius in RADII:
        tiny_world.USUAL = (radius, radius)
        drawn = [tiny_world.draw(spec, random.Random(number)) for number, spec in enumerate(specs)]
        with torch.no_grad():
            kept = [pipeline.vae.decode(pipeline.vae.encode(clip[None]).latent_dist.mode()).sample[0] for clip in drawn]
        rows.append({"case": f"size, drawn at {radius:g}, encoded and decoded", **judged(kept, specs, "size")})
    tiny_world.USUAL = usual
    return rows


def sheet(clips: torch.Tensor, kind: str, path: Path) -> None:
    """Write a frame of each sample, a prompt per column, a strength per row, enlarged three times.

    Sizes show the middle frame, speeds the last one, which shows how far the shape has come.
    """
    shown = clips[:, :SHEET_PROMPTS, :, tiny_world.FRAMES // 2 if kind == "size" else -1]
    pixels = torch.cat([torch.cat(list(row), dim=2) for row in shown], dim=1)
    image = Image.fromarray(((pixels.clamp(-1, 1) + 1) * 127.5).round().byte().permute(1, 2, 0).numpy())
    path.parent.mkdir(parents=True, exist_ok=True)
    image.resize((image.width * 3, image.height * 3), Image.Resampling.NEAREST).save(path)


def main() -> None:
    least = dict.fromkeys(("prompts", "pairs", "samples", "batch"), 1)
    parser = arguments((__doc__ or "").splitlines()[0], seeds=[1], steps=2, **least)
    parser.add_argument("--kinds", nargs="+", choices=MOVED, default=list(MOVED))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--pairs", type=int, default=8, help="prompts, or pairs of clips")
    parser.add_argument("--samples", type=int, default=3, help="clips generated per prompt")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--guidance", type=float, default=0.5)
    parser.add_argument("--reach", type=float, default=2.0, help="slider_reach of the size slider")
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--prompts", type=int, default=16, help="untrained prompts to try")
    parser.add_argument("--workspace", type=Path, help="folder that keeps runs")
    parser.add_argument("--sheets", type=Path, help="also write a sheet of each seed's samples into this folder")
    options = parser.parse_args()
    rows = at_best(options) if "size" in options.kinds else []
    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace.open(options.workspace or Path(folder))
        for kind, seed in itertools.product(options.kinds, options.seeds):
            found, clips = measure(kind, workspace, seed, options)
            rows += found
            if options.json:
                write(rows, options.json, guidance=options.guidance, reach=options.reach, steps=options.steps)
            if options.sheets:
                sheet(clips, kind, options.sheets / f"slider-{kind}-{seed}.png")
    report(rows, options.json, guidance=options.guidance, reach=options.reach, steps=options.steps)


if __name__ == "__main__":
    main()
