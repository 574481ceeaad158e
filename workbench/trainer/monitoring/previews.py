"""Preview videos of a run: the same prompts and seeds at every milestone; step 0 is the base model.

Generating needs no more memory than training: the VAE encodes the pictures and leaves, all latents are generated
without it, then it comes back and decodes, in tiles where they are large; `make_room` may move the transformer out of
its way. Not covered: choosing prompts and pictures (preview_inputs), their files (preview_files), samples outside a run
(sampler).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from workbench.clips.frame_plan import Shape
from workbench.errors import ConfigError
from workbench.families.base import Family
from workbench.families.denoising import DenoiseInputs, Guidance
from workbench.families.model import Model
from workbench.families.model_inputs import Given, Tensors
from workbench.jobs.torch_devices import free_memory
from workbench.runs.settings import TrainSettings
from workbench.sampler.samples import write_sample
from workbench.trainer.monitoring.preview_experts import PreviewExperts
from workbench.trainer.monitoring.preview_files import (
    MissingPreview,
    PreviewPrompt,
    PreviewRecords,
    record_path,
    step_folder,
    write_latents,
    write_picture,
    write_prompt,
)

TILED_FROM = 256  # pixels of height from which the VAE decodes in tiles
UNWRITTEN = 64  # so many previews that a full disk refused wait in memory for room, the oldest leave first
OnStep = Callable[[int, int], None]


class _Generated(NamedTuple):
    """A preview whose file is not written yet: latents on the host, and the first frame that its record names."""

    record: Path
    latents: torch.Tensor
    described: dict[str, Any]
    picture: torch.Tensor | None


class PreviewClip(NamedTuple):
    """A clip as it goes into training: frames [1, 3, F, H, W] in [-1, 1], moments with a batch of 1 on the device."""

    name: str
    caption: str
    video: torch.Tensor
    moments: Tensors
    latents_shape: tuple[int, ...]


@dataclass
class Previewer:
    """Generates previews with the transformer in training; the VAE is on the device only to encode and decode.

    make_room: frees memory of the device while the VAE decodes, and takes it back (see memory.block_swap.parked)
    writes: False for a process that only computes its part, because the weights are sharded
    before_decoding: called before each video is decoded; may raise
    """

    family: Family
    model: Model
    folder: Path
    shape: Shape
    settings: TrainSettings
    device: torch.device
    dtype: torch.dtype
    vae: Any = None
    make_room: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext
    writes: bool = True
    before_decoding: Callable[[], None] = lambda: None
    unwritten: list[_Generated] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.records = PreviewRecords(self.model, self.shape, self.settings)

    def generate(
        self,
        run: Path,
        step: int,
        transformer: Any,
        prompts: Sequence[PreviewPrompt],
        negative: Tensors,
        on_step: OnStep,
        scale: float = 1.0,
    ) -> bool:
        """Generate every prompt with every seed, but for those that exist already. Returns whether any was missing.

        A control is generated with the first seed alone.
        scale: of the LoRA; 0 is the base model. `on_step(done, total)` counts denoising steps and may raise. What
        a full disk refused is written with the next ones.
        Raises ConfigError when there is no LoRA to scale, CannotWrite.
        """
        folder = step_folder(run, step)
        seeds = range(self.settings.preview_seed, self.settings.preview_seed + self.settings.preview_count)
        every = [
            self.records.missing(run, one, seed)
            for one in prompts
            for seed in (seeds if one.control is None else seeds[:1])
        ]
        missing = [each for each in every if not record_path(folder, each.name, scale).exists()]
        if not missing:
            return False
        generated = self._generate_latents(transformer, missing, negative, on_step, scale)
        if self.writes:
            for each, latents in zip(missing, generated, strict=True):
                record = record_path(folder, each.name, scale)
                self.unwritten.append(
                    _Generated(record, latents, self.records.describe(run, step, each, scale), each.one.image)
                )
            del self.unwritten[:-UNWRITTEN]
            self.write()
        return True

    def write(self) -> None:
        """Write what was generated, the oldest first. Raises CannotWrite; what is left is written the next time."""
        with contextlib.nullcontext() if self.settings.preview_latents_only else self._decoding():
            while self.unwritten:
                record, latents, described, picture = self.unwritten[0]
                self.before_decoding()
                if described["kind"] != "control":
                    write_prompt(record.parent, described["prompt"])
                write_picture(described, picture)
                if self.settings.preview_latents_only:
                    write_latents(record, latents, described)
                else:
                    frames = frames_of(self.family.decode(self.vae, latents), self.shape.frames)
                    video, root = record.with_suffix(".mp4"), record.parents[4]
                    write_sample(video, frames.numpy(), self.shape.fps, described, root)
                self.unwritten.pop(0)

    def generate_one(
        self,
        run: Path,
        step: int,
        transformer: Any,
        one: PreviewPrompt,
        seed: int,
        negative: Tensors,
        on_step: OnStep,
        scale: float = 1.0,
    ) -> tuple[np.ndarray, dict[str, Any]] | None:
        """One video and its record, written nowhere; None in a process that does not write. See `generate`."""
        missing = MissingPreview(one, seed, "0")
        (latents,) = self._generate_latents(transformer, [missing], negative, on_step, scale)
        if not self.writes:
            return None
        with self._decoding():
            frames = frames_of(self.family.decode(self.vae, latents), self.shape.frames).numpy()
        write_picture(described := self.records.describe(run, step, missing, scale), one.image)
        return frames, described

    def save_inputs(self, run: Path, clips: Sequence[PreviewClip]) -> None:
        """Step 0: each clip as the model reads it, and decoded again from its latents."""
        folder = step_folder(run, 0)
        missing = [
            (index, clip) for index, clip in enumerate(clips) if not (folder / f"reconstruction-{index}.json").exists()
        ]
        if not missing:
            return
        with self._decoding():
            for index, clip in missing:
                self.before_decoding()
                middle = torch.zeros(1, *clip.latents_shape, device=self.device)
                latents = self.family.sample_latents(clip.moments, middle)
                back = frames_of(self.family.decode(self.vae, latents), clip.video.shape[2])
                for kind, frames in (("input", frames_of(clip.video, clip.video.shape[2])), ("reconstruction", back)):
                    count, height, width, _ = frames.shape
                    record = {
                        "kind": kind,
                        "prompt": clip.caption,
                        "clip": clip.name,
                        "run": run.name,
                        "step": 0,
                        "model": self.model.id,
                        "frames": count,
                        "height": height,
                        "width": width,
                        "fps": self.shape.fps,
                    }
                    write_sample(folder / f"{kind}-{index}.mp4", frames.numpy(), self.shape.fps, record)

    # ---- parts

    @contextlib.contextmanager
    def _decoding(self) -> Iterator[None]:
        with self.make_room(), self._vae_on_device():
            yield

    @contextlib.contextmanager
    def _vae_on_device(self) -> Iterator[None]:
        """The VAE on the device; afterwards its memory is given back."""
        if self.vae is None:
            self.vae = load_vae(self.family, self.folder, self.dtype, self.shape.height)
        try:
            self.vae.to(self.device)
            yield
        finally:
            if self.device.type == "cuda":
                self.vae.to(torch.device("cpu"))
                free_memory()

    def _generate_latents(
        self, transformer: Any, missing: Sequence[MissingPreview], negative: Tensors, on_step: OnStep, scale: float
    ) -> list[torch.Tensor]:
        """The latents of every preview, on the host; the VAE is gone while the transformer computes."""
        transformer.eval()
        noises = [torch.Generator().manual_seed(each.seed) for each in missing]
        guidance = Guidance(
            self.records.guidance_scale,
            self.settings.preview_dynamic_guidance,
            second=self.records.guidance_scale_2,
            below=1000 * self.model.boundary,
        )
        generated = []
        with at_scale(transformer, scale), self._experts(transformer) as at_timestep:
            givens = self._givens(missing, noises)
            for done, (each, noise, given) in enumerate(zip(missing, noises, givens, strict=True)):

                def report(at: int, total: int, _: torch.Tensor, done: int = done) -> None:
                    on_step(done * total + at, len(missing) * total)

                inputs = DenoiseInputs(
                    self.folder,
                    self._on_device(each.one.text),
                    self._on_device(negative),
                    self._latents_shape,
                    self.records.steps,
                    guidance,
                    noise,
                    flow_shift=self.records.flow_shift,
                    on_step=report,
                    given=given,
                    fps=self.shape.fps,
                    at_timestep=at_timestep,
                )
                latents = self.family.denoise(transformer, inputs)
                generated.append(latents.float().cpu())
        return generated

    @contextlib.contextmanager
    def _experts(self, trained: Any) -> Iterator[Callable[[float], Any] | None]:
        """What gives the transformer for a timestep, where the model has two."""
        if not self.model.boundary:
            yield None
            return
        parts = (self.family, self.model, self.folder, self.settings, self.device, self.dtype, trained)
        try:
            with PreviewExperts(*parts, self.make_room) as experts:
                yield experts.at
        finally:
            free_memory()

    def _on_device(self, text: Tensors) -> dict[str, torch.Tensor]:
        return {name: value.to(self.device, self.dtype) for name, value in text.items()}

    @property
    def _latents_shape(self) -> tuple[int, ...]:
        shape = self.shape
        return self.family.latents_shape(self.folder, shape.frames, shape.height, shape.width)

    def _givens(self, missing: Sequence[MissingPreview], noises: Sequence[torch.Generator]) -> list[Given | None]:
        """What an image-to-video model is shown; None for the others."""
        known = [each.one.given for each in missing]
        if self.model.task != "image-to-video" or all(given is not None for given in known):
            return known
        with self._vae_on_device():
            return [
                self._first_frame(each.one, noise) if given is None else given
                for each, noise, given in zip(missing, noises, known, strict=True)
            ]

    def _first_frame(self, one: PreviewPrompt, noise: torch.Generator) -> Given:
        """What the stock pipeline makes of a picture."""
        assert one.image is not None, "an image-to-video model needs a picture"
        scale = self.settings.image_latent_scale
        dtype = self.family.vae_dtype(self.dtype)
        image_encoder = self.family.load_image_encoder(self.folder, self.device, dtype)
        image = self.family.encode_image(self.vae, image_encoder, one.image, self.shape.frames, scale)
        return self.family.given_to_sample(self.folder, image, self._latents_shape, noise, dtype)


@contextlib.contextmanager
def at_scale(transformer: Any, scale: float) -> Iterator[None]:
    """The transformer with its LoRA at another strength; afterwards exactly as it was. Raises ConfigError."""
    if scale == 1.0:
        yield
        return
    if not getattr(transformer, "peft_config", None):
        raise ConfigError(f"the LoRA scale of a preview is {scale:g}, but this run trains no LoRA: use 1")
    if scale == 0.0:
        # Not a scale of 0: under that, DoRA would still stretch the weights.
        transformer.disable_adapters()
        try:
            yield
        finally:
            transformer.enable_adapters()
        return
    from peft.helpers import rescale_adapter_scale

    with rescale_adapter_scale(transformer, scale):
        yield


def load_vae(family: Family, folder: Path, dtype: torch.dtype, height: int) -> Any:
    """The VAE on the processor, ready to decode pictures of that height without needing more than it must.

    dtype: of the transformer
    """
    vae = family.load_vae(folder, torch.device("cpu"), family.vae_dtype(dtype))
    if height >= TILED_FROM:
        vae.enable_tiling()
        vae.enable_slicing()
    return vae


def frames_of(video: torch.Tensor, count: int) -> torch.Tensor:
    """The last frames of a decoded clip [1, 3, F, H, W] as [count, H, W, 3] in [0, 1].

    What a family puts in front of the latents to fill them up comes back in front of the frames.
    """
    return (video[0, :, -count:].float().cpu().permute(1, 2, 3, 0) + 1) / 2
