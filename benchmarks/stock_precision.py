"""Measure how far bf16 latents are from the stock pipeline's and from fp32: `python benchmarks/stock_precision.py`.

Every random miniature of each family with a diffusers pipeline generates a clip in four steps, here and with the
pipeline, in bf16 and fp32, from the same seed, prompt and picture, with and without guidance. A distance is the root
mean square of the difference relative to the reference latents. "ours, stock" is 0 if both compute the same;
docs/performance.md explains the exceptions.
"""

from __future__ import annotations

import contextlib
import io
import sys
import tempfile
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT)]

from benchmarks.common import arguments, report  # noqa: E402
from tests.families.stock import distance, our_latents, their_latents  # noqa: E402
from workbench.families import families  # noqa: E402


def main() -> None:
    parser = arguments((__doc__ or "").splitlines()[0], families=["wan"], toys=1, scales=[1.0])
    parser.add_argument("--families", nargs="+", default=[one.name for one in families() if one.has_pipeline])
    parser.add_argument("--toys", type=int, default=100, help="most miniatures per family")
    parser.add_argument("--scales", nargs="+", type=float, default=[1.0, 3.0], help="guidance scales; 1 is none")
    options = parser.parse_args()
    rows = []
    for family in (one for one in families() if one.name in options.families):
        for variant in family.toys[: options.toys]:
            for scale in options.scales:
                with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()):
                    model = family.toy(Path(folder) / "toy", variant)
                    exact = our_latents(family, model, torch.float32, scale)
                    of_stock = their_latents(family, model, torch.float32, scale)
                    ours, stock = (make(family, model, torch.bfloat16, scale) for make in (our_latents, their_latents))
                rows.append(
                    {
                        "case": f"{family.name} {variant}",
                        "guidance": scale,
                        "fp32: ours, stock": distance(exact, of_stock),
                        "bf16: ours, stock": distance(ours, stock),
                        "ours, fp32": distance(ours, of_stock),
                        "stock, fp32": distance(stock, of_stock),
                    }
                )
    report(rows, options.json)


if __name__ == "__main__":
    main()
