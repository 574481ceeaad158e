"""The files of a run's previews.

previews/step-00000250/
  I.mp4 I.json                            a video a prompt and seed; I stays theirs for the whole run
  I-scale-0.5.mp4 .json                   the same at another strength of the LoRA, on request
  I.safetensors I.json                    latents only, decoded later (latent_decoding)
  input-I.mp4 reconstruction-I.mp4 .json  step 0: training inputs, and what the VAE keeps of them
  prompts.txt                             a line a prompt
previews/picture-I.png                    the first frame that an image-to-video model gets

A record's "kind" is sample, latents, input or reconstruction; its "settings" are those with which the Sample tab
generates the same video from the checkpoint of that step. They are left out where a preview is a picture, and where
nothing but the run holds the weights (full fine-tuning, weights beside the LoRA, averages before the export) or the
condition. Not covered: generating them (previews), live samples (live_sample).
"""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.clips.frame_plan import Shape
from workbench.families.base import Model
from workbench.runs.checkpoints import LORA, folder_of
from workbench.runs.settings import TrainSettings
from workbench.workspace import read_object, step_folders, write_bytes, write_json, write_text

if TYPE_CHECKING:
    import torch

PROMPTS = "prompts.txt"
LATENTS = "latents"


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

    def describe(
        self, run: Path, step: int, prompt: str, seed: int, number: int, scale: float, *, picture: bool, given: bool
    ) -> dict[str, Any]:
        """The record of a preview. picture: it begins with a picture;  given: its condition comes from elsewhere"""
        shape, settings = self.shape, self.settings
        inputs = {
            "prompt": prompt,
            "seed": seed,
            "steps": self.steps,
            "guidance_scale": self.guidance_scale,
            "dynamic_guidance": settings.preview_dynamic_guidance,
            "frames": shape.frames,
            "height": shape.height,
            "width": shape.width,
        }
        record = {
            **inputs,
            "kind": "latents" if settings.preview_latents_only else "sample",
            "run": run.name,
            "step": step,
            "scale": scale,
            "model": self.model.id,
            "fps": shape.fps,
        }
        loras = self._loras(run, step, scale)
        if loras is not None and not given and shape.frames in self.model.frame_rule.legal():
            again = {**inputs, "model": settings.model, "loras": loras}
            if picture:
                path = run / "previews" / f"picture-{number}.png"
                again |= {"image": str(path), "image_scale": settings.image_latent_scale}
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

    def number(self, run: Path, prompt: str, seed: int) -> int:
        """The number of a prompt and seed, the same for the whole run, also after it was resumed."""
        if not self._numbers:
            for path in (path for folder in step_folders(run / "previews").values() for path in folder.glob("*.json")):
                known = read_object(path)
                if path.stem.isdecimal() and {"prompt", "seed"} <= set(known):
                    self._numbers.setdefault((str(known["prompt"]), known["seed"]), int(path.stem))
        return self._numbers.setdefault((prompt, seed), max(self._numbers.values(), default=-1) + 1)


def step_folder(run: Path, step: int) -> Path:
    return run / "previews" / f"step-{step:08d}"


def record_path(folder: Path, number: int, scale: float) -> Path:
    return folder / (f"{number}.json" if scale == 1.0 else f"{number}-scale-{scale:g}.json")


def write_latents(record: Path, latents: torch.Tensor, described: dict[str, Any]) -> None:
    from safetensors.torch import save

    write_bytes(record.with_suffix(".safetensors"), save({LATENTS: latents.contiguous()}))
    write_json(record, described)


def write_prompt(folder: Path, prompt: str) -> None:
    path, line = folder / PROMPTS, " ".join(prompt.split())
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    if line not in lines:
        write_text(path, "".join(f"{each}\n" for each in (*lines, line)))


def write_picture(described: dict[str, Any], image: torch.Tensor | None) -> None:
    """The picture [1, 3, H, W] in [-1, 1] that a record names, as PNG; one that is there stays."""
    from PIL import Image

    named = described.get("settings", {}).get("image")
    if image is None or named is None or Path(named).exists():
        return
    pixels = ((image[0].float().cpu().permute(1, 2, 0) + 1) * 127.5).round().byte().numpy()
    data = io.BytesIO()
    Image.fromarray(pixels).save(data, "PNG")
    write_bytes(Path(named), data.getvalue())
