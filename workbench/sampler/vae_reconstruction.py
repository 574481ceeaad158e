"""Reconstructions of clips by a model's VAE: start one (`request`), read it (`read`), compute it (`reconstruct`).

A LoRA cannot learn what the VAE cannot reproduce. Each reconstruction is a job in a folder named for everything that
determines it (the clip's bytes, the frames and crop taken, the VAE's weights), so a repeated request finds it:

    cache/reconstructions/KEY/          a job: `python -m workbench.sampler.vae_reconstruction KEY`
      config.json                       ReconstructionSettings
      reconstruction.mp4                the reconstruction of the frames that the model would get
      beside.mp4                        both side by side: the original left, the reconstruction right
      result.json                       how the job ended, and psnr, psnr_worst, ssim ...; written last
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench import jobs
from workbench.clips.frame_plan import FramePlan, Shape, plan
from workbench.clips.records import Clip, clip_file, file_sha256, read_clips
from workbench.display import inline_html
from workbench.errors import DataError
from workbench.families import find_model
from workbench.families.base import Family
from workbench.families.conditioning import as_clip
from workbench.families.model import Model
from workbench.families.model_files import part_identity
from workbench.families.settings import NamesModel
from workbench.jobs import processes, queue
from workbench.jobs.devices import Device, DeviceChoice, pick_device
from workbench.jobs.snapshot import JobSnapshot
from workbench.settings import field
from workbench.workspace import Workspace, read_object
from workbench.workspace.records import key_of

if TYPE_CHECKING:
    import numpy as np
    import torch
    from numpy.typing import NDArray

    Pixels = NDArray[np.uint8]

MODULE = "workbench.sampler.vae_reconstruction"
FOLDER, VIDEO, BESIDE = "reconstructions", "reconstruction.mp4", "beside.mp4"
WHAT, SHAPE = "What", "Shape"
MEANING = "30 dB or more looks the same; below 25 dB the VAE loses detail that a LoRA could have learned"
WORKING_GB = 14.0  # what the VAE needs at the largest published shape without tiles
TITLE, GPU_TIMEOUT = "a reconstruction", 30.0  # seconds to wait for the GPU
WINDOW = 7  # side of the structural similarity's window, in pixels


class ReconstructionSettings(NamesModel):
    """Which frames of which clip go through which VAE."""

    dataset: str = field("", title="Dataset", section=WHAT)
    """The dataset's folder."""

    clip: str = field("", title="Clip", section=WHAT)
    """The clip's file name in the dataset."""

    model: str = field("", title="Model", section=WHAT, source="models")
    """The model whose VAE is used."""

    frames: int = field(1, title="Frames", section=SHAPE, low=1, high=1000, unit="frames")
    """Number of frames; 1 for an image."""

    height: int = field(16, title="Height", section=SHAPE, low=8, high=4096, unit="pixels")
    """Height of the frames."""

    width: int = field(16, title="Width", section=SHAPE, low=8, high=4096, unit="pixels")
    """Width of the frames."""

    fps: float = field(8.0, title="Frame rate", section=SHAPE, low=0.1, high=240.0, unit="fps")
    """The frame rate of training."""

    device: DeviceChoice = field("auto", title="Device", section=SHAPE, source="devices", advanced=True)
    """The device to compute on. auto: a GPU if there is one, else the CPU."""

    @property
    def shape(self) -> Shape:
        return Shape(self.frames, self.height, self.width, self.fps)


class Reconstruction(JobSnapshot):
    """A clip after encoding and decoding with a model's VAE, compared with the original."""

    video: str | None
    """Path of the reconstruction; null until the job has finished."""

    beside: str | None
    """Path of a video with the model's input on the left and the reconstruction on the right; null until then."""

    psnr: float | None
    """PSNR over all frames in dB; null until then."""

    psnr_worst: float | None
    """PSNR of the worst frame in dB, at most 100; null until then."""

    ssim: float | None
    """Mean structural similarity (SSIM) of the luminance, 1 for identical frames; null until then."""

    def outcome(self) -> Iterable[str]:
        yield f"{self.psnr:.1f} dB, the worst frame {self.psnr_worst:.1f} dB: {MEANING}"
        yield f"side by side, the model's input on the left, the reconstruction on the right: {self.beside}"

    @property
    def goes_on(self) -> str:
        stop = Path(self.folder) / "control" / "stop"
        return f"It continues in the background; the same command shows it again. Stop it: touch {stop}"

    def wait(self, seconds: float | None = None) -> Reconstruction:
        """Wait until the job is over or the time is up, and return the new state."""
        jobs.wait(Path(self.folder), seconds)
        return read(Path(self.folder))

    def _repr_html_(self) -> str:
        if self.beside is None:
            doing = self.message or jobs.status(Path(self.folder)).phase
            return inline_html.note(f"reconstruction: {self.state}. {doing}")
        caption = (
            f"Left: the model's input. Right: the VAE's reconstruction. {self.psnr:.1f} dB; worst frame "
            f"{self.psnr_worst:.1f} dB. At 30 dB or more they look the same; below 25 dB the VAE loses detail that a "
            "LoRA could have learned."
        )
        return inline_html.figure(Path(self.beside), caption, 320)


def request(
    workspace: Workspace,
    dataset: Path,
    clip: Clip,
    model: str,
    shape: Shape,
    device: DeviceChoice = "auto",
) -> Reconstruction:
    """Return the reconstruction of a clip's planned frames, and start its job unless it is finished or active.

    Raises ConfigError (model, shape, device), DataError (the clip is left out or missing), CannotWrite.
    """
    known = find_model(model).model
    known.check_shape(known.frames if shape.frames == 1 else shape.frames, shape.height, shape.width)
    planned, path = _planned(clip, shape), clip_file(dataset, clip.file_name)
    if clip.is_latents:
        raise DataError(f"{clip.name} is stored as latents, so there is no video to compare with")
    if not path.is_file():
        raise DataError(f"{clip.name} is missing from {dataset.name}: import it again")
    folder = workspace.cache / FOLDER / _key(path, planned, known)
    found = read(folder)
    if found.video or not found.over:
        return found
    settings = ReconstructionSettings(
        dataset=str(dataset.resolve()),
        clip=clip.file_name,
        model=known.id,
        frames=shape.frames,
        height=shape.height,
        width=shape.width,
        fps=float(shape.fps),
        device=device,
    )
    settings.save(folder / jobs.CONFIG)
    queue.submit(workspace, folder, MODULE, _held(pick_device(device)), TITLE, brief=True)
    return read(folder)


def read(folder: Path) -> Reconstruction:
    """Read the state of a reconstruction. Missing or broken files raise nothing."""
    status = queue.with_position(Workspace(folder.parents[2]), jobs.status(folder))
    video, beside, result = folder / VIDEO, folder / BESIDE, read_object(folder / jobs.RESULT)
    done = status.state is jobs.State.FINISHED and video.exists() and beside.exists()
    return Reconstruction(
        id=folder.name,
        folder=str(folder),
        state=status.state,
        message="" if status.state.alive else status.message,
        video=str(video) if done else None,
        beside=str(beside) if done else None,
        psnr=result.get("psnr") if done else None,
        psnr_worst=result.get("psnr_worst") if done else None,
        ssim=result.get("ssim") if done else None,
    )


def _held(device: Device) -> list[Device]:
    """Return the devices to reserve: a GPU, but never the CPU, which is shared."""
    return [device] if device.is_gpu else []


def _planned(clip: Clip, shape: Shape) -> FramePlan:
    planned = plan(clip, shape)
    if planned.dropped:
        raise DataError(f"{clip.name} is left out: {planned.dropped}")
    return planned


def _key(path: Path, planned: FramePlan, model: Model) -> str:
    """Hash everything that determines the reconstruction, except for the device, which only affects the last bits."""
    return key_of(
        {
            "clip": file_sha256(path),
            "indices": planned.indices,
            "resize": planned.resize,
            "crop": planned.crop,
            "fps": planned.fps,
            "vae": part_identity(model, Path(model.source), "vae"),
        }
    )


def reconstruct(job: jobs.Job) -> None:
    """Write both videos and the numbers. Raises WorkbenchError, or jobs.Stop when asked to stop.

    Only the VAE is loaded: in its stored dtype on a GPU, in float32 on a CPU. It decodes the posterior's mean, around
    which training samples. A GPU that is too small decodes in tiles.
    """
    import numpy as np

    from workbench.clips import media

    folder, settings = job.folder, ReconstructionSettings.load(job.folder / jobs.CONFIG)
    dataset = Path(settings.dataset)
    clip = next((clip for clip in read_clips(dataset) if clip.file_name == settings.clip), None)
    if clip is None:
        raise DataError(f"the clip is no longer in {dataset.name}: choose another one")
    planned = _planned(clip, settings.shape)

    def report(phase: str, message: str = "") -> None:
        job.beat(phase, message=message)
        job.check_stop("Stopped; nothing was kept.")

    device = pick_device(settings.device)
    family, model = settings.resolved
    with queue.acquired(Workspace(folder.parents[2]), _held(device), job, TITLE, GPU_TIMEOUT):
        report("loading the VAE")
        with processes.loading():
            import torch

            weights = family.fetch(model, lambda message: report("loading the VAE", message))
            dtype = family.auto_dtype(family.stored_dtype(weights)) if device.is_gpu else "float32"
            vae_dtype = family.vae_dtype(getattr(torch, dtype))
            vae = family.load_vae(weights, torch.device(device.torch_name), vae_dtype)
            if device.is_gpu and device.total_gb < WORKING_GB:
                vae.enable_tiling()
        report("encoding and decoding")
        path = clip_file(dataset, settings.clip)
        given = media.read_frames(path, planned.indices, planned.resize, planned.crop)
        back = through_vae(family, vae, weights, given)
    report("writing")
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


def through_vae(family: Family, vae: Any, weights: Path, given: Pixels) -> Pixels:
    """Encode and decode frames, uint8 [F, H, W, 3]."""
    import torch

    frames, height, width, _ = given.shape
    moments = family.encode_video(vae, as_clip(given))
    device = next(iter(moments.values())).device
    no_noise = torch.zeros(1, *family.latents_shape(weights, frames, height, width), device=device)
    decoded = family.decode(vae, family.sample_latents(moments, no_noise))[0]
    pixels: Pixels = ((decoded + 1.0) * 127.5).round().to(torch.uint8).permute(1, 2, 3, 0).cpu().numpy()
    return pixels


def similarity(given: Pixels, back: Pixels) -> dict[str, float]:
    """Compare two videos, uint8 [F, H, W, 3]: psnr and psnr_worst in dB, and ssim."""
    import torch

    one, other = (torch.from_numpy(video).float() / 255 for video in (given, back))
    errors = (one - other).square().mean((1, 2, 3))
    gray = torch.tensor([0.299, 0.587, 0.114])
    similar = torch.stack([_ssim(a @ gray, b @ gray) for a, b in zip(one, other, strict=True)])
    return {
        "psnr": _decibels(errors.mean()),
        "psnr_worst": _decibels(errors.max()),
        "ssim": round(float(similar.mean()), 4),
    }


def _decibels(error: torch.Tensor) -> float:
    return round(float(-10 * error.clamp_min(1e-10).log10()), 2)


def _ssim(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
    """Return the mean SSIM of two pictures [H, W] in [0, 1] (Wang et al. 2004; uniform windows, as in scikit-image)."""
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
    sys.exit(jobs.Job.main(reconstruct))
