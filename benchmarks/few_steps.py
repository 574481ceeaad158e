"""Does training a LoRA on a few-step model break it, and what prevents that? Measured on a distilled miniature.

    python benchmarks/few_steps.py --json benchmarks/results/few_steps_cpu.json --sheet docs/images/few_steps.webp

The built-in model is distilled once: a LoRA learns to take one step without guidance where the model takes six guided
steps, so that 4 steps replace 24 (a *speed LoRA*). With this LoRA fused, it is a few-step model. Then a concept,
stripes, is taught in three ways with equal settings:

    directly            on the few-step model, like on an ordinary one
    training adapter    the same, with a LoRA that undoes the distillation during training only; like published
                        adapters, it was trained on clips that the few-step model generated
    base model          on the model before its distillation; the speed LoRA is loaded with it when sampling

Each is sampled with the few-step model in 4 steps without guidance. "shown" is the share of the concept's prompts that
show it, "known" the share of known prompts that are fully right, and "sharp" the variance of a sample's gradient
relative to clips made in 24 guided steps. The last row of each seed is the LoRA of the base model in 24 guided steps,
like previews without a speed LoRA. Results are saved after each run. With --models and --workspace a killed benchmark
resumes: what was distilled, generated and trained is kept, and only sampled again. Folders that were made with other
options are refused.
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import concepts
import tiny_models
import tiny_world
import torch
from common import arguments, machine, report
from torch.nn.functional import interpolate

from workbench import demo
from workbench.dataset_builder import Dataset
from workbench.families import default_model, find_model
from workbench.families.facts import ALL_LINEAR
from workbench.families.model_inputs import CallInputs
from workbench.runs.settings import TrainSettings
from workbench.trainer import lora
from workbench.workspace import Workspace

CONCEPT, GENERATED = "stripes", "generated"
FEW, MANY = 4, 24  # denoising steps
WAYS = ("directly", "training adapter", "base model")
SHAPE: dict[str, Any] = {
    "frames": tiny_world.FRAMES,
    "height": tiny_world.SIZE,
    "width": tiny_world.SIZE,
    "fps": tiny_world.FPS,
}
MADE_WITH = ("steps", "trajectories", "distil_steps", "distil_batch", "generated", "adapter_steps")
Row = dict[str, Any]


# ---- the model for few steps


@torch.no_grad()
def way_points(pipeline: tiny_models.Pipeline, captions: Sequence[str], seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the model's guided path from noise.

    Latents [N, FEW + 1, ...] before every sixth step, and the embeddings [N, L, D] of the captions.
    """
    found, texts = [], []
    for first in range(0, len(captions), 16):
        part, states = list(captions[first : first + 16]), []

        def keep(
            _: Any, step: int, __: Any, given: dict[str, Any], states: list[torch.Tensor] = states
        ) -> dict[str, Any]:
            if (step + 1) % (MANY // FEW) == 0:
                states.append(given["latents"].clone())
            return given

        generators = [torch.Generator().manual_seed(seed + first + index) for index in range(len(part))]
        shape = pipeline(
            prompt=part,
            num_frames=tiny_world.FRAMES,
            num_inference_steps=MANY,
            guidance_scale=tiny_models.GUIDANCE,
            max_sequence_length=pipeline.transformer.config.max_text_seq_length,
            generator=generators,
            output_type="latent",
            callback_on_step_end=keep,
            callback_on_step_end_tensor_inputs=["latents"],
        ).frames.shape
        generators = [torch.Generator().manual_seed(seed + first + index) for index in range(len(part))]
        begin = torch.cat([torch.randn(1, *shape[1:], generator=one) for one in generators])
        found.append(torch.stack([begin, *states], dim=1))
        length = pipeline.transformer.config.max_text_seq_length
        texts.append(pipeline.encode_prompt(part, do_classifier_free_guidance=False, max_sequence_length=length)[0])
    return torch.cat(found), torch.cat(texts)


def distil(pipeline: tiny_models.Pipeline, path: Path, options: argparse.Namespace) -> None:
    """Train the speed LoRA, which predicts in one step what leads to the next way point, and write it."""
    family, model = find_model(default_model())
    specs = tiny_world.balanced_choice(tiny_world.training_specs(), options.trajectories, seed=1)
    points, texts = way_points(pipeline, [spec.caption() for spec in specs], seed=10_000)
    transformer = family.load_transformer(Path(model.source), torch.device("cpu"), torch.float32)
    settings = TrainSettings(model=default_model()).changed(rank=32, alpha=32.0, targets=ALL_LINEAR)
    parameters = [parameter for _, parameter in lora.attach(family, transformer, settings, seed=0)]
    optimizer = torch.optim.AdamW(parameters, lr=2e-3, weight_decay=0.0)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.distil_steps)
    cumulative = torch.cat([pipeline.scheduler.alphas_cumprod, pipeline.scheduler.final_alpha_cumprod[None]])
    pipeline.scheduler.set_timesteps(FEW)
    times = pipeline.scheduler.timesteps
    after = torch.cat([times[1:], torch.tensor([-1])])  # the last entry of `cumulative`
    draw = torch.Generator().manual_seed(0)
    for _ in range(options.distil_steps):
        one = torch.randint(len(points), (options.distil_batch,), generator=draw)
        at = torch.randint(FEW, (options.distil_batch,), generator=draw)
        begin, end = points[one, at], points[one, at + 1]
        signal, noise, later, rest = (
            part.view(-1, 1, 1, 1, 1)
            for which in (times[at], after[at])
            for part in (cumulative[which].sqrt(), (1 - cumulative[which]).sqrt())
        )
        # A step of DDIM is linear in the predicted velocity: the one that ends at the way point.
        wanted = (end - (later * signal + rest * noise) * begin) / (rest * signal - later * noise)
        predicted = family.call(transformer, CallInputs(begin, {"prompt_embeds": texts[one]}, times[at]))
        loss = (predicted - wanted).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
    lora.write(family, transformer, path, {})


def fused(path: Path, folder: Path) -> Path:
    """Write the built-in model with a fused LoRA to a folder."""
    source = Path(find_model(default_model())[1].source)
    shutil.copytree(source, folder, ignore=shutil.ignore_patterns("transformer"))
    pipeline = tiny_models.load(source)
    pipeline.load_lora_weights(path.parent, weight_name=path.name)
    pipeline.fuse_lora(components=["transformer"])
    pipeline.unload_lora_weights()
    pipeline.transformer.save_pretrained(folder / "transformer")
    return folder


# ---- the runs


class Bench:
    """The models, the datasets and the prompts."""

    def __init__(self, workspace: Workspace, folder: Path, options: argparse.Namespace) -> None:
        self.workspace, self.options = workspace, options
        self.base = tiny_models.load(Path(find_model(default_model())[1].source))
        self.speed, self.few = folder / "speed.safetensors", folder / "few"
        if not self.speed.exists():
            distil(self.base, self.speed, options)
        if not self.few.exists():
            fused(self.speed, self.few)
        self.distilled = tiny_models.load(self.few)
        self.prompts = concepts.prompts_of(CONCEPT, 1, options.prompts)
        self.gradient = 1.0
        self.clean = self.samples(self.base, MANY)[0]
        self.gradient = gradient(self.clean[1])
        with tempfile.TemporaryDirectory() as clips:
            tiny_world.write_demo_clips(Path(clips), CONCEPT)
            for name in (CONCEPT, demo.KNOWN):
                dataset, drawn = Dataset.ensure(workspace, name), list((Path(clips) / name).glob("*.mp4"))
                if len(dataset.clips) < len(drawn):
                    dataset.import_files([Path(clips) / name])
        self.adapter = self.make_adapter()

    def samples(
        self, pipeline: tiny_models.Pipeline, steps: int, loras: Sequence[Path] = ()
    ) -> tuple[list[torch.Tensor], Row]:
        """Sample prompts of the concept and known prompts, and judge them."""
        found, began = [], time.perf_counter()
        with ExitStack() as stack:
            if loras:
                for number, path in enumerate(loras):
                    pipeline.load_lora_weights(path.parent, weight_name=path.name, adapter_name=f"lora{number}")
                pipeline.set_adapters([f"lora{number}" for number in range(len(loras))])
                stack.callback(pipeline.unload_lora_weights)
            guidance = tiny_models.GUIDANCE if steps == MANY else 1.0
            for part in self.prompts:
                captions = [spec.caption() for spec in part.specs]
                found.append(tiny_models.sample(pipeline, captions, steps, guidance, part.seed))
        seconds = (time.perf_counter() - began) / sum(map(len, found))
        own, known = found
        told = {
            "shown": concepts.share(lambda clip, _: concepts.shows(clip, CONCEPT), own, self.prompts[0].specs),
            "known": concepts.share(concepts.is_right, known, self.prompts[1].specs),
            "sharp": gradient(known) / self.gradient,
            "seconds a clip": seconds,
        }
        return found, told

    def make_adapter(self) -> Path:
        """Train an ordinary LoRA on clips from the few-step model, which undoes the distillation, and return it."""
        options = self.options
        dataset = Dataset.ensure(self.workspace, GENERATED)
        if len(dataset.clips) < options.generated:
            specs = tiny_world.balanced_choice(tiny_world.training_specs(), options.generated, seed=2)
            clips = tiny_models.sample(self.distilled, [spec.caption() for spec in specs], FEW, 1.0, seed=20_000)
            with tempfile.TemporaryDirectory() as folder:
                for number, (spec, clip) in enumerate(zip(specs, clips, strict=True)):
                    large = interpolate(clip, scale_factor=4, mode="nearest")
                    tiny_world.write_clip(large, Path(folder) / f"{number:03d}.mp4")
                    (Path(folder) / f"{number:03d}.txt").write_text(spec.caption() + "\n", encoding="utf-8")
                dataset.import_files([Path(folder)])
        settings = demo.teach(GENERATED, demo.KNOWN).changed(
            model=str(self.few),
            regularization_dataset=None,
            learning_rate=1e-3,
            held_out=0,
            **self.quick(options.adapter_steps),
        )
        run = concepts.trained(self.workspace, settings, "adapter")
        assert run.lora is not None
        return run.lora

    def quick(self, steps: int) -> dict[str, Any]:
        nothing_else = {"preview_every": 0, "evaluate_every": 0, "save_every": steps, "device": "cpu"}
        return {**SHAPE, **nothing_else, "steps": steps, "warmup_steps": min(20, steps - 1)}

    def measure(self, way: str, seed: int) -> list[tuple[Row, list[torch.Tensor]]]:
        """Train the concept in one way and return rows and samples."""
        settings = demo.teach(CONCEPT, demo.KNOWN).changed(
            model=default_model() if way == "base model" else str(self.few),
            training_adapter=str(self.adapter) if way == "training adapter" else None,
            regularization_target="clips",
            seed=seed,
            **self.quick(self.options.steps),
        )
        run = concepts.trained(self.workspace, settings, f"{way.replace(' ', '-')}-{seed}")
        assert run.lora is not None
        found = []
        if way != "base model":
            samples, told = self.samples(self.distilled, FEW, [run.lora])
            return [({"case": f"{way}, {FEW} steps", "seed": seed, **told}, samples)]
        samples, told = self.samples(self.base, FEW, [run.lora, self.speed])
        found.append(({"case": f"{way} and speed LoRA, {FEW} steps", "seed": seed, **told}, samples))
        samples, told = self.samples(self.base, MANY, [run.lora])
        found.append(({"case": f"{way}, {MANY} guided steps", "seed": seed, **told}, samples))
        return found


def gradient(clips: Sequence[torch.Tensor]) -> float:
    """Return the mean square of differences between neighboring pixels."""
    return float(sum(clip.diff(dim=-1).square().mean() for clip in clips) / len(clips))


def main() -> None:
    least = dict.fromkeys(("prompts", "trajectories", "generated", "distil_batch"), 1)
    parser = arguments(__doc__.splitlines()[0], seeds=[1], steps=2, distil_steps=1, adapter_steps=2, **least)
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--steps", type=int, default=200, help="steps of a run that teaches the concept")
    parser.add_argument("--trajectories", type=int, default=192, help="trajectories for the distillation")
    parser.add_argument("--distil-steps", type=int, default=500)
    parser.add_argument("--distil-batch", type=int, default=16)
    parser.add_argument("--generated", type=int, default=48, help="clips for the training adapter")
    parser.add_argument("--adapter-steps", type=int, default=200)
    parser.add_argument("--prompts", type=int, default=32, help="untrained prompts of each kind")
    parser.add_argument("--models", type=Path, help="folder that keeps the distilled model")
    parser.add_argument("--workspace", type=Path, help="folder that keeps datasets and runs")
    parser.add_argument("--sheet", type=Path, help="also write a sheet of the first seed's samples to this file")
    options = parser.parse_args()
    rows = list[Row]()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.models or Path(scratch) / "models"
        workspace = Workspace.open(options.workspace or Path(scratch) / "workspace")
        for place in (folder, workspace.root):
            place.mkdir(parents=True, exist_ok=True)
            kept, made = place / "made_with.json", {name: getattr(options, name) for name in MADE_WITH}
            if kept.exists() and json.loads(kept.read_text()) != made:
                parser.error(f"{place} was made with {kept.read_text()}: choose an empty folder, or the same options")
            kept.write_text(json.dumps(made))
        bench = Bench(workspace, folder, options)
        shown = list[list[torch.Tensor]]()
        for case, pipeline, steps, loras in (
            (f"base model, {MANY} guided steps", bench.base, MANY, ()),
            (f"base model, {FEW} steps", bench.base, FEW, ()),
            (f"model for few steps, {FEW} steps", bench.distilled, FEW, ()),
            (f"the same with its training adapter, {FEW} steps", bench.distilled, FEW, (bench.adapter,)),
        ):
            samples, told = bench.samples(pipeline, steps, loras)
            rows.append({"case": case, "seed": "", **told})
            shown.append(list(samples[1][:6]))
        for seed in options.seeds:
            for way in options.ways:
                for row, samples in bench.measure(way, seed):
                    rows.append(row)
                    print(json.dumps(row), flush=True)
                    if seed == options.seeds[0]:
                        shown += [list(clips[:6]) for clips in samples]
                if options.json:
                    options.json.write_text(json.dumps({**machine(), "rows": rows}, indent=2) + "\n")
            if options.sheet and seed == options.seeds[0]:
                concepts.filmstrips(shown, options.sheet)
    report(rows, options.json)


if __name__ == "__main__":
    main()
