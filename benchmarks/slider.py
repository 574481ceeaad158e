"""Does a slider move what its prompts name, evenly, at equal seeds? It is trained on prompts alone, without a clip.

    python benchmarks/slider.py                     three seeds, on the built-in model
    python benchmarks/slider.py --guidance 3        another strength of the direction

The slider's prompts name usual and small shapes. It is then tried on prompts that it was not trained on, at strengths
from -2 to 2 from the same noise, through the stock pipeline. size: share of the picture that the shape takes, mean over
prompts;  rising: of neighboring strengths of one prompt, the share that goes up;  right: share of clips with the shape,
color, background and way that the prompt says, by assets/tiny_check.py, at strength 0 that of the base model.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import tempfile
from pathlib import Path
from typing import Any

import concepts
import tiny_check
import tiny_models
import tiny_world
import torch
from common import arguments, report
from PIL import Image

from workbench.families import default_model, find_model
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.workspace import Workspace

STRENGTHS = (-2.0, -1.0, 0.0, 1.0, 2.0)
SHEET_PROMPTS = 8
Row = dict[str, Any]


def settings_for(seed: int, options: argparse.Namespace) -> TrainSettings:
    """A slider from small to usual shapes; the neutral prompts are those of usual ones."""
    specs = tiny_world.balanced_choice(tiny_world.training_specs(), options.pairs, seed=seed)
    usual = tuple(spec.caption() for spec in specs)
    small = tuple(caption.replace("a ", "a small ", 1) for caption in usual)
    return TrainSettings(model=default_model()).changed(
        slider_positive=usual,
        slider_negative=small,
        slider_neutral=usual,
        slider_guidance=options.guidance,
        slider_samples=options.samples,
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


def size(clip: torch.Tensor) -> float:
    """The share of the picture that the shape takes, mean over the frames."""
    return float(tiny_check.foreground(clip)[2].mean())


def measure(workspace: Workspace, seed: int, options: argparse.Namespace) -> tuple[list[Row], torch.Tensor]:
    """Train once; the rows, and the clips [strengths, prompts, 3, F, H, W]."""
    run = Run.create(workspace, settings_for(seed, options), f"slider-{seed}")
    status = concepts.finish(run)
    assert run.lora is not None
    assert status.started_at is not None
    assert status.ended_at is not None
    specs = tiny_world.held_out()[: options.prompts]
    pipeline, prompts, clips = tiny_models.load(Path(find_model(default_model())[1].source)), [], []
    prompts = [spec.caption() for spec in specs]
    with concepts.lora_on(pipeline, run.lora):
        for strength in STRENGTHS:
            pipeline.set_adapters(["lora"], [strength])
            clips.append(tiny_models.sample(pipeline, prompts, seed=1000 * seed))
    sizes = [[size(clip) for clip in of_strength] for of_strength in clips]
    rising = [after > before for pair in itertools.pairwise(sizes) for before, after in zip(*pair, strict=True)]
    rows: list[Row] = [
        {
            "case": f"seed {seed}, strength {strength:g}",
            "size": statistics.mean(of_strength),
            "right": tiny_check.accuracy(found, specs)["all"],
        }
        for strength, of_strength, found in zip(STRENGTHS, sizes, clips, strict=True)
    ]
    means = [row["size"] for row in rows]
    monotone = all(before < after for before, after in itertools.pairwise(means))
    rows.append({"case": f"seed {seed}, rising", "size": statistics.mean(rising), "right": ""})
    rows.append({"case": f"seed {seed}, means rise at every strength", "size": monotone, "right": ""})
    rows.append({"case": f"seed {seed}, whole run, seconds", "size": status.ended_at - status.started_at, "right": ""})
    return rows, torch.stack(clips)


def sheet(clips: torch.Tensor, path: Path) -> None:
    """The middle frame of each sample, a prompt a column, a strength a row, enlarged three times."""
    middle = clips[:, :SHEET_PROMPTS, :, tiny_world.FRAMES // 2]
    pixels = torch.cat([torch.cat(list(row), dim=2) for row in middle], dim=1)
    image = Image.fromarray(((pixels.clamp(-1, 1) + 1) * 127.5).round().byte().permute(1, 2, 0).numpy())
    image.resize((image.width * 3, image.height * 3), Image.Resampling.NEAREST).save(path)


def main() -> None:
    parser = arguments(
        (__doc__ or "").splitlines()[0], seeds=[1], steps=2, prompts=1, pairs=1, samples=1, batch=1, guidance=1.0
    )
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--pairs", type=int, default=8, help="lines of prompts")
    parser.add_argument("--samples", type=int, default=3, help="clips generated for each line")
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--guidance", type=float, default=0.5)
    parser.add_argument("--learning-rate", type=float, default=1e-3)
    parser.add_argument("--prompts", type=int, default=16, help="tried, none of them trained on")
    parser.add_argument("--workspace", type=Path, help="where runs stay, instead of a temporary folder")
    parser.add_argument("--sheets", type=Path, help="also write a sheet of each seed's samples into this folder")
    options = parser.parse_args()
    rows = list[Row]()
    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace.open(options.workspace or Path(folder))
        for seed in options.seeds:
            found, clips = measure(workspace, seed, options)
            rows += found
            if options.sheets:
                options.sheets.mkdir(parents=True, exist_ok=True)
                sheet(clips, options.sheets / f"slider-{seed}.png")
    report(rows, options.json, guidance=options.guidance, steps=options.steps)


if __name__ == "__main__":
    main()
