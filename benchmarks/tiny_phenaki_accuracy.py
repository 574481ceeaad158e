"""Measure how often the built-in Phenaki generates what a prompt says, with and without its critic.

python benchmarks/tiny_phenaki_accuracy.py [--model assets/tiny-phenaki] [--json FILE]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import torch
from common import arguments, report

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "assets"))

from tiny_clips import prompt_accuracy  # noqa: E402

from workbench.families.phenaki import FAMILY  # noqa: E402


def measure(options: argparse.Namespace) -> list[dict[str, object]]:
    """Return all rows, each a case and its value."""
    device = torch.device("cpu")
    parts = (FAMILY.load_vae, FAMILY.load_transformer, FAMILY.load_text_encoder)
    tokenizer, transformer, text_encoder = (load(options.model, device, torch.float32) for load in parts)
    rows: list[dict[str, object]] = []
    for critic in dict.fromkeys((transformer.config.critic, "none")):
        transformer.register_to_config(critic=critic)
        found = prompt_accuracy(tokenizer, transformer, text_encoder, options.held_out, options.seed)
        rows += [
            {"case": f"{options.held_out} held-out prompts, critic {critic}, {part}", "ours": value}
            for part, value in found.items()
        ]
    return rows


def main() -> None:
    """Print the table and write the JSON file."""
    parser = arguments(__doc__.splitlines()[0], held_out=1, threads=1)
    parser.add_argument("--model", type=Path, default=ROOT / "assets" / "tiny-phenaki")
    parser.add_argument("--held-out", type=int, default=64, help="prompts")
    parser.add_argument("--seed", type=int, default=0, help="noise i has seed SEED + i")
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    report(measure(options), options.json, threads=options.threads)


if __name__ == "__main__":
    main()
