"""Preview videos of a run: the same prompts and seeds at every milestone; step 0 is the base model.

previews/step-00000250/
  I.mp4 I.json                            a video a prompt and seed; I stays theirs for the whole run
  I-scale-0.5.mp4 .json                   the same at another strength of the LoRA, when asked for
  I.safetensors I.json                    latents only, decoded later (decoding)
  input-I.mp4 reconstruction-I.mp4 .json  step 0: clips as the model is shown them, and what its VAE keeps of them
  prompts.txt                             a line a prompt
previews/picture-I.png                    the first frame that an image-to-video model is given

A record's "kind" is sample, latents, input or reconstruction; its "settings" are those with which the Sample tab draws
the same video from the checkpoint of that step. They are left out where a preview is a picture, and where nothing but
the run holds the weights (full fine-tuning, weights beside the LoRA, averages before the export) or the condition.

Drawing needs no more memory than training: the VAE encodes the pictures and leaves, all latents are drawn without it,
then it comes back and decodes, in tiles where they are large; `spare` may move the transformer out of its way. Not
covered: choosing prompts and pictures (session), samples outside a run (sampler).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from workbench.clips.frame_plan import Shape
from workbench.errors import ConfigError
from workbench.families.base import Family, Model, Tensors
from workbench.families.guidance import Guidance
from workbench.runs.checkpoints import LORA, folder_of
from workbench.runs.settings import TrainSettings
from workbench.sampler.samples import write_sample
from workbench.trainer.inputs.encoder import free_memory
from workbench.workspace import read_object, step_folders, write_bytes, write_json, write_text

if TYPE_CHECKING:
    import numpy as np
    import torch

TILED_FROM = 256  # pixels of height from which the VAE decodes in tiles
PROMPTS = "prompts.txt"
LATENTS = "latents"
UNWRITTEN = 64  # so many previews that a full disk refused wait in memory for room, the oldest leave first
OnStep = Callable[[int, int], None]


class PreviewPrompt(NamedTuple):
    """What to draw.

    text:      the prompt's embedding, batch of 1, on the device
    image:     first frame [1, 3, H, W] in [-1, 1], for image-to-video models
    condition: latents-shaped, instead of what the pipeline makes of the image
    """

    prompt: str
    text: Tensors
    image: torch.Tensor | None = None
    condition: torch.Tensor | None = None


class _Generated(NamedTuple):
    """A preview whose file is not written yet: latents on the host, and the first frame that its record names."""

    record: Path
    latents: torch.Tensor
    described: dict[str, Any]
    picture: torch.Tensor | None


class _Ask(NamedTuple):
    """A preview that is missing; `place` is its number in the run."""

    one: PreviewPrompt
    seed: int
    place: int


class PreviewClip(NamedTuple):
    """A clip as it goes into training: frames [1, 3, F, H, W] in [-1, 1], moments with a batch of 1 on the device."""

    name: str
    caption: str
    video: torch.Tensor
    moments: Tensors
    latents_shape: tuple[int, ...]


@dataclass
class Previewer:
    """Draws previews with the transformer that is being trained; the VAE is on the device only to encode and decode.

    spare:  makes room on the device while the VAE decodes, and takes it back (see memory.block_swap.parked)
    writes: False for a process that only helps another one to draw, because each has a piece of the weights
    look:   called before each video is decoded; may raise
    """

    family: Family
    model: Model
    folder: Path
    shape: Shape
    settings: TrainSettings
    device: torch.device
    dtype: torch.dtype
    vae: Any = None
    spare: Callable[[], contextlib.AbstractContextManager[None]] = contextlib.nullcontext
    writes: bool = True
    look: Callable[[], None] = lambda: None
    _places: dict[tuple[str, int], int] = field(default_factory=dict)
    unwritten: list[_Generated] = field(default_factory=list)

    def draw(
        self, run: Path, step: int, transformer: Any, prompts: Sequence[PreviewPrompt], negative: Tensors,
        on_step: OnStep, scale: float = 1.0,
    ) -> bool:  # fmt: skip
        """Draw every prompt with every seed; those that are there already are left alone. Whether any was missing.

        scale: of the LoRA; 0 is the base model. `on_step(done, total)` counts denoising steps and may raise. What
        a full disk refused is written with the next ones.
        Raises ConfigError when there is no LoRA to scale, CannotWrite.
        """
        folder = _step_folder(run, step)
        seeds = range(self.settings.preview_seed, self.settings.preview_seed + self.settings.preview_count)
        every = [_Ask(one, seed, self._place(run, one.prompt, seed)) for one in prompts for seed in seeds]
        missing = [ask for ask in every if not _record(folder, ask.place, scale).exists()]
        if not missing:
            return False
        transformer.eval()
        with at_scale(transformer, scale):
            drawn = self._draw_latents(transformer, missing, negative, on_step)
        if self.writes:
            for ask, latents in zip(missing, drawn, strict=True):
                record, described = _record(folder, ask.place, scale), self._described(run, step, *ask, scale)
                self.unwritten.append(_Generated(record, latents, described, ask.one.image))
            del self.unwritten[:-UNWRITTEN]
            self.write()
        return True

    def write(self) -> None:
        """Write what was generated, the oldest first. Raises CannotWrite; what is left is written the next time."""
        with contextlib.nullcontext() if self.settings.preview_latents_only else self._decoding():
            while self.unwritten:
                record, latents, described, picture = self.unwritten[0]
                self.look()
                _note_prompt(record.parent, described["prompt"])
                _write_picture(described, picture)
                if self.settings.preview_latents_only:
                    _write_latents(record, latents, described)
                else:
                    frames = frames_of(self.family.decode(self.vae, latents), self.shape.frames)
                    video, root = record.with_suffix(".mp4"), record.parents[4]
                    write_sample(video, frames.numpy(), self.shape.fps, described, root)
                self.unwritten.pop(0)

    def draw_one(
        self, run: Path, step: int, transformer: Any, one: PreviewPrompt, seed: int, negative: Tensors,
        on_step: OnStep, scale: float = 1.0,
    ) -> tuple[np.ndarray, dict[str, Any]] | None:  # fmt: skip
        """One video and its record, written nowhere; None in a process that only helps. See `draw`."""
        transformer.eval()
        with at_scale(transformer, scale):
            latents = self._draw_latents(transformer, [_Ask(one, seed, 0)], negative, on_step)
        if not self.writes:
            return None
        with self._decoding():
            frames = frames_of(self.family.decode(self.vae, latents[0]), self.shape.frames).numpy()
        _write_picture(described := self._described(run, step, one, seed, 0, scale), one.image)
        return frames, described

    def draw_inputs(self, run: Path, clips: Sequence[PreviewClip]) -> None:
        """Step 0: each clip as the model is shown it, and decoded again from what the VAE says of it."""
        import torch

        folder = _step_folder(run, 0)
        missing = [
            (place, clip) for place, clip in enumerate(clips) if not (folder / f"reconstruction-{place}.json").exists()
        ]
        if not missing:
            return
        with self._decoding():
            for place, clip in missing:
                self.look()
                middle = torch.zeros(1, *clip.latents_shape, device=self.device)
                latents = self.family.sample_latents(clip.moments, middle)
                back = frames_of(self.family.decode(self.vae, latents), clip.video.shape[2])
                for kind, frames in (("input", frames_of(clip.video, clip.video.shape[2])), ("reconstruction", back)):
                    count, height, width, _ = frames.shape
                    record = {
                        "kind": kind, "prompt": clip.caption, "clip": clip.name, "run": run.name, "step": 0,
                        "model": self.model.id, "frames": count, "height": height, "width": width,
                        "fps": self.shape.fps,
                    }  # fmt: skip
                    write_sample(folder / f"{kind}-{place}.mp4", frames.numpy(), self.shape.fps, record)

    # ---- parts

    @contextlib.contextmanager
    def _decoding(self) -> Iterator[None]:
        with self.spare(), self._vae_there():
            yield

    @contextlib.contextmanager
    def _vae_there(self) -> Iterator[None]:
        """The VAE on the device; afterwards its memory is given back."""
        import torch

        if self.vae is None:
            self.vae = load_vae(self.family, self.folder, self.dtype, self.shape.height)
        try:
            self.vae.to(self.device)
            yield
        finally:
            if self.device.type == "cuda":
                self.vae.to(torch.device("cpu"))
                free_memory()

    def _draw_latents(
        self, transformer: Any, missing: Sequence[_Ask], negative: Tensors, on_step: OnStep
    ) -> list[torch.Tensor]:
        """The latents of every preview, on the host; the VAE is gone while the transformer computes."""
        import torch

        noises = [torch.Generator().manual_seed(ask.seed) for ask in missing]
        conditions = self._conditions(missing, noises)
        drawn = []
        for done, (ask, noise, condition) in enumerate(zip(missing, noises, conditions, strict=True)):

            def report(at: int, total: int, _: torch.Tensor, done: int = done) -> None:
                on_step(done * total + at, len(missing) * total)

            latents = self.family.denoise(
                transformer, self.folder, text=self._placed(ask.one.text), negative_text=self._placed(negative),
                latents_shape=self._latents_shape, steps=self._steps, scheduler="model",
                guidance=Guidance(self._guidance, self.settings.preview_dynamic_guidance), noise=noise, on_step=report,
                condition=condition,
            )  # fmt: skip
            drawn.append(latents.float().cpu())
        return drawn

    def _placed(self, text: Tensors) -> dict[str, torch.Tensor]:
        """Embeddings as the transformer takes them."""
        return {name: value.to(self.device, self.dtype) for name, value in text.items()}

    @property
    def _latents_shape(self) -> tuple[int, ...]:
        shape = self.shape
        return self.family.latents_shape(self.folder, shape.frames, shape.height, shape.width)

    def _conditions(self, missing: Sequence[_Ask], noises: Sequence[torch.Generator]) -> list[torch.Tensor | None]:
        """What an image-to-video model is shown beside the latents; None for the others."""
        given = [ask.one.condition for ask in missing]
        if self.model.task != "image-to-video" or all(condition is not None for condition in given):
            return given
        with self._vae_there():
            return [
                self._first_frame(ask.one, noise) if condition is None else condition
                for ask, noise, condition in zip(missing, noises, given, strict=True)
            ]

    def _first_frame(self, one: PreviewPrompt, noise: torch.Generator) -> torch.Tensor:
        """The condition that the stock pipeline makes of a picture: it, too, draws this noise before the latents'."""
        assert one.image is not None, "an image-to-video model draws from a picture"
        scale = self.settings.image_latent_scale
        return self.family.first_frame(self.vae, one.image, scale, self._latents_shape, noise, self.dtype)

    @property
    def _steps(self) -> int:
        return self.settings.preview_steps or self.model.steps

    @property
    def _guidance(self) -> float:
        chosen = self.settings.preview_guidance
        return self.model.guidance_scale if chosen is None else chosen

    def _described(
        self, run: Path, step: int, one: PreviewPrompt, seed: int, place: int, scale: float
    ) -> dict[str, Any]:
        """The record of a preview."""
        shape, settings = self.shape, self.settings
        drawn_with = {
            "prompt": one.prompt, "seed": seed, "steps": self._steps, "guidance_scale": self._guidance,
            "dynamic_guidance": settings.preview_dynamic_guidance, "frames": shape.frames, "height": shape.height,
            "width": shape.width,
        }  # fmt: skip
        record = {
            **drawn_with, "kind": "latents" if settings.preview_latents_only else "sample", "run": run.name,
            "step": step, "scale": scale, "model": self.model.id, "fps": shape.fps,
        }  # fmt: skip
        loras = self._loras(run, step, scale)
        if loras is not None and one.condition is None and shape.frames in self.model.frame_rule.legal():
            again = {**drawn_with, "model": settings.model, "loras": loras}
            if one.image is not None:
                picture = run / "previews" / f"picture-{place}.png"
                again |= {"image": str(picture), "image_scale": settings.image_latent_scale}
            record["settings"] = again
        return record

    def _loras(self, run: Path, step: int, scale: float) -> list[str] | None:
        """What the Sample tab loads to have the weights of that step; None when no file holds them."""
        settings = self.settings
        if step == 0 and not settings.start_from:
            return []
        if settings.method != "lora" or settings.train_also:
            return None
        if scale == 0:
            return []
        if step == 0:
            return [f"{settings.start_from}={scale:g}"]
        if step == settings.steps:
            return [f"{run.name}={scale:g}"]
        averaged = settings.ema_decay > 0 or settings.optimizer == "schedule-free"
        return None if averaged else [f"{folder_of(run, step) / LORA}={scale:g}"]

    def _place(self, run: Path, prompt: str, seed: int) -> int:
        """The number of a prompt and seed, the same for the whole run, also after it was resumed."""
        if not self._places:
            for path in (path for place in step_folders(run / "previews").values() for path in place.glob("*.json")):
                known = read_object(path)
                if path.stem.isdecimal() and {"prompt", "seed"} <= set(known):
                    self._places.setdefault((str(known["prompt"]), known["seed"]), int(path.stem))
        return self._places.setdefault((prompt, seed), max(self._places.values(), default=-1) + 1)


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
    """The VAE on the processor, ready to decode pictures of that height without needing more than it must."""
    import torch

    vae = family.load_vae(folder, torch.device("cpu"), dtype)
    if height >= TILED_FROM:
        vae.enable_tiling()
        vae.enable_slicing()
    return vae


def _step_folder(run: Path, step: int) -> Path:
    return run / "previews" / f"step-{step:08d}"


def _record(folder: Path, place: int, scale: float) -> Path:
    return folder / (f"{place}.json" if scale == 1.0 else f"{place}-scale-{scale:g}.json")


def frames_of(video: torch.Tensor, count: int) -> torch.Tensor:
    """The last frames of a decoded clip [1, 3, F, H, W] as [count, H, W, 3] in [0, 1].

    What a family puts in front of the latents to fill them up comes back in front of the frames.
    """
    return (video[0, :, -count:].float().cpu().permute(1, 2, 3, 0) + 1) / 2


def _write_latents(record: Path, latents: torch.Tensor, described: dict[str, Any]) -> None:
    from safetensors.torch import save

    write_bytes(record.with_suffix(".safetensors"), save({LATENTS: latents.contiguous()}))
    write_json(record, described)


def _note_prompt(folder: Path, prompt: str) -> None:
    path, line = folder / PROMPTS, " ".join(prompt.split())
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    if line not in lines:
        write_text(path, "".join(f"{each}\n" for each in (*lines, line)))


def _write_picture(described: dict[str, Any], image: torch.Tensor | None) -> None:
    """The picture [1, 3, H, W] in [-1, 1] that a record names, as PNG; one that is there stays."""
    import io

    from PIL import Image

    named = described.get("settings", {}).get("image")
    if image is None or named is None or Path(named).exists():
        return
    pixels = ((image[0].float().cpu().permute(1, 2, 0) + 1) * 127.5).round().byte().numpy()
    data = io.BytesIO()
    Image.fromarray(pixels).save(data, "PNG")
    write_bytes(Path(named), data.getvalue())
