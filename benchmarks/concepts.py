"""Teach new concepts to the built-in models: are they learned, do they leak into known prompts, how long does it take?

    python benchmarks/concepts.py                                             three concepts on each model
    python benchmarks/concepts.py --models tiny-cogvideox --concepts ring     one of them

Each concept's 24 clips are rendered, imported into a dataset and trained with a regularization dataset, as in the demo.
Then 32 prompts of the concept and 64 known prompts, none of them trained on, are generated with the stock pipeline of
the tiny CogVideoX, or with the workbench for other models, and judged by assets/tiny_check.py at its native size:
"ours" is with the LoRA, "reference" without. Image-to-video gets the first frame of a clip that matches the prompt.
Known prompts that show the concept are its leak.

Concepts are striped backgrounds and shapes that the transformers were not trained on, and what happens to a shape in
the second half of its path ("shrinks", "fades"), which the first frame does not reveal.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import arguments, report

from workbench import demo
from workbench.dataset_builder import Dataset
from workbench.families import find_model, model_files, models
from workbench.families.model import Model
from workbench.families.settings import absent
from workbench.jobs import State, Status, log_tail
from workbench.jobs.devices import pick_device
from workbench.runs.recipes import suggest
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.sampler.generate import Sampler
from workbench.sampler.settings import SampleSettings
from workbench.workspace import Workspace

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "assets"))

import tiny_check  # noqa: E402
import tiny_models  # noqa: E402
import tiny_world  # noqa: E402

CONCEPTS = {"text-to-video": ("stripes", "ring", "shrinks"), "image-to-video": ("stripes", "shrinks", "fades")}
Row = dict[str, Any]
Verdict = Callable[[torch.Tensor, tiny_world.Spec], bool]


@dataclass(frozen=True)
class Prompts:
    """The prompts to generate with and without the LoRA, and their noise."""

    specs: list[tiny_world.Spec]
    seed: int

    def generate(
        self, pipeline: tiny_models.Pipeline | None, model: Model, loras: tuple[str, ...] = ()
    ) -> torch.Tensor:
        """Return clips [N, 3, F, H, W] in [-1, 1], from a pipeline with its LoRA, or else with `loras`."""
        images = None
        if model.task == "image-to-video":
            rng, size = random.Random(self.seed), tiny_world.SIZE if pipeline else model.height
            images = torch.stack([tiny_world.draw(spec, rng, size)[:, 0] for spec in self.specs])
        if pipeline is None:
            pictures = [None] * len(self.specs) if images is None else images
            asked = zip(self.specs, pictures, strict=True)
            return torch.stack(
                [
                    sampled(model, spec.caption(), self.seed + i, loras, picture)
                    for i, (spec, picture) in enumerate(asked)
                ]
            )
        captions = [spec.caption() for spec in self.specs]
        return tiny_models.sample(pipeline, captions, model.steps, model.guidance_scale, self.seed, images=images)


def prompts_of(concept: str, seed: int, most: int | None = None) -> tuple[Prompts, Prompts]:
    """Return prompts of the concept and known prompts, none of them trained on. most: limit for each kind."""
    own = tiny_world.concept_specs(concept)[1]
    return Prompts(own[:most], seed), Prompts(tiny_world.held_out()[:most], seed + len(own))


def sampled(
    model: Model, prompt: str, seed: int, loras: tuple[str, ...], picture: torch.Tensor | None = None
) -> torch.Tensor:
    """Return a sample as a clip [3, F, H, W] in [-1, 1] at tiny_world's size. picture: its first frame."""
    from PIL import Image

    settings = SampleSettings(model=model.id, prompt=prompt, seed=seed, loras=loras, device="cpu").changed(
        steps=model.steps, guidance_scale=model.guidance_scale
    )
    with tempfile.TemporaryDirectory() as folder:
        if picture is not None:
            pixels = ((picture.clamp(-1, 1) + 1) * 127.5).round().byte().permute(1, 2, 0).numpy()
            Image.fromarray(pixels).save(Path(folder) / "first.png")
            settings = settings.changed(image=str(Path(folder) / "first.png"))
        found = sampler(model.id).generate(Workspace.open(Path(folder)), settings).frames
    clip = torch.from_numpy(np.asarray(found)).permute(0, 3, 1, 2) / 127.5 - 1
    size = (tiny_world.SIZE, tiny_world.SIZE)
    return torch.nn.functional.interpolate(clip, size=size, mode="bilinear", antialias=True).transpose(0, 1)


def stock(model: Model) -> tiny_models.Pipeline | None:
    """Return the stock pipeline of a tiny CogVideoX, or None for models that the workbench samples."""
    folder = Path(model.source)
    of_cogvideox = "CogVideoX" in model_files.index(folder).get("_class_name", "")
    return tiny_models.load(folder) if of_cogvideox else None


@cache
def sampler(model: str) -> Sampler:
    """Return a sampler that stays loaded."""
    return Sampler(model, pick_device("cpu"), lambda _: None)


# ---- judging --------------------------------------------------------------------------------------------------------


def shows(clip: torch.Tensor, concept: str) -> bool:
    """Return whether a clip shows the concept. A given first frame is ignored when judging appearance."""
    of_time = concept in (*tiny_world.MANNERS, *tiny_world.NEW_MOTIONS)
    return tiny_check.shows(clip if of_time else clip[:, 1:], concept)


def is_right(clip: torch.Tensor, spec: tiny_world.Spec) -> bool:
    """Return whether a clip over a plain background shows everything in the prompt."""
    return tiny_check.inspect(clip).matches(spec)["all"] and tiny_check.manner(clip) == spec.manner


def compare(
    concept: str, prompts: tuple[Prompts, Prompts], base: Sequence[torch.Tensor], taught: Sequence[torch.Tensor]
) -> list[Row]:
    """Return rows that compare clips without and with the LoRA, for prompts of the concept and known prompts."""
    rows: list[Row] = []
    for name, of, without, with_lora in zip(("its", "known"), prompts, base, taught, strict=True):
        shown, right = (
            {"ours": share(verdict, with_lora, of.specs), "reference": share(verdict, without, of.specs)}
            for verdict in (lambda clip, _: shows(clip, concept), is_right)
        )
        rows.append({"case": f"shown, of {len(of.specs)} {name} prompts", **shown})
        if name == "known" or concept in (*tiny_world.NEW_SHAPES, *tiny_world.MANNERS):
            rows.append({"case": f"fully right, of {len(of.specs)} {name} prompts", **right})
    return rows


def share(verdict: Verdict, clips: Sequence[torch.Tensor], specs: Sequence[tiny_world.Spec]) -> float:
    """Return the share of clips for which a verdict is true, 0 to 1."""
    return sum(map(verdict, clips, specs)) / len(specs)


# ---- teaching -------------------------------------------------------------------------------------------------------


def settings_for(workspace: Workspace, concept: str, model: str) -> TrainSettings:
    """Return nearly the demo's settings with the model's recipe, for the rendered and imported clips."""
    with tempfile.TemporaryDirectory() as folder:
        tiny_world.write_demo_clips(Path(folder), concept)
        for name in (concept, demo.KNOWN):
            Dataset.ensure(workspace, name).import_files([Path(folder) / name])
    resolved = find_model(model)
    taught = demo.teach(concept, demo.KNOWN)
    missing = {name: TrainSettings().model_dump()[name] for name in absent(TrainSettings, resolved)}
    return taught.changed(model=model, **missing, **suggest("style", resolved).settings)


def train(workspace: Workspace, settings: TrainSettings, name: str) -> tuple[Path, list[Row]]:
    """Train a real run and return its LoRA, time, held-out loss and leak."""
    run = Run.create(workspace, settings, name)
    status = finish(run)
    assert run.lora is not None
    assert status.started_at is not None
    assert status.ended_at is not None
    metrics = run.metrics
    steps = [line for line in metrics if "loss" in line]
    rows: list[Row] = [
        {"case": "whole run, seconds", "ours": status.ended_at - status.started_at},
        {"case": "first to last step, seconds", "ours": steps[-1]["time"] - steps[0]["time"] + steps[0]["seconds"]},
        {"case": "steps alone, seconds", "ours": sum(line["seconds"] for line in steps)},
    ]
    losses = [line["held_out_loss"] for line in metrics if "held_out_loss" in line]
    rows.append({"case": "held-out loss, after and before", "ours": losses[-1], "reference": losses[0]})
    changes = [line for line in metrics if line.get("change_own")]
    if changes:
        leak = changes[-1]["change_others"] / changes[-1]["change_own"]
        rows.append({"case": "leak as the run measures it", "ours": leak})
    return run.lora, rows


def finish(run: Run) -> Status:
    """Train to the end."""
    run.start()
    status = run.wait()
    assert status.state == State.FINISHED, log_tail(run.folder)
    return status


def trained(workspace: Workspace, settings: TrainSettings, name: str) -> Run:
    """Return a finished run of this name: one that is there, resumed if it was killed, or a new one."""
    begun = [run for run in Run.all(workspace) if run.folder.name == name]
    run = begun[0] if begun else Run.create(workspace, settings, name)
    if run.lora is None:
        run.start(from_start=True)  # also if it was killed before its first checkpoint
        finish(run)
    assert run.lora is not None
    return run


@contextmanager
def lora_on(pipeline: tiny_models.Pipeline, lora: Path) -> Iterator[None]:
    """Return the stock pipeline with a LoRA file loaded."""
    pipeline.load_lora_weights(lora.parent, weight_name=lora.name, adapter_name="lora")
    assert pipeline.get_list_adapters().get("transformer") == ["lora"]
    yield
    pipeline.unload_lora_weights()


# ---- showing --------------------------------------------------------------------------------------------------------


def contact_sheet(base: torch.Tensor, taught: torch.Tensor, path: Path) -> None:
    """Write first, middle and last frame of each sample, base on the left, LoRA on the right, enlarged three times."""
    from PIL import Image

    rows = []
    for left, right in zip(base, taught, strict=True):
        rows.append(torch.cat([clip[:, index] for clip in (left, right) for index in (0, 4, 8)], dim=2))
    half = len(rows) // 2
    sheet = torch.cat([torch.cat(rows[:half], dim=1), torch.cat(rows[half : 2 * half], dim=1)], dim=2)
    pixels = ((sheet.clamp(-1, 1) + 1) * 127.5).round().byte().permute(1, 2, 0).numpy()
    image = Image.fromarray(pixels)
    image.resize((image.width * 3, image.height * 3), Image.Resampling.NEAREST).save(path)


def filmstrips(rows: Sequence[Sequence[torch.Tensor]], path: Path, enlarged: int = 3) -> None:
    """Write rows of clips [3, F, H, W] in [-1, 1], each as its first, middle and last frame."""
    from PIL import Image

    lines = [
        torch.cat([torch.cat([clip[:, index] for index in (0, 4, 8)], dim=2) for clip in row], dim=2) for row in rows
    ]
    pixels = ((torch.cat(lines, dim=1).clamp(-1, 1) + 1) * 127.5).round().byte().permute(1, 2, 0).numpy()
    image = Image.fromarray(pixels)
    path.parent.mkdir(parents=True, exist_ok=True)
    size = image.width * enlarged, image.height * enlarged
    image.resize(size, Image.Resampling.NEAREST).save(path, lossless=True)


def measure(model: Model, concept: str, options: argparse.Namespace) -> list[Row]:
    """Teach one concept to one model and compare."""
    steps, sheets = options.steps, options.sheets
    pipeline = stock(model)
    prompts = prompts_of(concept, options.seed, options.prompts)
    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace.open(Path(folder))
        settings = settings_for(workspace, concept, model.id).changed(device="cpu", preview_every=0)
        lora, trained = train(workspace, settings.changed(steps=steps) if steps else settings, concept)
        base = [part.generate(pipeline, model) for part in prompts]
        with lora_on(pipeline, lora) if pipeline else nullcontext():
            taught = [part.generate(pipeline, model, (str(lora),)) for part in prompts]
    if sheets:
        sheets.mkdir(parents=True, exist_ok=True)
        for name, without, with_lora in zip(("its", "known"), base, taught, strict=True):
            contact_sheet(without, with_lora, sheets / f"{model.id}-{concept}-{name}.png")
    return compare(concept, prompts, base, taught) + trained


def main() -> None:
    parser = arguments(__doc__.splitlines()[0], models=["tiny-cogvideox"], concepts=["stripes"], steps=2, prompts=1)
    embedded = [model.id for model in models() if model.embedded]
    parser.add_argument("--models", nargs="+", choices=embedded, default=embedded)
    parser.add_argument("--concepts", nargs="+", choices=tiny_world.CONCEPTS, help="instead of three for each model")
    parser.add_argument("--steps", type=int, help="instead of the demo's")
    parser.add_argument("--prompts", type=int, help="limit for each kind")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sheets", type=Path, help="also write contact sheets into this folder")
    options = parser.parse_args()
    rows = []
    for name in options.models:
        _, model = find_model(name)
        for concept in options.concepts or CONCEPTS[model.task]:
            for row in measure(model, concept, options):
                rows.append({"reference": "", **row, "case": f"{name}, {concept}: {row['case']}"})
    report([{"case": row["case"], "ours": row["ours"], "reference": row["reference"]} for row in rows], options.json)


if __name__ == "__main__":
    main()
