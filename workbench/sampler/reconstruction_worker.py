"""`python -m workbench.sampler.reconstruction_worker FOLDER`: a clip's frames through a model's VAE and back.

Only the VAE is loaded, in the dtype it is stored in on a GPU, in float32 on the processor. What is decoded is the
mean of the posterior: training samples around it. A GPU too small to decode at once decodes in tiles.
The folder and its files are described in vae_reconstruction. Not covered: where the frames come from (frame_plan).
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench import jobs
from workbench.clips.frame_plan import FramePlan, plan
from workbench.clips.records import clip_file, read_clips
from workbench.errors import DataError
from workbench.families.base import Family
from workbench.jobs import gpu_lock, processes
from workbench.jobs.devices import Device, pick_device
from workbench.sampler.input_files import as_clip
from workbench.sampler.vae_reconstruction import BESIDE, VIDEO, ReconstructionSettings
from workbench.workspace import Workspace

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

    Pixels = NDArray[np.uint8]

WORKING_GB = 14.0  # what the VAE needs at the largest published shape where it does not work in tiles
GPU_TIMEOUT = 30.0  # seconds a warm sampler gets to unload its model
WINDOW = 7  # pixels; of the structural similarity


def main(folder: Path) -> int:
    """Run the job of this folder; the exit code says how it ended."""
    with jobs.Job(folder) as job:
        reconstruct(folder, ReconstructionSettings.load(folder / jobs.CONFIG), job)
    return int(job.exit_code)


def reconstruct(folder: Path, settings: ReconstructionSettings, job: jobs.Job) -> None:
    """Write both videos and the numbers. Raises WorkbenchError, or jobs.Stop when asked to stop."""
    import numpy as np

    from workbench.clips import media

    planned = _planned(settings)
    device = pick_device(settings.device)
    family, model = settings.resolved
    with contextlib.ExitStack() as held:
        if device.is_gpu:
            _report(job, "waiting for the GPU")
            locks = Workspace(folder.parents[2]).locks
            held.enter_context(gpu_lock.hold(locks, device.uuid, "a reconstruction", GPU_TIMEOUT))
        _report(job, "loading the VAE")
        with processes.loading():
            weights = family.fetch(model, lambda message: _report(job, "loading the VAE", message))
            vae = _load(family, weights, device)
        _report(job, "encoding and decoding")
        path = clip_file(Path(settings.dataset), settings.clip)
        given = media.read_frames(path, planned.indices, planned.resize, planned.crop)
        back = through_vae(family, vae, weights, given)
    _report(job, "writing")
    media.encode(back, folder / VIDEO, planned.fps)
    media.encode(np.concatenate([given, back], axis=2), folder / BESIDE, planned.fps)
    job.outcome = {
        **similarity(given, back),
        "model": model.id,
        "revision": model.revision,
        "device": device.name,
        "indices": list(planned.indices),
        "crop": list(planned.crop),
    }


def _report(job: jobs.Job, phase: str, message: str = "") -> None:
    job.beat(phase, message=message)
    job.check_stop("Stopped; nothing was kept.")


def _planned(settings: ReconstructionSettings) -> FramePlan:
    dataset = Path(settings.dataset)
    clip = next((clip for clip in read_clips(dataset) if clip.file_name == settings.clip), None)
    if clip is None:
        raise DataError(f"the clip is not in {dataset.name} any more: choose another one")
    planned = plan(clip, settings.shape)
    if planned.dropped:
        raise DataError(f"{clip.name} is left out: {planned.dropped}")
    return planned


def _load(family: Family, weights: Path, device: Device) -> Any:
    import torch

    dtype = family.auto_dtype(family.stored_dtype(weights)) if device.is_gpu else "float32"
    vae = family.load_vae(weights, torch.device(device.torch_name), family.vae_dtype(getattr(torch, dtype)))
    if device.is_gpu and device.total_gb < WORKING_GB:
        vae.enable_tiling()
    return vae


def through_vae(family: Family, vae: Any, weights: Path, given: Pixels) -> Pixels:
    """Frames uint8 [F, H, W, 3] encoded and decoded again, of the same shape."""
    import torch

    frames, height, width, _ = given.shape
    moments = family.encode_video(vae, as_clip(given))
    device = next(iter(moments.values())).device
    middle = torch.zeros(1, *family.latents_shape(weights, frames, height, width), device=device)
    decoded = family.decode(vae, family.sample_latents(moments, middle))[0]
    pixels: Pixels = ((decoded + 1.0) * 127.5).round().to(torch.uint8).permute(1, 2, 3, 0).cpu().numpy()
    return pixels


def similarity(given: Pixels, back: Pixels) -> dict[str, float]:
    """The similarity of two videos uint8 [F, H, W, 3]: psnr, psnr_worst (dB) and ssim."""
    import torch

    one, other = (torch.from_numpy(video).float() / 255 for video in (given, back))
    errors = (one - other).square().mean((1, 2, 3))
    grey = torch.tensor([0.299, 0.587, 0.114])
    similar = torch.stack([_ssim(a @ grey, b @ grey) for a, b in zip(one, other, strict=True)])
    return {
        "psnr": _decibels(errors.mean()),
        "psnr_worst": _decibels(errors.max()),
        "ssim": round(float(similar.mean()), 4),
    }


def _decibels(error: torch.Tensor) -> float:
    return round(float(-10 * error.clamp_min(1e-10).log10()), 2)


def _ssim(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Mean structural similarity of two pictures [H, W] in [0, 1] (Wang et al. 2004, even windows as scikit-image)."""
    from torch.nn.functional import avg_pool2d

    def mean(picture: torch.Tensor) -> torch.Tensor:
        return avg_pool2d(picture[None], WINDOW, stride=1)[0]

    sample = WINDOW**2 / (WINDOW**2 - 1)
    a, b = mean(one), mean(other)
    variance_a, variance_b = sample * (mean(one * one) - a * a), sample * (mean(other * other) - b * b)
    covariance = sample * (mean(one * other) - a * b)
    c1, c2 = 0.01**2, 0.03**2
    like = (2 * a * b + c1) * (2 * covariance + c2) / ((a * a + b * b + c1) * (variance_a + variance_b + c2))
    return like.mean()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]).resolve()))
