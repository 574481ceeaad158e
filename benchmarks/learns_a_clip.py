"""Does a LoRA of each family learn one fixed clip? Measures its loss on untrained noise, before and after.

The models are random miniatures of the families, so nothing is downloaded. A random transformer hardly depends on its
input, so the LoRA covers every linear layer. Where a token is narrower than its values, it cannot represent them all:
24 of 64 in Wan's miniature, whose loss cannot fall below 0.41 of the initial loss, and 24 of 48 in Mochi's.

    python benchmarks/learns_a_clip.py --json benchmarks/results/learns_a_clip_cpu.json
    python benchmarks/learns_a_clip.py --others --steps 300 --seeds 1 --json FILE   the families' other variants

An image-to-video model is given the clip's first frame, VACE a gray clip.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Any

import common
import torch

from workbench.families import families
from workbench.families.base import Family
from workbench.families.conditioning import Conditioning
from workbench.families.facts import ALL_LINEAR
from workbench.families.model_inputs import Given, ModelInputs
from workbench.runs.settings import TrainSettings
from workbench.trainer import lora

CPU = torch.device("cpu")
PROMPT = "a red square moves right on a blue background"
HELD_OUT = 24  # fixed noises at as many levels


def clip(frames: int, height: int, width: int) -> torch.Tensor:
    """Return the fixed clip [1, 3, F, H, W] in [-1, 1]: a red square that moves right on blue."""
    made = torch.full((1, 3, frames, height, width), -1.0)
    made[:, 2] = 0.6
    side = max(2, height // 3)
    for frame in range(frames):
        left = round((width - side) * frame / max(frames - 1, 1))
        made[:, :, frame, height // 3 : height // 3 + side, left : left + side] = torch.tensor([1.0, -1.0, -1.0]).view(
            1, 3, 1, 1
        )
    return made


class Lesson:
    """A miniature with the encoded clip and a LoRA."""

    def __init__(self, family: Family, variant: str, folder: Path, rank: int, targets: str, seed: int) -> None:
        self.family, self.model = family, family.toy(folder, variant)
        model = self.model
        vae = family.load_vae(folder, CPU, torch.float32)
        self.shape = family.latents_shape(folder, model.frames, model.height, model.width)
        video = clip(model.frames, model.height, model.width)
        moments = family.encode_video(vae, video)
        self.latents = family.sample_latents(moments, torch.zeros(1, *self.shape))
        self.text = family.encode_text(family.load_text_encoder(folder, CPU, torch.float32), [PROMPT])
        self.given: Given | None = None
        if family.joins_conditioning(model) or model.task == "image-to-video":
            encoder, noise = family.load_image_encoder(folder, CPU, torch.float32), torch.Generator().manual_seed(0)
            if family.joins_conditioning(model):
                gray = Conditioning(model.frames, video=torch.zeros_like(video))
                told = family.encode_conditioning(vae, encoder, gray)
                self.given = family.conditioning(told, self.shape, noise, torch.float32)
            else:
                picture = family.encode_image(vae, encoder, video[:, :, 0], model.frames, "pipeline")
                self.given = family.given(picture, torch.zeros(1, *family.one_frame(self.shape)), self.shape)
        self.schedule = family.noise_schedule(folder, CPU)
        self.transformer = family.load_transformer(folder, CPU, torch.float32)
        settings = TrainSettings(dataset="x", rank=rank, alpha=float(rank), targets=targets)
        self.trained = [one for _, one in lora.attach(family, self.transformer, settings, seed=seed)]

    def loss(self, quantiles: torch.Tensor, seed: int) -> torch.Tensor:
        """Return the loss of the clip at these noise levels, per level."""
        count = len(quantiles)
        noise = torch.randn(count, *self.shape, generator=torch.Generator().manual_seed(seed))
        inputs = ModelInputs(
            self.latents.expand(count, *self.shape),
            {name: one.expand(count, *one.shape[1:]) for name, one in self.text.items()},
            noise,
            self.schedule.timesteps(quantiles, self.shape),
            self.given and self.given.repeated(count),
            self.model.fps,
        )
        return self.family.loss(self.transformer, self.schedule, inputs)

    @torch.no_grad()
    def held_out(self) -> float:
        return float(self.loss((torch.arange(HELD_OUT) + 0.5) / HELD_OUT, seed=10**9).mean())

    def train(self, steps: int, rate: float, batch: int, seed: int) -> None:
        optimizer = torch.optim.AdamW(self.trained, lr=rate, weight_decay=0.0)
        levels = torch.Generator().manual_seed(1 + seed)
        for step in range(steps):
            optimizer.param_groups[0]["lr"] = rate * (1 - step / steps)
            optimizer.zero_grad()
            self.loss(torch.rand(batch, generator=levels), seed=step + seed * steps).mean().backward()
            optimizer.step()


def row(
    family: Family, variant: str, steps: int, rank: int, rate: float, batch: int, targets: str, seed: int
) -> dict[str, Any]:
    """Return one miniature, before and after."""
    with tempfile.TemporaryDirectory() as folder:
        lesson = Lesson(family, variant, Path(folder) / "toy", rank, targets, seed)
        before, began = lesson.held_out(), time.perf_counter()
        lesson.train(steps, rate, batch, seed)
        after = lesson.held_out()
    return {
        "case": f"{family.name}, {variant}",
        "steps": steps,
        "rank": rank,
        "seed": seed,
        "before": before,
        "after": after,
        "ratio": after / before,
        "seconds": time.perf_counter() - began,
    }


def main() -> None:
    parser = common.arguments(__doc__.splitlines()[0], steps=2)
    parser.add_argument("--steps", type=int, default=600)
    parser.add_argument("--seeds", type=int, default=2, help="runs of each family")
    parser.add_argument("--rank", type=int, default=16)
    parser.add_argument("--rate", type=float, default=1e-2)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--targets", default=ALL_LINEAR, help="a preset or a regular expression over layer names")
    parser.add_argument("--family", default="", help="a single family")
    parser.add_argument("--others", action="store_true", help="each family's other variants instead of its first")
    options = parser.parse_args()
    torch.manual_seed(0)
    chosen = [one for one in families() if one.schedulers and options.family in ("", one.name)]
    cases = [(one, variant) for one in chosen for variant in (one.toys[1:] if options.others else one.toys[:1])]
    rows = []
    for family, variant in cases:
        for seed in range(options.seeds):
            rows.append(
                row(family, variant, options.steps, options.rank, options.rate, options.batch, options.targets, seed)
            )
            print(rows[-1]["case"], f"{rows[-1]['ratio']:.3f}", flush=True)
    common.report(rows, options.json, prompt=PROMPT, targets=options.targets, rate=options.rate, batch=options.batch)


if __name__ == "__main__":
    main()
