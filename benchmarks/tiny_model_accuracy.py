"""How good is the embedded model? Its VAE, its prompts not seen in training, and its speed.

python benchmarks/tiny_model_accuracy.py [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from importlib.metadata import version
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "assets"))

import tiny_check  # noqa: E402
import tiny_models  # noqa: E402
import tiny_world  # noqa: E402
from train_tiny_model import check_vae  # noqa: E402


def seconds_per_sample(pipeline: tiny_models.CogVideoXPipeline, steps: int, guidance: float, rounds: int = 5) -> float:
    """Median seconds for one clip through the stock pipeline, decoding included."""
    caption = [tiny_world.held_out()[0].caption()]
    tiny_models.sample(pipeline, caption, steps, guidance)
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        tiny_models.sample(pipeline, caption, steps, guidance)
        times.append(time.perf_counter() - start)
    return statistics.median(times)


def measure(options: argparse.Namespace) -> list[dict[str, object]]:
    """All rows: a case and its value."""
    pipeline = tiny_models.load(options.model)
    size = sum(file.stat().st_size for file in options.model.rglob("*") if file.is_file())
    rows: list[dict[str, object]] = [{"case": "size, MB", "ours": size / 1e6}]
    for key, value in check_vae(pipeline.vae, 64).items():
        rows.append({"case": f"VAE reconstruction, {key}", "ours": value})
    specs = tiny_world.held_out()
    for guidance in options.guidance:
        start = time.perf_counter()
        clips = tiny_models.sample(pipeline, [spec.caption() for spec in specs], options.steps, guidance, options.seed)
        taken = time.perf_counter() - start
        for part, share in tiny_check.accuracy(clips, specs).items():
            rows.append({"case": f"{len(specs)} held-out prompts, guidance {guidance:g}, {part}", "ours": share})
        rows.append({"case": "seconds per sample, in batches of 16", "ours": taken / len(specs)})
    seconds = seconds_per_sample(pipeline, options.steps, options.guidance[0])
    rows.append({"case": f"seconds per sample, one alone, {options.steps} steps", "ours": seconds})
    return rows


def main() -> None:
    """Print the table and write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, default=ROOT / "assets" / "tiny-cogvideox")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--steps", type=int, default=25)
    parser.add_argument("--guidance", type=float, nargs="+", default=[3.0])
    parser.add_argument("--seed", type=int, default=0, help="noise i has seed SEED + i")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows = measure(options)
    for row in rows:
        print(f"{row['case']:<60} {row['ours']:.3f}")
    if options.json:
        machine = f"{platform.processor() or platform.machine()}, {options.threads} threads"
        versions = {name: version(name) for name in ("torch", "diffusers", "transformers")}
        options.json.write_text(json.dumps({"machine": machine, "versions": versions, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
