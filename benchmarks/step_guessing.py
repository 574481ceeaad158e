"""How near guessed steps come to computed ones, by how far a guess goes: `python benchmarks/step_guessing.py`.

Draws the demo's prompts with the built-in model, with every step computed and with steps left out as in fast mode, and
gives the decibels between the two videos (least and mean) beside the part of the steps that was computed. careful 0
repeats the clean latents computed last, 1 goes on as they changed; families/cogvideox/sampling.py takes the best.
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
from workbench.families.cogvideox import sampling
from workbench.jobs.devices import pick_device
from workbench.sampler.generate import Sampler
from workbench.sampler.settings import SampleSettings
from workbench.workspace import Workspace

CAREFUL = (0.0, 0.25, 0.5, 0.75, 1.0)


def drawn(sampler: Sampler, workspace: Workspace, settings: SampleSettings) -> tuple[np.ndarray, float]:
    """The frames, and the part of the steps that was computed."""
    with mock.patch.object(sampling, "call", wraps=sampling.call) as call:
        made = sampler.generate(workspace, settings)
    return made.frames, call.call_count / made.record["steps"]


def main() -> None:
    parser = arguments((__doc__ or "").splitlines()[0], prompts=1, schedulers=["DPM"], careful=[0.5])
    parser.add_argument("--prompts", type=int, default=4)
    parser.add_argument("--schedulers", nargs="+", default=["DDIM", "DPM"])
    parser.add_argument("--careful", nargs="+", type=float, default=list(CAREFUL))
    options = parser.parse_args()
    sampler = Sampler("tiny-cogvideox", pick_device("cpu"), lambda _: None)
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace.open(Path(folder) / "workspace")
        for scheduler in options.schedulers:
            asked = [SampleSettings(device="cpu", seed=7, scheduler=scheduler).changed(prompt=prompt)
                     for prompt in demo.prompts()[: options.prompts]]  # fmt: skip
            whole = [drawn(sampler, workspace, settings)[0] for settings in asked]
            for careful in options.careful:
                with mock.patch.object(sampling, "CAREFUL", careful):
                    fast = [drawn(sampler, workspace, settings.changed(speed="fast")) for settings in asked]
                alike = [decibels(frames, exact) for (frames, _), exact in zip(fast, whole, strict=True)]
                rows.append({"scheduler": scheduler, "careful": careful, "computed": fast[0][1], "least": min(alike),
                             "mean": statistics.mean(alike)})  # fmt: skip
    report(rows, options.json)


if __name__ == "__main__":
    main()
