"""Drawing a video: one loaded model, any number of requests, each exactly what the stock pipeline gives.

The weights stay loaded between requests; LoRAs come and go. On a GPU the parts have the dtype they are stored in, on
the processor float32. A GPU that cannot hold all parts at once gets them one at a time, and the VAE decodes in tiles
(tiles change the picture slightly; the record says `frugal`). Not covered: the queue (queue, worker), files (samples).
"""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench import __version__
from workbench.clips import file_sha256
from workbench.devices import GIGABYTE, Device
from workbench.families import find_model
from workbench.sampler.inputs import Inputs, inputs_of
from workbench.sampler.loras import apply
from workbench.sampler.pictures import last_frames, read_picture
from workbench.sampler.settings import SampleSettings
from workbench.workspace import Workspace

if TYPE_CHECKING:
    import numpy as np
    import torch

OnStep = Callable[[int, int], None]
# What drawing needs beside the weights (activations, the VAE's decoder), at the largest published shape.
WORKING_GB = 14.0


@dataclass(frozen=True)
class Drawn:
    """A drawn video: frames uint8 [F, H, W, 3], and the record of everything that made it."""

    frames: np.ndarray
    fps: float
    record: dict[str, Any]


class Sampler:
    """A model loaded for sampling on one device."""

    def __init__(self, model: str, device: Device, report: Callable[[str], None] = print) -> None:
        """Load the model (downloaded first if need be). Raises ConfigError, ModelUnavailable."""
        import torch

        self.name, self.device = model, device
        self.family, self.model = find_model(model)
        self.folder = self.family.fetch(self.model, report)
        self.dtype = self.family.stored_dtype(self.folder) if device.kind == "cuda" else "float32"
        self.frugal = device.kind == "cuda" and weights_gb(self.folder) + WORKING_GB > device.total_gb
        dtype = getattr(torch, self.dtype)
        place = torch.device("cpu" if self.frugal else device.torch_name)
        self._text_encoder = self.family.load_text_encoder(self.folder, place, dtype)
        self.pipeline = self.family.load_pipeline(
            self.folder,
            transformer=self.family.load_transformer(self.folder, place, dtype),
            vae=self.family.load_vae(self.folder, place, dtype),
            text_encoder=self._text_encoder,
            dtype=dtype,
        )
        if self.frugal:
            self.pipeline.enable_model_cpu_offload(device=device.torch_name)
            self.pipeline.vae.enable_tiling()
            self.pipeline.vae.enable_slicing()

    def generate(self, workspace: Workspace, settings: SampleSettings, on_step: OnStep | None = None) -> Drawn:
        """Draw one video. `on_step(done, total)` is called after each step and may raise to stop it.

        The model stays usable whatever happens. Raises ConfigError. The settings' model must be the loaded one.
        """
        import torch

        assert settings.model == self.name, f"{self.name} is loaded, not {settings.model}"
        inputs = inputs_of(workspace, settings)
        began = time.monotonic()
        loras = apply(self.pipeline, inputs.loras, self.model.title)
        guided = inputs.guidance_scale > 1
        place, shape = torch.device(self.device.torch_name), inputs.shape
        text = self.family.encode_text(self._text_encoder, [settings.prompt])
        negative = self.family.encode_text(self._text_encoder, [settings.negative_prompt]) if guided else None
        try:
            image, prefix = self._first_frames(inputs)
            video = self.family.sample(
                self.pipeline,
                text={key: value.to(place) for key, value in text.items()},
                negative_text=None if negative is None else {key: value.to(place) for key, value in negative.items()},
                frames=shape.frames,
                height=shape.height,
                width=shape.width,
                steps=inputs.steps,
                guidance_scale=inputs.guidance_scale,
                dynamic_guidance=settings.dynamic_guidance,
                scheduler=inputs.scheduler,
                noise=torch.Generator("cpu").manual_seed(settings.seed or 0),
                on_step=on_step or (lambda done, total: None),
                image=image,
                image_scale=settings.image_scale,
                prefix=prefix,
            )
        finally:
            if self.frugal:  # a drawing that was given up leaves its part on the GPU
                self.pipeline.maybe_free_model_hooks()
        frames = (video[0] * 255).round().to(torch.uint8).numpy()
        return Drawn(frames, shape.fps, self._record(inputs, loras, time.monotonic() - began))

    def _first_frames(self, inputs: Inputs) -> tuple[torch.Tensor | None, torch.Tensor | None]:
        """The first frame [1, 3, H, W] in [-1, 1] for models that take one, and latents of the frames to go on from."""
        import torch

        settings, shape = inputs.settings, inputs.shape
        size = (shape.height, shape.width)
        picture = read_picture(Path(settings.image).expanduser(), *size) if settings.image else None
        prefix = None
        if settings.continue_from:
            last = last_frames(Path(settings.continue_from).expanduser(), inputs.kept_frames, shape.fps, *size)
            picture = last[:1] if picture is None else picture
            moments = self.family.encode_video(self.pipeline.vae, _clip(last))
            # The mean of what the VAE says: the frames shall come back as they are.
            middle = torch.zeros(1, *self.family.latents_shape(self.folder, len(last), *size))
            prefix = self.family.draw_latents({name: value.cpu() for name, value in moments.items()}, middle)
        if picture is None or self.model.task != "image-to-video":
            return None, prefix
        return _clip(picture)[:, :, 0], prefix

    def _record(self, inputs: Inputs, loras: list[dict[str, Any]], seconds: float) -> dict[str, Any]:
        """Every input as it was in the end, beside the settings as they were asked for."""
        return {
            "settings": inputs.settings.model_dump(mode="json"),
            "prompt": inputs.settings.prompt,
            "negative_prompt": inputs.settings.negative_prompt,
            "model": self.model.id,
            "revision": self.model.revision,
            "folder": str(self.folder),
            "frames": inputs.shape.frames,
            "height": inputs.shape.height,
            "width": inputs.shape.width,
            "fps": inputs.shape.fps,
            "steps": inputs.steps,
            "guidance_scale": inputs.guidance_scale,
            "image_sha256": _sha256(inputs.settings.image),
            "continued_sha256": _sha256(inputs.settings.continue_from),
            "kept_frames": inputs.kept_frames,
            "dynamic_guidance": inputs.settings.dynamic_guidance,
            "scheduler": inputs.scheduler,
            "seed": inputs.settings.seed,
            "loras": loras,
            "device": self.device.name,
            "dtype": self.dtype,
            "frugal": self.frugal,
            "seconds": round(seconds, 3),
            "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "versions": versions(),
        }


def _clip(frames: np.ndarray) -> torch.Tensor:
    """uint8 [F, H, W, 3] as the family takes clips: [1, 3, F, H, W] in [-1, 1]."""
    import torch

    return (torch.from_numpy(frames.copy()).permute(3, 0, 1, 2).float() / 127.5 - 1.0).unsqueeze(0)


def _sha256(file: str) -> str | None:
    return file_sha256(Path(file).expanduser()) if file else None


def weights_gb(folder: Path) -> float:
    """Size of a model's weights on disk, which is their size on a GPU."""
    return sum(path.stat().st_size for path in folder.glob("*/*.safetensors")) / GIGABYTE


def versions() -> dict[str, str]:
    """What a record names, so that a video can be made again."""
    packages = ("torch", "diffusers", "transformers", "peft")
    return {
        "workbench": __version__,
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
    }
