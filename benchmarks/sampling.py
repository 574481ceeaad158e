"""Compare our samples with the stock pipeline: seconds, and similarity of the videos, by mode.

    python benchmarks/sampling.py                                       the built-in models, on this CPU
    python benchmarks/sampling.py --models 2b 5b --json benchmarks/results/sampling.json       on a GPU

Both run in turn in one process, with the same prompt, seed, steps and file; the ratio is the median of the rounds,
"error" its standard error, and "cpu_ratio" that of the CPU time, which other processes change less. "psnr" is the
lowest of the videos against the stock pipeline's, "psnr_mean" their mean, in decibels: 50 or more looks identical.
There are 16 prompts, one a round. On a GPU the weights are random (2B and 5B, 50 steps, 49x480x720). Time and memory do
not depend on learned values, but the similarity of videos with skipped steps or 8 bits does, so psnr says little there.
Each program is loaded, measured and released alone: "peak_gb" and "reference_peak_gb" are its own. The case "switching"
is about the sampling worker: a second sample with another LoRA against a cold start.
"""

from __future__ import annotations

import gc
import json
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import arguments, published, report
from random_models import MEDIUM, SMALL_VAE, write_model

from workbench import demo
from workbench.clips import media
from workbench.families import find_model
from workbench.families.cogvideox.family import FAMILY
from workbench.families.model_files import part_folder
from workbench.jobs.devices import pick_device
from workbench.runs.settings import TrainSettings
from workbench.sampler import queue
from workbench.sampler.generate import Sampler
from workbench.sampler.settings import SampleSettings, Speed
from workbench.trainer.lora import attach, write
from workbench.workspace import Workspace

MODES: tuple[Speed, ...] = ("exact", "fast", "low-memory")
SEED, PATIENCE = 7, 600.0
Generate = Callable[..., np.ndarray]  # number of the prompt, steps or 0 for the model's -> uint8 [F, H, W, 3]
WARM_UP_STEPS = 4  # on a GPU, where the first call compiles and fills caches


@dataclass(frozen=True)
class Case:
    """What to generate: the model, the stock pipeline's class; given: image, video or nothing."""

    title: str
    model: str
    pipeline: str
    given: str = ""
    strength: float = 0.6  # of a change to a video


CASES = {
    "text": Case("text-to-video", "tiny-cogvideox", "CogVideoXPipeline"),
    "wan": Case("text-to-video, Wan", "tiny-wan", "WanPipeline"),
    "image": Case("image-to-video", "tiny-cogvideox-i2v", "CogVideoXImageToVideoPipeline", "image"),
    "video": Case("video-to-video", "tiny-cogvideox", "CogVideoXVideoToVideoPipeline", "video"),
}


def prompts() -> list[str]:
    """Return 16 prompts: the demo's, and captions of clips that the built-in models know."""
    captions = sorted((demo.PROMPTS.parent / demo.KNOWN).glob("*.txt"))
    return [*demo.prompts(), *(file.read_text(encoding="utf-8").strip() for file in captions)][:16]


def stock(case: Case, files: dict[str, Path], device: torch.device) -> Generate:
    """Run the stock pipeline, from a prompt and a file to frames."""
    import diffusers
    from PIL import Image

    family, model = find_model(case.model)
    folder = Path(model.source)
    dtype = getattr(torch, family.auto_dtype(family.stored_dtype(folder))) if device.type == "cuda" else torch.float32
    home, own = part_folder(folder, "vae").parent, {}
    if home != folder:  # a built-in model that takes all parts but the transformer from another folder
        own["transformer"] = diffusers.CogVideoXTransformer3DModel.from_pretrained(folder / "transformer")
    pipeline = getattr(diffusers, case.pipeline).from_pretrained(home, torch_dtype=dtype, **own).to(device)
    pipeline.set_progress_bar_config(disable=True)
    tokens = family.facts(model).text_tokens

    def given() -> dict[str, Any]:
        if "image" in files:
            return {"num_frames": model.frames, "image": Image.open(files["image"])}
        if "video" in files:
            frames = media.read_frames(files["video"], range(model.frames))
            return {"video": [Image.fromarray(frame) for frame in frames], "strength": case.strength}
        return {"num_frames": model.frames}

    def generate(number: int, steps: int = 0) -> np.ndarray:
        frames = pipeline(
            prompt=prompts()[number],
            height=model.height,
            width=model.width,
            num_inference_steps=steps or model.steps,
            guidance_scale=model.guidance_scale,
            generator=torch.Generator().manual_seed(SEED),
            max_sequence_length=tokens,
            output_type="np",
            **given(),
        ).frames[0]
        return (frames * 255).round().astype(np.uint8)

    return generate


def ours(case: Case, mode: Speed, workspace: Workspace, files: dict[str, Path], device: str = "cpu") -> Generate:
    """Return our sampler, loaded for the mode."""
    sampler = Sampler(
        case.model, pick_device(device), lambda _: None, "low-memory" if mode == "low-memory" else "exact"
    )
    more: dict[str, Any] = {name: str(path) for name, path in files.items()}
    if "video" in files:
        more["strength"] = case.strength

    def generate(number: int, steps: int = 0) -> np.ndarray:
        asked = SampleSettings(model=case.model, device=device, seed=SEED).changed(
            prompt=prompts()[number], speed=mode, steps=steps or None, **more
        )
        return sampler.generate(workspace, asked).frames

    return generate


def timed(generate: Generate, number: int) -> tuple[float, float, np.ndarray]:
    """Return (seconds, CPU seconds, frames) of a sample."""
    began, worked = time.perf_counter(), time.process_time()
    frames = generate(number)
    return time.perf_counter() - began, time.process_time() - worked, frames


def decibels(one: np.ndarray, other: np.ndarray) -> float:
    return float(10 * np.log10(255**2 / max(float(np.square(one.astype(float) - other).mean()), 1e-6)))


def error(ratios: list[float]) -> float:
    """Return the standard error of the mean."""
    return statistics.stdev(ratios) / math.sqrt(len(ratios)) if len(ratios) > 1 else math.nan


def compare(case: Case, modes: Sequence[Speed], rounds: int, workspace: Workspace) -> list[dict[str, Any]]:
    """Return a row per mode."""
    files = given_files(case, workspace)
    theirs = stock(case, files, torch.device("cpu"))
    rows = []
    for mode in modes:
        mine = ours(case, mode, workspace, files)
        pairs, worked, alike = [], [], []
        for number in (-1, *range(rounds)):
            order = (mine, theirs) if number % 2 else (theirs, mine)  # the second one finds a busier machine
            done = {generate: timed(generate, number % len(prompts())) for generate in order}
            (a, cpu, here), (b, their_cpu, there) = done[mine], done[theirs]
            if number >= 0:  # the first round warms both up
                pairs.append((a, b))
                worked.append(cpu / their_cpu)
                alike.append(decibels(here, there))
        a, b = (statistics.median(column) for column in zip(*pairs, strict=True))
        ratios = [mine / theirs for mine, theirs in pairs]
        row = {"ours": a, "reference": b, "ratio": statistics.median(ratios), "error": error(ratios)}
        rows.append({"case": f"seconds a sample, {case.title}", "mode": mode, **row})
        rows[-1] |= {"cpu_ratio": statistics.median(worked), "psnr": min(alike), "psnr_mean": statistics.mean(alike)}
    return rows


def given_files(case: Case, workspace: Workspace) -> dict[str, Path]:
    """Return files by setting: a lossless clip of the model's size, or its first frame."""
    from PIL import Image

    if not case.given:
        return {}
    model = find_model(case.model)[1]
    side = np.linspace(0, 255, model.width).astype(np.uint8)
    frames = [
        np.stack([np.tile(np.roll(side, 2 * t + 9 * c), (model.height, 1)) for c in range(3)], -1)
        for t in range(model.frames)
    ]
    path = workspace.root / ("first.png" if case.given == "image" else "clip.mp4")
    if case.given == "image":
        Image.fromarray(frames[0]).save(path)
    else:
        media.encode(np.stack(frames), path, model.fps)
    return {case.given: path}


# ---- a second LoRA against a cold start


def lora(path: Path, seed: int) -> Path:
    _, model = find_model("tiny-cogvideox")
    transformer = FAMILY.load_transformer(Path(model.source), torch.device("cpu"), torch.float32)
    attach(FAMILY, transformer, TrainSettings(dataset="none", rank=16, alpha=16.0), seed=seed)
    for name, parameter in transformer.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.02)
    write(FAMILY, transformer, path, {"base_model": model.id})
    return path


def switching(workspace: Workspace, rounds: int) -> dict[str, Any]:
    """Compare the worker's second sample, with another LoRA, with its first after a cold start."""
    files = [lora(workspace.root / f"{seed}.safetensors", seed) for seed in (1, 2, 3)]
    asked = [SampleSettings(prompt=prompts()[0], device="cpu", loras=(str(path),)) for path in files]

    def seconds(settings: SampleSettings) -> float:
        began = time.perf_counter()
        done = queue.wait(workspace, queue.submit(workspace, settings), PATIENCE, poll=0.01)
        assert done.video is not None, done.message
        return time.perf_counter() - began

    cold, warm = [], []
    for _ in range(rounds):
        queue.stop_worker(workspace, 30)
        cold.append(seconds(asked[0]))
        warm += [seconds(asked[1]), seconds(asked[2])]
    queue.stop_worker(workspace, 30)
    a, b = statistics.median(warm), statistics.median(cold)
    spread = error([mine / b for mine in warm])
    title = "seconds from asking to the video, another LoRA against a cold start"
    row = {"case": title, "mode": "exact", "ours": a, "reference": b, "ratio": a / b, "error": spread}
    return row | {"cpu_ratio": "", "psnr": "", "psnr_mean": ""}


# ---- the real sizes, on a GPU


def real_size(name: str, mode: Speed, steps: int, folder: Path) -> dict[str, Any]:
    """Measure one mode of a random model of a published size; "medium" is one that a CPU can run."""
    if name == "medium":
        path = write_model(folder / name, MEDIUM, SMALL_VAE, torch.float32)
    else:
        model = f"cogvideox-{name}"
        dtype = torch.float16 if name == "2b" else torch.bfloat16
        path = write_model(folder / name, published(model, "transformer"), published(model, "vae"), dtype)
    case, device = Case(name, str(path), "CogVideoXPipeline"), pick_device("auto")
    workspace = Workspace.open(folder / "workspace")
    mine, peak, here = alone(lambda: ours(case, mode, workspace, {}, "auto"), steps)
    theirs, their_peak, there = alone(lambda: stock(case, {}, torch.device(device.torch_name)), steps)
    shape = "x".join(map(str, here.shape[:3]))
    found: dict[str, Any] = {"case": f"seconds a sample, {name}, {steps} steps, {shape}", "mode": mode}
    found |= {"ours": mine, "reference": theirs, "ratio": mine / theirs, "error": ""}
    found |= {"cpu_ratio": "", "psnr": decibels(here, there), "psnr_mean": ""}
    return found | {"peak_gb": peak, "reference_peak_gb": their_peak}


def alone(load: Callable[[], Generate], steps: int) -> tuple[float, float, np.ndarray]:
    """Return (seconds, peak GB, frames) of a sample by a program that is loaded, warmed up and released here."""
    on_gpu = torch.cuda.is_available()
    generate = load()
    generate(0, WARM_UP_STEPS)
    if on_gpu:
        torch.cuda.reset_peak_memory_stats()
    seconds, _, frames = timed(partial(generate, steps=steps), 1)
    peak = torch.cuda.max_memory_allocated() / 1e9 if on_gpu else 0.0
    del generate
    gc.collect()
    if on_gpu:
        torch.cuda.empty_cache()
    return seconds, peak, frames


def main() -> None:
    parser = arguments((__doc__ or "").splitlines()[0], rounds=1, cases=["text", "switching"], modes=["exact"])
    parser.add_argument("--models", nargs="+", choices=["tiny", "medium", "2b", "5b"], default=["tiny"])
    parser.add_argument(
        "--cases",
        nargs="+",
        choices=[*CASES, "switching"],
        default=[*CASES, "switching"],
        help="of the built-in models",
    )
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES))
    parser.add_argument("--rounds", type=int, default=16, help="of the built-in models")
    parser.add_argument("--steps", type=int, default=50, help="of the random models")
    parser.add_argument("--work", type=Path, metavar="FOLDER", help="keep random models here for the next call")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as temporary:
        workspace = Workspace.open(Path(temporary) / "workspace")
        for name in options.models:
            if name == "tiny":
                for case in options.cases:
                    if case in CASES:
                        rows += compare(CASES[case], options.modes, options.rounds, workspace)
                    else:
                        rows.append(switching(workspace, 1 if options.smallest else 3))
                continue
            for mode in options.modes:
                rows.append(real_size(name, mode, options.steps, options.work or Path(temporary)))
                print(json.dumps(rows[-1]), flush=True)
    report(rows, options.json)


if __name__ == "__main__":
    main()
