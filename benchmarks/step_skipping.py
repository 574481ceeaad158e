"""Compare videos with skipped steps and exact ones, by extrapolation: `python benchmarks/step_skipping.py`.

It generates 16 prompts with the built-in models, with every step computed and with steps skipped as in fast mode, and
reports the decibels between the two videos (lowest and mean), the share of computed steps, and the median share of the
CPU time for denoising, without the prompt and the VAE's decoder. extrapolation 0 repeats the last clean latents, 1
continues linearly; families/denoising.py uses a value that suits all.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from common import arguments, report
from sampling import decibels, prompts

from workbench.families import denoising
from workbench.jobs.devices import pick_device
from workbench.sampler.generate import Sampler
from workbench.sampler.settings import SampleSettings
from workbench.workspace import Workspace

EXTRAPOLATIONS = (0.0, 0.25, 0.5, 0.75, 1.0)
CASES = {"DDIM": "tiny-cogvideox", "DPM": "tiny-cogvideox", "UniPC": "tiny-wan"}  # scheduler -> model


def generated(sampler: Sampler, workspace: Workspace, settings: SampleSettings) -> tuple[np.ndarray, float, float]:
    """Return the frames, the share of computed steps, and the CPU seconds of denoising."""
    family = sampler.family
    sampler.denoise(workspace, settings.changed(steps=1))  # encodes the prompt, which is kept
    began = time.process_time()
    with mock.patch.object(type(family), "call", wraps=family.call) as call:
        denoised = sampler.denoise(workspace, settings)
    seconds = time.process_time() - began
    return sampler.decode(denoised).frames, call.call_count / denoised.record["steps"], seconds


def main() -> None:
    parser = arguments((__doc__ or "").splitlines()[0], prompts=1, schedulers=["DPM"], extrapolation=[0.5])
    parser.add_argument("--prompts", type=int, default=16)
    parser.add_argument("--schedulers", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--extrapolation", nargs="+", type=float, default=list(EXTRAPOLATIONS))
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace.open(Path(folder) / "workspace")
        for scheduler in options.schedulers:
            model = CASES[scheduler]
            sampler = Sampler(model, pick_device("cpu"), lambda _: None)
            requests = [
                SampleSettings(model=model, device="cpu", seed=7, scheduler=scheduler).changed(prompt=prompt)
                for prompt in prompts()[: options.prompts]
            ]
            generated(sampler, workspace, requests[0])  # the first call of a process takes longer
            whole = [generated(sampler, workspace, settings) for settings in requests]
            for extrapolation in options.extrapolation:
                with mock.patch.object(denoising, "EXTRAPOLATION", extrapolation):
                    fast = [generated(sampler, workspace, settings.changed(speed="fast")) for settings in requests]
                pairs = list(zip(fast, whole, strict=True))
                alike = [decibels(made[0], exact[0]) for made, exact in pairs]
                rows.append(
                    {
                        "scheduler": scheduler,
                        "extrapolation": extrapolation,
                        "computed": fast[0][1],
                        "time": statistics.median(made[2] / exact[2] for made, exact in pairs),
                        "least": min(alike),
                        "mean": statistics.mean(alike),
                    }
                )
    report(rows, options.json)


if __name__ == "__main__":
    main()
