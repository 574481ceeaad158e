"""A job that turns previews kept as latents into videos.

python -m workbench.trainer.latent_decoding runs/NAME/.decode
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

from workbench.families import find_model
from workbench.jobs import Job
from workbench.jobs.devices import Device, pick_device
from workbench.runs.from_scratch import base_model
from workbench.runs.settings import TrainSettings
from workbench.sampler.samples import write_sample
from workbench.workspace import read_object, step_folders


def decode_latents(run: Path, device: Device, report: Callable[[int, int], None] = lambda done, total: None) -> int:
    """Decode the previews that a run kept as latents, and return how many; the latents stay.

    Raises ConfigError, ModelUnavailable.
    """
    import torch
    from safetensors.torch import load_file

    from workbench.trainer.previewer import LATENTS, frames_of, load_vae

    records = [path for folder in step_folders(run / "previews").values() for path in sorted(folder.glob("*.json"))]
    waiting = [(path, record) for path in records if (record := read_object(path)).get("kind") == "latents"]
    if not waiting:
        return 0
    family, model = find_model(base_model(run, waiting[0][1]["model"]))
    folder = family.fetch(model)
    dtype = torch.float32 if device.kind == "cpu" else getattr(torch, family.auto_dtype(family.stored_dtype(folder)))
    vae = load_vae(family, folder, dtype, waiting[0][1]["height"]).to(torch.device(device.torch_name))
    for done, (path, record) in enumerate(waiting):
        report(done, len(waiting))
        latents = load_file(path.with_suffix(".safetensors"))[LATENTS].to(vae.device)
        frames = frames_of(family.decode(vae, latents), record["frames"])
        made = {**record, "kind": "sample"}
        write_sample(path.with_suffix(".mp4"), frames.numpy(), record["fps"], made, run.parent.parent)
    report(len(waiting), len(waiting))
    return len(waiting)


def main() -> int:
    folder = Path(sys.argv[1]).resolve()
    with Job(folder) as job:
        job.beat("loading torch")
        run = folder.parent
        device = pick_device(TrainSettings.load(run / "config.json").device)
        count = decode_latents(run, device, lambda done, total: job.beat("decoding previews", done, total))
        job.outcome = {"decoded": count}
    return int(job.exit_code)


if __name__ == "__main__":
    sys.exit(main())
