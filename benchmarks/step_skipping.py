"""Compare videos with skipped steps and exact ones, by extrapolation: `python benchmarks/step_skipping.py`.

It generates the demo's prompts with the built-in model, with every step computed and with steps skipped as in fast
mode, and reports the decibels between the two videos (lowest and mean) and the share of computed steps. extrapolation 0
repeats the last clean latents, 1 continues linearly; families/denoising.py uses the best.
"""

from __future__ import annotations

import statistics
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from common import arguments, report
from sampling import decibels

from workbench import demo
from workbench.families import denoising
from workbench.families.cogvideox.family import FAMILY
from workbench.jobs.devices import pick_device
from workbench.sampler.generate import Sampler
from workbench.sampler.settings import SampleSettings
from workbench.workspace import Workspace

EXTRAPOLATIONS = (0.0, 0.25, 0.5, 0.75, 1.0)


def generated(sampler: Sampler, workspace: Workspace, settings: SampleSettings) -> tuple[np.ndarray, float]:
    """Return the frames, and the share of computed steps."""
    with mock.patch.object(type(FAMILY), "call", wraps=FAMILY.call) as call:
        made = sampler.generate(workspace, settings)
    return made.frames, call.call_count / made.record["steps"]


def main() -> None:
    parser = arguments((__doc__ or "").splitlines()[0], prompts=1, schedulers=["DPM"], extrapolation=[0.5])
    parser.add_argument("--prompts", type=int, default=4)
    parser.add_argument("--schedulers", nargs="+", default=["DDIM", "DPM"])
    parser.add_argument("--extrapolation", nargs="+", type=float, default=list(EXTRAPOLATIONS))
    options = parser.parse_args()
    sampler = Sampler("tiny-cogvideox", pick_device("cpu"), lambda _: None)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace.open(Path(folder) / "workspace")
        for scheduler in options.schedulers:
            requests = [
                SampleSettings(device="cpu", seed=7, scheduler=scheduler).changed(prompt=prompt)
                for prompt in demo.prompts()[: options.prompts]
            ]
            whole = [generated(sampler, workspace, settings)[0] for settings in requests]
            for extrapolation in options.extrapolation:
                with mock.patch.object(denoising, "EXTRAPOLATION", extrapolation):
                    fast = [generated(sampler, workspace, settings.changed(speed="fast")) for settings in requests]
                alike = [decibels(frames, exact) for (frames, _), exact in zip(fast, whole, strict=True)]
                rows.append(
                    {
                        "scheduler": scheduler,
                        "extrapolation": extrapolation,
                        "computed": fast[0][1],
                        "least": min(alike),
                        "mean": statistics.mean(alike),
                    }
                )
    report(rows, options.json)


if __name__ == "__main__":
    main()
