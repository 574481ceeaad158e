"""A clip reconstructed by the model's VAE: start it (`request`), read it (`read`). No torch.

What the VAE cannot keep, a LoRA cannot learn. Each reconstruction is a job in a folder named by all that decides it
(the clip's bytes, the frames and crop taken, the VAE's weights), so that a repeated request finds it:

    cache/reconstructions/KEY/          a job (workbench.jobs), module workbench.sampler.reconstruction_worker
      config.json                       ReconstructionSettings
      reconstruction.mp4                what comes back of the frames that the model is given
      beside.mp4                        both in one picture: left what is given, right what comes back
      result.json                       how it ended, and psnr, psnr_worst, ssim ...; written last

Not covered: encoding and decoding (reconstruction_worker), what the denoiser makes of it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path

from workbench import jobs
from workbench.clips.frame_plan import FramePlan, Shape, plan
from workbench.clips.records import Clip, clip_file, file_sha256
from workbench.display import inline_html
from workbench.errors import DataError
from workbench.families import find_model
from workbench.families.model import Model
from workbench.families.model_files import part_identity
from workbench.families.settings import NamesModel
from workbench.jobs.devices import DeviceChoice
from workbench.settings import field
from workbench.workspace import Workspace, read_object

MODULE = "workbench.sampler.reconstruction_worker"
FOLDER, VIDEO, BESIDE = "reconstructions", "reconstruction.mp4", "beside.mp4"
WHAT, SHAPE = "What", "Shape"


class ReconstructionSettings(NamesModel):
    """Which frames of which clip go through which VAE."""

    dataset: str = field("", title="Dataset", section=WHAT)
    """The dataset's folder."""

    clip: str = field("", title="Clip", section=WHAT)
    """The clip's file name in the dataset."""

    model: str = field("", title="Model", section=WHAT, source="models")
    """The model whose VAE is used."""

    frames: int = field(1, title="Frames", section=SHAPE, low=1, high=1000, unit="frames")
    """1: an image."""

    height: int = field(16, title="Height", section=SHAPE, low=8, high=4096, unit="pixels")
    """Of the picture."""

    width: int = field(16, title="Width", section=SHAPE, low=8, high=4096, unit="pixels")
    """Of the picture."""

    fps: float = field(8.0, title="Frame rate", section=SHAPE, low=0.1, high=240.0, unit="fps")
    """Of training."""

    device: DeviceChoice = field("auto", title="Device", section=SHAPE, source="devices", advanced=True)
    """auto takes the NVIDIA GPU if there is one, else the processor."""

    @property
    def shape(self) -> Shape:
        return Shape(self.frames, self.height, self.width, self.fps)


MEANING = "30 dB and more look alike; under 25 dB the VAE loses what a LoRA could have learnt"


@dataclass(frozen=True)
class Reconstruction:
    """A reconstruction as its files describe it; what follows `status` is None until it is finished.

    path, beside: the videos; psnr: dB over all frames, psnr_worst: of the worst frame (100 at most)
    ssim: mean structural similarity of the brightness, 1 for equal pictures
    """

    status: jobs.Status
    path: Path | None = None
    beside: Path | None = None
    psnr: float | None = None
    psnr_worst: float | None = None
    ssim: float | None = None

    @property
    def folder(self) -> Path:
        return self.status.folder

    def wait(self, seconds: float | None = None) -> Reconstruction:
        """Wait until the job is over or the time is up; returns the reconstruction as it is then."""
        jobs.wait(self.folder, seconds)
        return read(self.folder)

    def _repr_html_(self) -> str:
        if self.beside is None:
            return inline_html.note(f"reconstruction: {self.status.state}. {self.status.message or self.status.phase}")
        caption = (
            f"Left: what the model gets. Right: what its VAE gives back. {self.psnr:.1f} dB, the worst frame "
            f"{self.psnr_worst:.1f} dB. At 30 dB and more they look alike; below 25 dB the VAE loses detail that a "
            "LoRA could have learned."
        )
        return inline_html.figure(self.beside, caption, 320)


def request(
    workspace: Workspace,
    dataset: Path,
    clip: Clip,
    model: str,
    shape: Shape,
    device: DeviceChoice = "auto",
) -> Reconstruction:
    """The reconstruction of the frames that `plan` takes; its job is started unless it is finished or active.

    Raises ConfigError (model, shape), DataError (the clip is left out or its file is missing), CannotWrite.
    """
    known = find_model(model).model
    known.check_shape(known.frames if shape.frames == 1 else shape.frames, shape.height, shape.width)
    planned, path = plan(clip, shape), clip_file(dataset, clip.file_name)
    if planned.dropped:
        raise DataError(f"{clip.name} is left out: {planned.dropped}")
    if clip.is_latents:
        raise DataError(f"{clip.name} is latents, which the VAE has made: there is no video to compare with")
    if not path.is_file():
        raise DataError(f"{clip.name} is missing from {dataset.name}: import it again")
    folder = workspace.cache / FOLDER / _key(path, planned, known)
    found = read(folder)
    if found.path or found.status.state.alive:
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
    return Reconstruction(jobs.start(folder, MODULE))


def read(folder: Path) -> Reconstruction:
    """A reconstruction as it is now. Never raises for a missing or broken file."""
    status = jobs.status(folder)
    video, beside, result = folder / VIDEO, folder / BESIDE, read_object(folder / jobs.RESULT)
    if status.state is not jobs.State.FINISHED or not video.exists() or not beside.exists():
        return Reconstruction(status)
    return Reconstruction(status, video, beside, result.get("psnr"), result.get("psnr_worst"), result.get("ssim"))


def _key(path: Path, planned: FramePlan, model: Model) -> str:
    """A folder name from everything that decides the reconstruction (but the device: it moves the last bits only)."""
    what = {
        "clip": file_sha256(path),
        "indices": planned.indices,
        "resize": planned.resize,
        "crop": planned.crop,
        "fps": planned.fps,
        "vae": part_identity(model, Path(model.source), "vae"),
    }
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:40]
