"""A sample of ours against the stock pipeline's call: seconds, and how alike the videos are, by mode.

    python benchmarks/sampling.py                                       the built-in models, on this processor
    python benchmarks/sampling.py --models 2b 5b --json benchmarks/results/sampling.json       on a GPU

Both run in one process in turn, with the same prompt, seed, steps and file; the ratio is the median of the rounds,
"error" its standard error. "psnr" is the least of the videos', in decibels, against the stock pipeline's: 50 or more
cannot be told apart. On a GPU the weights are random (2B and 5B, 50 steps, 49x480x720, bf16): time and memory do not
depend on what they have learned, but how alike videos with skipped steps are does: no psnr is given. The last row asks
the sampling worker: a second sample with another LoRA against a cold start.
"""

from __future__ import annotations

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
from common import arguments, report
from gpu_training import SIZES, random_transformer

from workbench import demo
from workbench.clips import media
from workbench.families import find_model
from workbench.families.cogvideox.facts import VAE
from workbench.families.cogvideox.family import FAMILY
from workbench.families.guidance import Guidance
from workbench.jobs.devices import pick_device
from workbench.runs.settings import TrainSettings
from workbench.sampler import queue
from workbench.sampler.generate import Sampler
from workbench.sampler.settings import SampleSettings
from workbench.trainer.model.lora import attach, write
from workbench.workspace import Workspace

MODES = ("exact", "fast", "low-memory")
SEED, PATIENCE = 7, 600.0
Generate = Callable[[int], np.ndarray]  # number of the prompt -> uint8 [F, H, W, 3]


@dataclass(frozen=True)
class Case:
    """What is generated: the model, the stock pipeline's class; given: image, video or nothing."""

    title: str
    model: str
    pipeline: str
    given: str = ""
    strength: float = 0.6  # of a change to a video


CASES = {
    "text": Case("text-to-video", "tiny-cogvideox", "CogVideoXPipeline"),
    "image": Case("image-to-video", "tiny-cogvideox-i2v", "CogVideoXImageToVideoPipeline", "image"),
    "video": Case("video-to-video", "tiny-cogvideox", "CogVideoXVideoToVideoPipeline", "video"),
}


def prompts() -> tuple[str, ...]:
    return demo.prompts()[:3]


def stock(case: Case, folder: Path, files: dict[str, Path]) -> Generate:
    """The stock pipeline's call, from a prompt and a file to frames."""
    import diffusers
    from PIL import Image

    pipeline = getattr(diffusers, case.pipeline).from_pretrained(folder)
    pipeline.set_progress_bar_config(disable=True)
    model = find_model(case.model)[1]
    tokens = pipeline.transformer.config.max_text_seq_length

    def given() -> dict[str, Any]:
        if "image" in files:
            return {"num_frames": model.frames, "image": Image.open(files["image"])}
        if "video" in files:
            frames = media.read_frames(files["video"], range(model.frames))
            return {"video": [Image.fromarray(frame) for frame in frames], "strength": case.strength}
        return {"num_frames": model.frames}

    def generate(number: int) -> np.ndarray:
        frames = pipeline(
            prompt=prompts()[number],
            height=model.height,
            width=model.width,
            num_inference_steps=model.steps,
            guidance_scale=model.guidance_scale,
            generator=torch.Generator().manual_seed(SEED),
            max_sequence_length=tokens,
            output_type="np",
            **given(),
        ).frames[0]
        return (frames * 255).round().astype(np.uint8)

    return generate


def ours(case: Case, mode: str, workspace: Workspace, files: dict[str, Path]) -> Generate:
    """Our sampler, loaded for the mode."""
    sampler = Sampler(case.model, pick_device("cpu"), lambda _: None, "low-memory" if mode == "low-memory" else "exact")
    more: dict[str, Any] = {name: str(path) for name, path in files.items()}
    if "video" in files:
        more["strength"] = case.strength

    def generate(number: int) -> np.ndarray:
        asked = SampleSettings(model=case.model, device="cpu", seed=SEED).changed(
            prompt=prompts()[number], speed=mode, **more
        )
        return sampler.generate(workspace, asked).frames

    return generate


def timed(generate: Generate, number: int) -> tuple[float, np.ndarray]:
    began = time.perf_counter()
    frames = generate(number)
    return time.perf_counter() - began, frames


def decibels(one: np.ndarray, other: np.ndarray) -> float:
    return float(10 * np.log10(255**2 / max(float(np.square(one.astype(float) - other).mean()), 1e-6)))


def error(ratios: list[float]) -> float:
    """The standard error of their middle."""
    return statistics.stdev(ratios) / math.sqrt(len(ratios)) if len(ratios) > 1 else math.nan


def compare(case: Case, modes: Sequence[str], rounds: int, workspace: Workspace) -> list[dict[str, Any]]:
    """A row a mode."""
    _, model = find_model(case.model)
    files = given_files(case, workspace)
    theirs = stock(case, Path(model.source), files)
    rows = []
    for mode in modes:
        mine = ours(case, mode, workspace, files)
        pairs, alike = [], []
        for number in (-1, *range(rounds)):
            order = (mine, theirs) if number % 2 else (theirs, mine)  # whoever comes second finds a busier machine
            done = {generate: timed(generate, number % 3) for generate in order}
            (a, here), (b, there) = done[mine], done[theirs]
            if number >= 0:  # the first warms both up
                pairs.append((a, b))
                alike.append(decibels(here, there))
        a, b = (statistics.median(column) for column in zip(*pairs, strict=True))
        ratios = [mine / theirs for mine, theirs in pairs]
        row = {"ours": a, "reference": b, "ratio": statistics.median(ratios), "error": error(ratios)}
        rows.append({"case": f"seconds a sample, {case.title}", "mode": mode, **row, "psnr": min(alike)})
    return rows


def given_files(case: Case, workspace: Workspace) -> dict[str, Path]:
    """Setting -> file: a clip of the model's size whose frames come back as they are, or its first frame."""
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
    """The worker's second sample, with another LoRA, against its first after a cold start."""
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
    return {"case": title, "mode": "exact", "ours": a, "reference": b, "ratio": a / b, "error": spread, "psnr": ""}


# ---- the real sizes, on a GPU


def on_gpu(name: str, steps: int, rounds: int) -> list[dict[str, Any]]:
    """Random weights: denoising and decoding, from embeddings to frames; a row a mode but `low-memory`."""
    from diffusers import AutoencoderKLCogVideoX, CogVideoXDPMScheduler, CogVideoXPipeline

    from workbench.memory import compiling

    device, size = torch.device("cuda"), SIZES[name]
    dtype = torch.float16 if name == "2b" else torch.bfloat16
    transformer = random_transformer(size.config, device, dtype)
    vae = AutoencoderKLCogVideoX(**{**VAE, "latent_channels": 16}).to(device, dtype).eval().requires_grad_(False)
    scheduler = CogVideoXDPMScheduler(
        prediction_type="v_prediction", rescale_betas_zero_snr=True, snr_shift_scale=1.0, timestep_spacing="trailing"
    )
    pipeline = CogVideoXPipeline(None, None, vae, transformer, scheduler)
    pipeline.set_progress_bar_config(disable=True)
    shape = (1, size.config["max_text_seq_length"], size.config["text_embed_dim"])
    text, negative = (torch.randn(shape, device=device, dtype=dtype) for _ in range(2))
    frames, _, tall, wide = size.latents
    length = (frames - 1) * 4 + 1

    def theirs() -> None:
        transformer.set_attn_processor(own)
        pipeline(
            prompt_embeds=text,
            negative_prompt_embeds=negative,
            num_frames=length,
            height=tall * 8,
            width=wide * 8,
            num_inference_steps=steps,
            guidance_scale=6.0,
            output_type="pt",
            generator=torch.Generator().manual_seed(SEED),
        )

    with tempfile.TemporaryDirectory() as folder:
        scheduler.save_pretrained(Path(folder) / "scheduler")
        own, rows = transformer.transformer_blocks[0].attn1.processor, []

        def mine(mode: str) -> None:
            FAMILY.use_attention(transformer, "auto", device)
            latents = FAMILY.denoise(
                transformer,
                Path(folder),
                text={"prompt_embeds": text},
                negative_text={"prompt_embeds": negative},
                latents_shape=size.latents,
                steps=steps,
                scheduler="DPM",
                guidance=Guidance(6.0),
                noise=torch.Generator().manual_seed(SEED),
                on_step=lambda *_: None,
                skip_steps=mode == "fast",
            )
            FAMILY.decode(vae, latents).cpu()

        for mode in ("exact", "fast"):
            pairs = []
            for number in range(rounds + 1):
                if mode == "fast":
                    compiling.compile_blocks(FAMILY.blocks(transformer))
                a = clock(partial(mine, mode))
                compiling.interpret_blocks(FAMILY.blocks(transformer))
                b = clock(theirs)
                if number:
                    pairs.append((a, b))
            a, b = (statistics.median(column) for column in zip(*pairs, strict=True))
            title = f"seconds a sample, {name}, {steps} steps, {length}x{tall * 8}x{wide * 8}"
            rows.append(
                {
                    "case": title,
                    "mode": mode,
                    "ours": a,
                    "reference": b,
                    "ratio": a / b,
                    "error": error([mine / theirs for mine, theirs in pairs]),
                    "psnr": "",
                    "peak_gb": torch.cuda.max_memory_allocated() / 1e9,
                }
            )
            print(json.dumps(rows[-1]), flush=True)
    return rows


def clock(function: Callable[[], None]) -> float:
    torch.cuda.synchronize()
    began = time.perf_counter()
    function()
    torch.cuda.synchronize()
    return time.perf_counter() - began


def main() -> None:
    parser = arguments((__doc__ or "").splitlines()[0], rounds=1, cases=["text"], modes=["exact"])
    parser.add_argument("--models", nargs="+", choices=["tiny", "2b", "5b"], default=["tiny"])
    parser.add_argument("--cases", nargs="+", choices=CASES, default=list(CASES), help="of the built-in models")
    parser.add_argument("--modes", nargs="+", choices=MODES, default=list(MODES), help="of the built-in models")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=50, help="of the models on a GPU")
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace.open(Path(folder) / "workspace")
        if "tiny" in options.models:
            for name in options.cases:
                rows += compare(CASES[name], options.modes, options.rounds, workspace)
            rows.append(switching(workspace, 1 if options.smallest else 3))
    for name in options.models:
        if name != "tiny":
            rows += on_gpu(name, options.steps, max(1, options.rounds // 4))
    report(rows, options.json)


if __name__ == "__main__":
    main()
