"""Preview videos of a run: the same prompts and seeds at every milestone; step 0 is the base model.

Not covered: choosing prompts (the loop), samples outside a run (sampler).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.families.base import Family, Model, Tensors
from workbench.frame_plan import Shape
from workbench.sampler.samples import write_sample
from workbench.trainer.encode import free_memory
from workbench.trainer.settings import TrainSettings

if TYPE_CHECKING:
    import torch

TILED_FROM = 256  # pixels of height from which the VAE decodes in tiles


@dataclass
class Previewer:
    """Draws previews with the transformer that is being trained; the VAE is on the device only meanwhile."""

    family: Family
    model: Model
    folder: Path
    shape: Shape
    settings: TrainSettings
    device: torch.device
    dtype: torch.dtype
    vae: Any = None

    def draw(
        self,
        run: Path,
        step: int,
        transformer: Any,
        prompts: Sequence[tuple[str, Tensors]],
        negative: Tensors,
        on_step: Callable[[int, int], None],
    ) -> None:
        """Write previews/step-N/I.mp4 and .json for each (prompt, embedding); `on_step(done, total)` may raise."""
        import torch

        if self.vae is None:
            self.vae = self.family.load_vae(self.folder, torch.device("cpu"), self.dtype)
            if self.shape.height >= TILED_FROM:
                self.vae.enable_tiling()
                self.vae.enable_slicing()
        self.vae.to(self.device)
        transformer.eval()
        pipeline = self.family.load_pipeline(self.folder, transformer=transformer, vae=self.vae, dtype=self.dtype)
        steps = self.settings.preview_steps or self.model.steps
        guidance = self.settings.preview_guidance
        guidance = self.model.guidance_scale if guidance is None else guidance
        folder = run / "previews" / f"step-{step:08d}"
        taken = [int(path.stem) for path in folder.glob("*.json") if path.stem.isdigit()]
        first = max(taken, default=-1) + 1 if len(prompts) == 1 and taken else 0
        try:
            for index, (prompt, text) in enumerate(prompts):
                video = self.family.sample(
                    pipeline,
                    text=text,
                    negative_text=negative,
                    frames=self.shape.frames,
                    height=self.shape.height,
                    width=self.shape.width,
                    steps=steps,
                    guidance_scale=guidance,
                    dynamic_guidance=False,
                    scheduler="model",
                    noise=torch.Generator().manual_seed(self.settings.preview_seed),
                    on_step=lambda done, total, index=index: on_step(index * total + done, len(prompts) * total),  # type: ignore[misc]
                )
                record = {
                    "prompt": prompt,
                    "run": run.name,
                    "step": step,
                    "model": self.model.id,
                    "seed": self.settings.preview_seed,
                    "steps": steps,
                    "guidance_scale": guidance,
                    "frames": self.shape.frames,
                    "height": self.shape.height,
                    "width": self.shape.width,
                    "fps": self.shape.fps,
                }
                write_sample(folder / f"{first + index}.mp4", video[0].numpy(), self.shape.fps, record)
        finally:
            if self.device.type == "cuda":
                self.vae.to("cpu")
                free_memory()
