"""Measure the built-in models: their VAE, untrained prompts and first frames, and their speed.

python benchmarks/tiny_model_accuracy.py [--model assets/tiny-cogvideox-i2v] [--json FILE]
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch
from common import arguments, report
from diffusers import CogVideoXImageToVideoPipeline

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "assets"))

import tiny_models  # noqa: E402
import tiny_world  # noqa: E402
from tiny_accuracy import image_accuracy, prompt_accuracy, vae_accuracy  # noqa: E402


def seconds_per_sample(pipeline: tiny_models.Pipeline, count: int, drawing: dict[str, Any], rounds: int = 5) -> float:
    """Return the median seconds per clip of `count` clips sampled together, including decoding."""
    captions = [spec.caption() for spec in tiny_world.held_out()[:count]]
    images = torch.zeros(count, 3, tiny_world.SIZE, tiny_world.SIZE) if takes_images(pipeline) else None
    times = []
    for _ in range(rounds + 1):
        start = time.perf_counter()
        tiny_models.sample(pipeline, captions, images=images, **drawing)
        times.append((time.perf_counter() - start) / count)
    return statistics.median(times[1:])


def takes_images(pipeline: tiny_models.Pipeline) -> bool:
    return isinstance(pipeline, CogVideoXImageToVideoPipeline)


def measure(options: argparse.Namespace) -> list[dict[str, object]]:
    """Return all rows, each a case and its value."""
    pipeline = tiny_models.load(options.model)
    size = sum(file.stat().st_size for file in options.model.rglob("*") if file.is_file())
    rows: list[dict[str, object]] = [{"case": "size, MB", "ours": size / 1e6}]
    most = options.held_out
    rows += [
        {"case": f"VAE reconstruction, {key}", "ours": value} for key, value in vae_accuracy(pipeline.vae, most).items()
    ]
    own = tiny_models.IMAGE_GUIDANCE if takes_images(pipeline) else tiny_models.GUIDANCE
    for guidance in options.guidance or [own]:
        drawing = {"steps": options.steps, "guidance": guidance, "seed": options.seed}
        if takes_images(pipeline):
            kinds = {
                "first frames": image_accuracy(pipeline, most, **drawing),
                "first frames without captions": image_accuracy(pipeline, most, captioned=False, **drawing),
            }
        else:
            kinds = {
                "prompts": prompt_accuracy(pipeline, most, **drawing),
                "prompts for a small shape": prompt_accuracy(pipeline, most, small=True, **drawing),
            }
        for kind, found in kinds.items():
            for part, value in found.items():
                rows.append({"case": f"{most} held-out {kind}, guidance {guidance:g}, {part}", "ours": value})
    for count in options.together:
        seconds = seconds_per_sample(pipeline, count, drawing)
        rows.append({"case": f"seconds per sample, {count} at once, {options.steps} steps", "ours": seconds})
    return rows


def main() -> None:
    """Print the table and write the JSON file."""
    parser = arguments(__doc__.splitlines()[0], steps=1, held_out=2, together=[2], threads=1)
    parser.add_argument("--model", type=Path, default=ROOT / "assets" / "tiny-cogvideox")
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--held-out", type=int, default=64, help="prompts or first frames")
    parser.add_argument("--together", type=int, nargs="+", default=[16, 1], help="samples per batch")
    parser.add_argument("--guidance", type=float, nargs="+", help="the model's own")
    parser.add_argument("--seed", type=int, default=0, help="noise i has seed SEED + i")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = measure(options)
    report(rows, options.json, threads=options.threads)


if __name__ == "__main__":
    main()
