"""The files of a run's previews.

previews/step-00000250/
  I.mp4 I.json                            a video a prompt and seed; I stays theirs for the whole run
  I-scale-0.5.mp4 .json                   the same at another strength of the LoRA, on request
  control-I.mp4 .json                     a preservation prompt with the first seed: what the LoRA should leave alone
  I.safetensors I.json                    latents only, decoded later (latent_decoding)
  input-I.mp4 reconstruction-I.mp4 .json  step 0: training inputs, and what the VAE keeps of them
  prompts.txt                             a line a prompt
previews/picture-I.png                    the first frame that an image-to-video model gets

A record's "kind" is sample, latents, control, input or reconstruction; its "settings" are those with which the Sample
tab generates the same video from the checkpoint of that step. They are left out of controls, of pictures by an
image-to-video model, and where nothing but the run holds the weights (full fine-tuning, weights beside the LoRA,
averages before the export) or the condition. Not covered: generating them (previews), live samples (live_sample).
"""

from __future__ import annotations

import io
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import torch
from PIL import Image
from safetensors.torch import save

from workbench.clips.frame_plan import Shape
from workbench.families.model import Model
from workbench.families.model_inputs import Given, Tensors
from workbench.runs.checkpoints import LORA, folder_of
from workbench.runs.settings import TrainSettings
from workbench.workspace import read_object, step_folders, write_bytes, write_json, write_text

PROMPTS = "prompts.txt"
LATENTS = "latents"


class PreviewPrompt(NamedTuple):
    """What to generate.

    text:      the prompt's embedding, batch of 1, on the device
    image:     first frame [1, 3, H, W] in [-1, 1], for image-to-video models
    given: what the model is shown, instead of what the pipeline makes of the image
    control: its number among the control previews; None for a preview of the run's own
    """

    prompt: str
    text: Tensors
    image: torch.Tensor | None = None
    given: Given | None = None
    control: int | None = None


class MissingPreview(NamedTuple):
    """A preview that is missing; `name`: of its files, the same for its prompt and seed in the whole run."""

    one: PreviewPrompt
    seed: int
    name: str


@dataclass
class PreviewRecords:
    """The records of one run's previews, and the number of each prompt and seed."""

    model: Model
    shape: Shape
    settings: TrainSettings
    _numbers: dict[tuple[str, int], int] = field(default_factory=dict)

    @property
    def steps(self) -> int:
        return self.settings.preview_steps or self.model.steps

    @property
    def guidance_scale(self) -> float:
        chosen = self.settings.preview_guidance
        return self.model.guidance_scale if chosen is None else chosen

    @property
    def guidance_scale_2(self) -> float | None:
        """Of the expert for low noise: a scale that the run names holds for both."""
        return self.model.guidance_scale_2 if self.settings.preview_guidance is None else None

    @property
    def flow_shift(self) -> float | None:
        return self.settings.preview_flow_shift or self.model.flow_shift_at(self.shape.height, self.shape.width)

    @property
    def generated_with(self) -> Model:
        """The model with what previews are generated with in place of its own values."""
        return replace(
            self.model,
            steps=self.steps,
            guidance_scale=self.guidance_scale,
            guidance_scale_2=self.guidance_scale_2,
            flow_shift=self.flow_shift,
            small_flow_shift=None,
            dynamic_guidance=self.settings.preview_dynamic_guidance,
        )

    def describe(self, run: Path, step: int, preview: MissingPreview, scale: float) -> dict[str, Any]:
        """The record of a preview at a scale of the LoRA."""
        shape, settings, (prompt, seed, name) = self.shape, self.settings, preview
        second = self.guidance_scale if self.guidance_scale_2 is None else self.guidance_scale_2
        only_some = {"guidance_scale_2": second if self.model.boundary else None, "flow_shift": self.flow_shift}
        inputs = {
            "prompt": prompt.prompt,
            "seed": seed,
            "steps": self.steps,
            "guidance_scale": self.guidance_scale,
            "dynamic_guidance": settings.preview_dynamic_guidance,
            **{name: value for name, value in only_some.items() if value is not None},
            "frames": shape.frames,
            "height": shape.height,
            "width": shape.width,
        }
        record = {
            **inputs,
            "kind": self._kind(prompt),
            "run": run.name,
            "step": step,
            "scale": scale,
            "model": self.model.id,
            "fps": shape.fps,
        }
        loras = self._loras(run, step, scale)
        own = prompt.given is None and prompt.control is None
        if loras is not None and own and shape.frames in self.model.frame_counts:
            again = {**inputs, "model": settings.model, "loras": loras}
            if prompt.image is not None:
                path = run / "previews" / f"picture-{name}.png"
                again |= {"image": str(path), "image_scale": settings.image_latent_scale}
            record["settings"] = again
        return record

    def _kind(self, prompt: PreviewPrompt) -> str:
        if prompt.control is not None:
            return "control"
        return "latents" if self.settings.preview_latents_only else "sample"

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

    def missing(self, run: Path, one: PreviewPrompt, seed: int) -> MissingPreview:
        """The preview of a prompt and seed, with its name."""
        name = f"control-{one.control}" if one.control is not None else str(self._number(run, one.prompt, seed))
        return MissingPreview(one, seed, name)

    def _number(self, run: Path, prompt: str, seed: int) -> int:
        """The number of a prompt and seed, the same for the whole run, also after it was resumed."""
        if not self._numbers:
            for path in (path for folder in step_folders(run / "previews").values() for path in folder.glob("*.json")):
                known = read_object(path)
                if path.stem.isdecimal() and {"prompt", "seed"} <= set(known):
                    self._numbers.setdefault((str(known["prompt"]), known["seed"]), int(path.stem))
        return self._numbers.setdefault((prompt, seed), max(self._numbers.values(), default=-1) + 1)


def step_folder(run: Path, step: int) -> Path:
    return run / "previews" / f"step-{step:08d}"


def record_path(folder: Path, name: str, scale: float) -> Path:
    return folder / (f"{name}.json" if scale == 1.0 else f"{name}-scale-{scale:g}.json")


def write_latents(record: Path, latents: torch.Tensor, described: dict[str, Any]) -> None:
    write_bytes(record.with_suffix(".safetensors"), save({LATENTS: latents.contiguous()}))
    write_json(record, described)


def write_prompt(folder: Path, prompt: str) -> None:
    path, line = folder / PROMPTS, " ".join(prompt.split())
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    if line not in lines:
        write_text(path, "".join(f"{each}\n" for each in (*lines, line)))


def write_picture(described: dict[str, Any], image: torch.Tensor | None) -> None:
    """The picture that a record names; one that is there stays."""
    named = described.get("settings", {}).get("image")
    if image is not None and named is not None and not Path(named).exists():
        write_png(Path(named), image)


def write_png(path: Path, image: torch.Tensor) -> None:
    """A picture [1, 3, H, W] in [-1, 1] as a file."""
    pixels = ((image[0].float().cpu().permute(1, 2, 0) + 1) * 127.5).round().clamp(0, 255).byte().numpy()
    data = io.BytesIO()
    Image.fromarray(pixels).save(data, "PNG")
    write_bytes(path, data.getvalue())
