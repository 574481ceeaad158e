"""Time the built-in video autoencoders on this CPU: `python benchmarks/vae_on_cpu.py`.

"ours" is the CPU time of a clip with oneDNN's convolutions (workbench/memory/cpu_convolutions.py), "reference" with
the convolutions that PyTorch chooses; both run in turn. "difference" is the largest one between the results, of pixels
or of normalized latents.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from common import arguments, report

from workbench.families import find_model
from workbench.memory import cpu_convolutions

MODELS = ("tiny-cogvideox", "tiny-wan")


def main() -> None:
    parser = arguments((__doc__ or "").splitlines()[0], models=["tiny-cogvideox"], rounds=1)
    parser.add_argument("--models", nargs="+", default=list(MODELS))
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    rows: list[dict[str, Any]] = []
    for name in options.models:
        family, model = find_model(name)
        folder = Path(model.source)
        vae = family.load_vae(folder, torch.device("cpu"), torch.float32)
        draw = torch.Generator().manual_seed(0)
        clip = torch.rand(1, 3, model.frames, model.height, model.width, generator=draw) * 2 - 1
        latents = torch.randn(1, *family.latents_shape(folder, *clip.shape[2:]), generator=draw)
        work = {
            "encode": lambda: family.encode_video(vae, clip)["mean"],  # noqa: B023
            "decode": lambda: family.decode(vae, latents),  # noqa: B023
        }
        for title, run in work.items():
            seconds: dict[str, list[float]] = {"ours": [], "reference": []}
            found = {}
            for number in range(-1, options.rounds):  # the first round warms both up
                for which in seconds:
                    plain = contextlib.nullcontext()
                    as_is = mock.patch.object(cpu_convolutions, "faster_convolutions", return_value=plain)
                    with as_is if which == "reference" else plain:
                        began = time.process_time()
                        found[which] = run()
                        if number >= 0:
                            seconds[which].append(time.process_time() - began)
            ours, reference = (statistics.median(values) for values in seconds.values())
            difference = float((found["ours"] - found["reference"]).abs().max())
            row = {"case": f"{name}, {title}", "ours": ours, "reference": reference, "ratio": ours / reference}
            rows.append(row | {"difference": difference})
    report(rows, options.json)


if __name__ == "__main__":
    main()
