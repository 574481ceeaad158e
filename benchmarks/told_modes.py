"""Teach the tiny Wan to follow inputs: both end frames, a prefix, a control video, a reference.

    python benchmarks/told_modes.py --json benchmarks/results/told_modes_cpu.json --sheets docs/images
    python benchmarks/told_modes.py --modes control --write-clips clips      only the mode's clips and captions

Each mode is a real run on a few dozen clips of 64x64, sampled like `workbench sample` with its inputs, from clips that
neither the model nor the LoRA was trained on. All numbers are measured on decoded frames:

- first+last: striped clips, which the model never saw. "last frame off": root mean square difference of the last frame
  from the given one, in levels of 255.
- extension: five frames are given, four follow. "joint": the jump after the given frames relative to the clip's usual
  steps (workbench.clips.frame_metrics.joint; 1 is an invisible joint), and the share of samples with at most 1.2.
- control: captions without the shape, each of which fits clips of several shapes. The edges show it. "shape": the share
  of samples with the shape of the edges.
- reference: captions without the color, each of which fits clips of several colors. The reference is another clip, with
  another shape on another background, in that color. "color": the share of samples in it.

No LoRA is trained on the captions of the last two modes' tests. Their clips are new, but the base model knows their
combinations of color, shape, direction and background. Measures with "never seen" have combinations that it does not
know: it was trained on the same caption with every value but the one that is asked for, so it expects another.

"before" is the base model with the same inputs, "after" with the LoRA, "real" the clips themselves through the VAE.
Judged by assets/tiny_check.py. Results are saved after each run, and runs in the file are not repeated.
"""

from __future__ import annotations

import json
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from statistics import mean
from typing import Any

import concepts
import numpy as np
import tiny_check
import tiny_world
import torch
from common import arguments, report, write
from PIL import Image
from torch import Tensor

from workbench.clips import frame_metrics, made, media
from workbench.dataset_builder import Dataset, companions
from workbench.families.facts import ALL_LINEAR
from workbench.runs.settings import TrainSettings
from workbench.sampler.settings import SampleSettings
from workbench.workspace import Workspace

MODELS = {"text": "tiny-wan", "frames": "tiny-wan-i2v", "control": "tiny-wan-control"}
TOYS = {"text": "text", "frames": "image-2.1", "control": "control"}  # random models, for the smallest size
SIZE, CLIPS, PROMPTS, SHOWN = 64, 192, 32, 6
NEVER_SEEN = 16  # tests with combinations that the base model does not know
AMBIGUOUS = 128  # ambiguous captions
CONTROLS, REFERENCES = 4, 7  # clips of each: one for each shape, one for each color
EVEN = {"timestep_density": "uniform", "timestep_shift": 5}  # more of high noise, where shape and color are settled
PREFIX = 5
JOINT = 1.2
EDGE_STEP = 120  # as the model's own control videos were made (assets/train_tiny_wan.py)
GENTLE = {"learning_rate": 1e-3}  # the base model knows given frames already
Row = dict[str, Any]


@dataclass(frozen=True)
class Example:
    """A clip [3, F, H, W] in [-1, 1], its caption, and the video linked to it."""

    spec: tiny_world.Spec
    caption: str
    clip: Tensor
    beside: Tensor | None = None


@dataclass(frozen=True)
class Mode:
    """A kind of input.

    Attributes:
        model: One of MODELS.
        settings: Additional settings of the run.
        kind: The kind of file linked to each clip, or "".
        examples: Makes examples of specifications, with their own randomness.
        told: Writes the inputs of a sample into a folder.
        judge: Measures a sample [F, H, W, 3].
        wanted: The expected result, by measure.
    """

    model: str
    settings: dict[str, Any]
    kind: str
    train: Sequence[tiny_world.Spec]
    test: Sequence[tiny_world.Spec]
    example: Callable[[tiny_world.Spec, random.Random], Example]
    told: Callable[[Example, Path], dict[str, Any]]
    judge: Callable[[np.ndarray, Example], dict[str, float]]
    wanted: dict[str, str]


# ---- clips and their inputs


def pixels(clip: Tensor) -> np.ndarray:
    """Return a clip [3, F, H, W] in [-1, 1] as uint8 [F, H, W, 3]."""
    found: np.ndarray = ((clip.clamp(-1, 1) + 1) * 127.5).round().byte().permute(1, 2, 3, 0).contiguous().numpy()
    return found


def tensor(frames: np.ndarray) -> Tensor:
    """Return uint8 [F, H, W, 3] as a clip [3, F, H, W] in [-1, 1]."""
    return torch.from_numpy(np.array(frames)).permute(3, 0, 1, 2).float() / 127.5 - 1


def plain(spec: tiny_world.Spec, rng: random.Random) -> Example:
    """Return a clip with its own caption."""
    return Example(spec, spec.caption(), tiny_world.draw(spec, rng, SIZE))


def with_edges(spec: tiny_world.Spec, rng: random.Random) -> Example:
    """Return a caption without the shape, which the edges linked to the clip show."""
    clip = tiny_world.draw(spec, rng, SIZE)
    edges = [made.changed_picture("edges", "control", frame, EDGE_STEP) for frame in pixels(clip)]
    caption = f"a {spec.colour} shape moves {spec.motion} on a {spec.background} background"
    return Example(spec, caption, clip, tensor(np.stack(edges)))


def with_reference(spec: tiny_world.Spec, rng: random.Random) -> Example:
    """Return a caption without the color, with a reference of another shape, background and direction."""
    shape = rng.choice([one for one in tiny_world.SHAPES if one != spec.shape])
    motion = rng.choice([one for one in tiny_world.MOTIONS if one != spec.motion])
    ground = rng.choice([one for one in tiny_world.COLOURS if one not in (spec.background, spec.colour)])
    other = tiny_world.Spec(shape, spec.colour, motion, ground)
    caption = f"a {spec.shape} moves {spec.motion} on a {spec.background} background"
    return Example(spec, caption, tiny_world.draw(spec, rng, SIZE), tiny_world.draw(other, rng, SIZE))


def ends(example: Example, folder: Path) -> dict[str, Any]:
    frames = pixels(example.clip)
    for name, frame in (("first", frames[0]), ("last", frames[-1])):
        Image.fromarray(frame).save(folder / f"{name}.png")
    return {"image": str(folder / "first.png"), "last_image": str(folder / "last.png")}


def beginning(example: Example, folder: Path) -> dict[str, Any]:
    media.encode(pixels(example.clip)[:PREFIX], folder / "begun.mp4", tiny_world.FPS, crf=None)
    return {"continue_from": str(folder / "begun.mp4"), "kept_frames": PREFIX, "tell_frames": True}


def beside(kind: str, example: Example, folder: Path) -> dict[str, Any]:
    assert example.beside is not None
    media.encode(pixels(example.beside), folder / f"{kind}.mp4", tiny_world.FPS, crf=None)
    return {kind: str(folder / f"{kind}.mp4")}


# ---- judging


def judged(frames: np.ndarray) -> tiny_check.Finding:
    return tiny_check.inspect(tensor(frames))


def last_frame(frames: np.ndarray, example: Example) -> dict[str, float]:
    away = frames[-1].astype(np.float32) - pixels(example.clip)[-1]
    return {"last frame off, of 255": float(np.sqrt((away**2).mean()))}


def joint(frames: np.ndarray, example: Example) -> dict[str, float]:
    jump = frame_metrics.joint(frames, PREFIX)
    assert jump is not None
    return {"joint": jump, f"joints of {JOINT} or less": float(jump <= JOINT)}


def shape(frames: np.ndarray, example: Example) -> dict[str, float]:
    return {"shape of the edges" + of_base(example): float(judged(frames).shape == example.spec.shape)}


def color(frames: np.ndarray, example: Example) -> dict[str, float]:
    found = judged(frames)
    return {
        "color of the reference" + of_base(example): float(found.colour == example.spec.colour),
        "all else as the caption says": float(
            (found.shape, found.motion, found.background)
            == (example.spec.shape, example.spec.motion, example.spec.background)
        ),
    }


def of_base(example: Example) -> str:
    """Return what to add to a measure for combinations that the base model was not trained on."""
    return ", never seen" if example.spec in tiny_world.held_out() else ""


def values(part: str, spec: tiny_world.Spec) -> list[str]:
    """Return what `part`, "shape" or "colour", may be in a specification."""
    return [*tiny_world.SHAPES] if part == "shape" else [one for one in tiny_world.COLOURS if one != spec.background]


def told_apart(part: str) -> list[tiny_world.Spec]:
    """Return test clips: some that the base model knows with captions of held-out ones, and some held-out ones."""
    known, found = set(tiny_world.training_specs()), []
    held_out = tiny_world.balanced_choice(tiny_world.held_out(), PROMPTS, seed=9)
    used: Counter[str] = Counter()
    for spec in held_out:
        others = [value for value in values(part, spec) if replace(spec, **{part: value}) in known]
        value = min(others, key=lambda one: used[one])
        used[value] += 1
        found.append(replace(spec, **{part: value}))
    return found + held_out[:NEVER_SEEN]


def ambiguous(part: str, variants: int) -> list[tiny_world.Spec]:
    """Choose clips whose captions without `part`, "shape" or "colour", fit several of them, so that none gives it away.

    Each caption gets `variants` clips, or one for each value that the part may have, whichever is less.

    Otherwise a LoRA learns each clip's part by heart from its caption and ignores the file linked to the clip. Captions
    of the test are not among them: they would come with every value but the one that the test asks for.
    """
    tested = {replace(spec, **{part: ""}) for spec in tiny_world.held_out()}
    captions = {replace(spec, **{part: ""}): spec for spec in tiny_world.training_specs()}
    left, found = [spec for caption, spec in captions.items() if caption not in tested], list[tiny_world.Spec]()
    for number, spec in enumerate(tiny_world.balanced_choice(left, min(AMBIGUOUS, len(left)), seed=8)):
        choices = values(part, spec)
        found += [
            replace(spec, **{part: choices[(number + step) % len(choices)]})
            for step in range(min(variants, len(choices)))
        ]
    return found


def modes(variants: int | None = None) -> dict[str, Mode]:
    """Return the modes by name. Tests use no clip that the model or the LoRA was trained on.

    variants: clips of each ambiguous caption, instead of the mode's own number.
    """
    striped, striped_others = tiny_world.concept_specs("stripes")
    known = tiny_world.balanced_choice(tiny_world.training_specs(), CLIPS, seed=8)
    others = tiny_world.balanced_choice(tiny_world.held_out(), PROMPTS, seed=9)
    return {
        "first+last": Mode(
            model="frames",
            settings={"given": ["first+last 1"], **GENTLE},
            kind="",
            train=striped,
            test=striped_others[:PROMPTS],
            example=plain,
            told=ends,
            judge=last_frame,
            wanted={"last frame off, of 255": "after < before"},
        ),
        "extension": Mode(
            model="frames",
            settings={"given": [f"prefix {PREFIX} 1"], **GENTLE},
            kind="",
            train=known,
            test=others,
            example=plain,
            told=beginning,
            judge=joint,
            wanted={"joint": f"<= {JOINT}"},
        ),
        "control": Mode(
            model="control",
            settings={"control": True, "steps": 2000, **EVEN},
            kind="control",
            train=ambiguous("shape", variants or CONTROLS),
            test=told_apart("shape"),
            example=with_edges,
            told=partial(beside, "control"),
            judge=shape,
            wanted={"shape of the edges": ">= 0.9"},
        ),
        "reference": Mode(
            model="text",
            settings={"reference": True, "steps": 2000, **EVEN},
            kind="reference",
            train=ambiguous("colour", variants or REFERENCES),
            test=told_apart("colour"),
            example=with_reference,
            told=partial(beside, "reference"),
            judge=color,
            wanted={"color of the reference": ">= 0.9"},
        ),
    }


def write_clips(name: str, mode: Mode, folder: Path) -> dict[str, Example]:
    """Write the clips that a mode trains on, with their captions, and return the examples by file name."""
    rng, examples = random.Random(f"{name}, trained"), dict[str, Example]()
    folder.mkdir(parents=True, exist_ok=True)
    for number, spec in enumerate(mode.train):
        example = mode.example(spec, rng)
        examples[f"{number:02d}.mp4"] = example
        media.encode(pixels(example.clip), folder / f"{number:02d}.mp4", tiny_world.FPS, crf=None)
        (folder / f"{number:02d}.txt").write_text(example.caption + "\n", encoding="utf-8")
    return examples


# ---- training and sampling


class Bench:
    """A mode's dataset, its test examples, and the base model's results."""

    def __init__(self, workspace: Workspace, name: str, mode: Mode, model: str, most: int | None) -> None:
        self.workspace, self.name, self.mode, self.model = workspace, name, mode, model
        rng = random.Random(f"{name}, tried")
        self.tried = [mode.example(spec, rng) for spec in mode.test[:most]]
        self.folder = workspace.root / "tried" / name
        self.told = []
        for number, example in enumerate(self.tried):
            folder = self.folder / str(number)
            folder.mkdir(parents=True, exist_ok=True)
            self.told.append(mode.told(example, folder))
        self.dataset = name.replace("+", "-")
        if len(Dataset.ensure(workspace, self.dataset).clips) < len(mode.train):
            self.make_dataset()

    def make_dataset(self) -> None:
        dataset = Dataset.ensure(self.workspace, self.dataset)
        with tempfile.TemporaryDirectory() as folder:
            examples = write_clips(self.name, self.mode, Path(folder))
            dataset.import_files([Path(folder)])
            wanted = []
            for clip in dataset.clips if self.mode.kind else ():
                example = examples[Path(clip.source).name]
                assert example.beside is not None
                file = Path(folder) / f"{clip.id}.mp4"
                media.encode(pixels(example.beside), file, tiny_world.FPS, crf=None)
                wanted.append((clip, self.mode.kind, file))
            if wanted:
                companions.attach_all(dataset.folder, wanted, made=True)

    def samples(self, seed: int, loras: Sequence[str] = ()) -> list[np.ndarray]:
        """Return a sample per prompt, each from its own noise."""
        sampler, found = concepts.sampler(self.model), []
        for number, (example, told) in enumerate(zip(self.tried, self.told, strict=True)):
            settings = SampleSettings().changed(
                model=self.model, prompt=example.caption, seed=1000 * seed + number, device="cpu", loras=loras, **told
            )
            settings = settings.changed(frames=tiny_world.FRAMES, height=SIZE, width=SIZE, **SAMPLED)
            found.append(np.asarray(sampler.generate(self.workspace, settings).frames))
        return found

    @cached_property
    def real(self) -> list[np.ndarray]:
        """The clips themselves, encoded and decoded."""
        family, sampler = concepts.sampler(self.model).family, concepts.sampler(self.model)
        vae, found = family.load_vae(sampler.folder, torch.device("cpu"), torch.float32), []
        for example in self.tried:
            latents = family.encode_video(vae, example.clip[None])["mean"]
            found.append(pixels(family.decode(vae, latents)[0]))
        return found

    def judge(self, samples: Sequence[np.ndarray]) -> dict[str, list[float]]:
        """Return each measure of the samples that have it."""
        found: dict[str, list[float]] = {}
        for frames, example in zip(samples, self.tried, strict=True):
            for name, value in self.mode.judge(frames, example).items():
                found.setdefault(name, []).append(value)
        return found

    def train(self, seed: int, steps: int | None) -> tuple[Path, float]:
        """Train a real run, or resume one that was killed, and return its LoRA and seconds per step."""
        settings = TrainSettings().changed(
            **{**RECIPE, **self.mode.settings, "model": self.model, "dataset": self.dataset, "seed": seed}
        )
        settings = settings.changed(steps=steps) if steps else settings
        settings = settings.changed(save_every=-(-settings.steps // 5), warmup_steps=min(20, settings.steps - 1))
        run = concepts.trained(self.workspace, settings, f"{self.dataset}-{seed}")
        assert run.lora is not None
        losses = [line for line in run.metrics if "loss" in line]
        return run.lora, mean(line["seconds"] for line in losses)


RECIPE: dict[str, Any] = {
    "steps": 600,
    "batch_size": 8,
    "learning_rate": 2e-3,
    "lr_schedule": "cosine",
    "caption_dropout": 0.0,
    "rank": 16,
    "alpha": 64.0,
    "targets": ALL_LINEAR,
    "held_out": 0,
    "preview_every": 0,
    "evaluate_every": 0,
    "frames": tiny_world.FRAMES,
    "height": SIZE,
    "width": SIZE,
    "device": "cpu",
}
# Without guidance: with 3, the base model's joints (seed 1) are 1.26 instead of 0.98.
SAMPLED: dict[str, Any] = {"steps": 25, "guidance_scale": 1.0}


def measure(bench: Bench, seed: int, steps: int | None, sheet: Path | None) -> list[Row]:
    """Train one LoRA and compare."""
    lora, seconds = bench.train(seed, steps)
    before, after, real = bench.samples(seed), bench.samples(seed, [str(lora)]), bench.real
    if sheet:
        told = [tensor(frames) for frames in real[:SHOWN]]
        if bench.mode.kind:
            told = [example.beside for example in bench.tried[:SHOWN] if example.beside is not None]
        rows = [told, *([tensor(frames) for frames in samples[:SHOWN]] for samples in (before, after))]
        concepts.filmstrips(rows, sheet / f"told_{bench.dataset}.webp", 2)
    first, then, best = (bench.judge(samples) for samples in (before, after, real))
    return [
        {
            "mode": bench.name,
            "seed": seed,
            "measure": name,
            "before": mean(first[name]),
            "after": mean(then[name]),
            "real": mean(best[name]),
            "wanted": bench.mode.wanted.get(name, ""),
            "samples": len(then[name]),
            "seconds a step": seconds,
        }
        for name in first
    ]


def main() -> None:
    parser = arguments(
        (__doc__ or "").splitlines()[0],
        seeds=[1],
        steps=2,
        prompts=1,
        variants=1,
        models=[],
        modes=["extension", "reference"],
    )
    parser.add_argument("--write-clips", type=Path, metavar="FOLDER", help="only write the modes' clips and captions")
    parser.add_argument("--modes", nargs="+", choices=modes(), default=list(modes()))
    parser.add_argument("--models", nargs=3, default=list(MODELS.values()), help="models for text, frames and control")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1, 2, 3])
    parser.add_argument("--steps", type=int, help="instead of each mode's own")
    parser.add_argument("--variants", type=int, help="clips of each ambiguous caption, instead of each mode's own")
    parser.add_argument("--prompts", type=int, help="limit")
    parser.add_argument("--recipe", type=json.loads, default={}, help="other settings of the runs, as JSON")
    parser.add_argument("--sheets", type=Path, help="also write a sheet of the first seed's samples into this folder")
    parser.add_argument(
        "--workspace", type=Path, help="keep one recipe's datasets and runs here, so that a killed benchmark can resume"
    )
    options = parser.parse_args()
    known = modes(options.variants)
    if options.write_clips:
        for name in options.modes:
            write_clips(name, known[name], options.write_clips)
        return
    rows: list[Row] = json.loads(options.json.read_text())["rows"] if options.json and options.json.exists() else []
    there = {(row["mode"], row["seed"]) for row in rows}
    RECIPE.update(options.recipe)
    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace.open(options.workspace or Path(folder) / "workspace")
        models = dict(zip(MODELS, options.models, strict=False))
        if options.smallest:
            SAMPLED["steps"] = 2
            models = {name: _toy(Path(folder), variant) for name, variant in TOYS.items()}
        for name in options.modes:
            if all((name, seed) in there for seed in options.seeds):
                continue
            mode = known[name]
            bench = Bench(workspace, name, mode, models[mode.model], options.prompts)
            for seed in options.seeds:
                if (name, seed) in there:
                    continue
                sheet = options.sheets if seed == options.seeds[0] else None
                rows += measure(bench, seed, options.steps, sheet)
                print(json.dumps(rows[-1]), flush=True)
                if options.json:
                    write(rows, options.json)
    report(rows, options.json)


def _toy(folder: Path, variant: str) -> str:
    from workbench.families.wan import FAMILY

    return FAMILY.toy(folder / variant, variant).source


if __name__ == "__main__":
    main()
