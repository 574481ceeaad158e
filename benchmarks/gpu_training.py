"""Measure a training step of the real models on a GPU: seconds and peak memory at each level of the memory ladder.

    python benchmarks/gpu_training.py --json benchmarks/results/gpu_training.json       all models and levels, on a GPU
    python benchmarks/gpu_training.py --models tiny                                     the same code on a CPU

Real configurations, but random weights, latents and embeddings: speed and memory do not depend on learned values. LoRA
of rank 64, one clip per batch, published frame counts and sizes. Every row is measured in a separate process, with
references and ours in turn: "diffusers" is the step of the diffusers example (bf16 base, checkpointing of whole blocks,
weighted x0 loss), "finetune" that of CogVideo/finetune, whose base stays in fp32. "share" is the time of the work that
the step cannot avoid (one forward pass, and the backward pass of activations without frozen weights), at this card's
rate for large bf16 matrix products, over the measured time. `--profile FOLDER` also writes the slowest kernels.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from common import arguments, published, report
from random_models import SEED, random_transformer

from workbench.families.cogvideox import family as cogvideox
from workbench.families.cogvideox.family import FAMILY
from workbench.families.model_inputs import ModelInputs
from workbench.families.noise_schedules import VelocitySchedule
from workbench.runs.settings import TrainSettings
from workbench.trainer import optimizers
from workbench.trainer.trainable import Trainable, apply_memory_levels, begins_on_host

RANK, WARM_UP, STEPS = 64, 3, 5
GIGABYTE = 1e9


@dataclass(frozen=True)
class Size:
    """A model and its clip. latents: [frames, channels, height, width], as the transformer takes them."""

    config: dict[str, Any]
    latents: tuple[int, int, int, int]
    goals: str = ""


TINY = {
    "num_attention_heads": 2,
    "attention_head_dim": 32,
    "in_channels": 16,
    "out_channels": 16,
    "text_embed_dim": 64,
    "time_embed_dim": 64,
    "num_layers": 4,
    "sample_height": 8,
    "sample_width": 8,
    "sample_frames": 9,
    "max_text_seq_length": 16,
    "use_rotary_positional_embeddings": True,
}
SIZES = {
    "2b": Size(published("cogvideox-2b", "transformer"), (13, 16, 60, 90), "7.5 GB, 1.5 times the references"),
    "5b": Size(published("cogvideox-5b", "transformer"), (13, 16, 60, 90), "3.0 s; 20 GB in bf16; 10.5 GB in fp8"),
    "1.5-5b": Size(
        {**published("cogvideox1.5-5b", "transformer"), "sample_height": 96, "sample_width": 170},
        (22, 16, 96, 170),
        "20 GB",
    ),
    "tiny": Size(TINY, (3, 16, 8, 8)),
}
LEVELS: dict[str, dict[str, Any]] = {
    "none": {},
    "keep attention": {"gradient_checkpointing": "keep attention"},
    "full": {"gradient_checkpointing": "full"},
    "offloaded": {"gradient_checkpointing": "offloaded"},
    "none, compiled": {"compile": True},
    "keep attention, compiled": {"gradient_checkpointing": "keep attention", "compile": True},
    "full, compiled": {"gradient_checkpointing": "full", "compile": True},
    "offloaded, compiled": {"gradient_checkpointing": "offloaded", "compile": True},
    "fp8, keep attention, compiled": {
        "base_model_precision": "fp8",
        "gradient_checkpointing": "keep attention",
        "compile": True,
    },
    "fp8, full, compiled": {"base_model_precision": "fp8", "gradient_checkpointing": "full", "compile": True},
    "fp8, offloaded, compiled": {"base_model_precision": "fp8", "gradient_checkpointing": "offloaded", "compile": True},
    "int8, full, compiled": {"base_model_precision": "int8", "gradient_checkpointing": "full", "compile": True},
    "nf4, full, compiled": {"base_model_precision": "nf4", "gradient_checkpointing": "full", "compile": True},
    "nf4, offloaded, compiled": {"base_model_precision": "nf4", "gradient_checkpointing": "offloaded", "compile": True},
    "half streamed, offloaded": {"gradient_checkpointing": "offloaded", "blocks_to_swap": -2},
    "all streamed, offloaded": {"gradient_checkpointing": "offloaded", "blocks_to_swap": -1},
    "fp8, all streamed, offloaded": {
        "base_model_precision": "fp8",
        "gradient_checkpointing": "offloaded",
        "blocks_to_swap": -1,
    },
}
REFERENCES = ("diffusers", "finetune")


def batch(size: Size, device: torch.device, step: int) -> dict[str, torch.Tensor]:
    """Return random values of what the cache would give."""
    source = torch.Generator().manual_seed(step)
    shape = (1, *size.latents)
    config = size.config
    return {
        "latents": torch.randn(shape, generator=source).to(device),
        "noise": torch.randn(shape, generator=source).to(device),
        "timesteps": torch.randint(1000, (1,), generator=source).to(device),
        "text": torch.randn(1, config["max_text_seq_length"], config["text_embed_dim"], generator=source).to(device),
    }


def schedule(device: torch.device) -> Any:
    from diffusers import CogVideoXDDIMScheduler

    made = CogVideoXDDIMScheduler(prediction_type="v_prediction", rescale_betas_zero_snr=True, snr_shift_scale=1.0)
    made.alphas_cumprod = made.alphas_cumprod.to(device)
    return made


def autocast(device: torch.device) -> Any:
    return torch.autocast("cuda", torch.bfloat16) if device.type == "cuda" else contextlib.nullcontext()


def our_step(size: Size, level: dict[str, Any], device: torch.device) -> Callable[[int], None]:
    """Return the step of a run at a level: the computation of trainer.loop with the setup of trainer.session."""
    blocks = size.config["num_layers"]
    streamed = level.get("blocks_to_swap", 0)
    settings = TrainSettings().changed(
        rank=RANK,
        alpha=float(RANK),
        targets="attention",
        **{**level, "blocks_to_swap": -(-blocks // -streamed) if streamed < 0 else streamed},
    )
    dtype = torch.bfloat16 if device.type == "cuda" else torch.float32
    place = torch.device("cpu") if begins_on_host(settings) else device
    transformer = random_transformer(size.config, place, dtype)
    FAMILY.use_attention(transformer, settings.attention, device)
    trainable = Trainable(FAMILY, transformer, settings, SEED)
    apply_memory_levels(FAMILY, transformer, settings, device)
    optimizer = optimizers.build(settings, trainable.named)
    levels = VelocitySchedule(schedule(device).alphas_cumprod.float())
    transformer.train()

    def step(number: int) -> None:
        given = batch(size, device, number)
        with autocast(device):
            text = {"prompt_embeds": given["text"]}
            inputs = ModelInputs(given["latents"], text, given["noise"], given["timesteps"])
            each = FAMILY.loss(transformer, levels, inputs)
        each.mean().backward()
        torch.nn.utils.clip_grad_norm_(trainable.parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


def reference_step(size: Size, which: str, device: torch.device) -> Callable[[int], None]:
    """Return the step of a published trainer, with only the model on the GPU."""
    from peft import LoraConfig

    low = torch.bfloat16 if device.type == "cuda" else torch.float32
    transformer = random_transformer(size.config, device, torch.float32 if which == "finetune" else low)
    transformer.enable_gradient_checkpointing()
    transformer.add_adapter(LoraConfig(r=RANK, lora_alpha=RANK, target_modules=["to_q", "to_k", "to_v", "to_out.0"]))
    parameters = [parameter for parameter in transformer.parameters() if parameter.requires_grad]
    for parameter in parameters:
        parameter.data = parameter.data.float()
    optimizer = torch.optim.AdamW(parameters, lr=1e-4, betas=(0.9, 0.95), weight_decay=1e-4)
    scheduler = schedule(device)
    frames, _, height, width = size.latents
    rotary = cogvideox.rotary_embeddings(transformer.config, frames, height, width, device)
    transformer.train()

    def step(number: int) -> None:
        given = {
            name: tensor.to(low) if tensor.is_floating_point() else tensor
            for name, tensor in batch(size, device, number).items()
        }
        latents, timesteps = given["latents"], given["timesteps"]
        noisy = scheduler.add_noise(latents, given["noise"], timesteps)
        with autocast(device):
            output = transformer(noisy, given["text"], timesteps, image_rotary_emb=rotary, return_dict=False)[0]
            predicted = scheduler.get_velocity(output, noisy, timesteps)
            weights = (1 / (1 - scheduler.alphas_cumprod[timesteps])).view(-1, 1, 1, 1, 1)
            loss = torch.mean((weights * (predicted - latents) ** 2).reshape(1, -1), dim=1).mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return step


# ---- measuring


def needed(size: Size) -> float:
    """Return the floating-point operations that a step of a LoRA on frozen weights cannot avoid."""
    config = size.config
    frames, _, height, width = size.latents
    width_of_model = config["num_attention_heads"] * config["attention_head_dim"]
    patches = (height // 2) * (width // 2) * frames // (config.get("patch_size_t") or 1)
    tokens = patches + config["max_text_seq_length"]
    linear = 24 * tokens * width_of_model**2  # four projections and a feed-forward of four times the width
    attention = 4 * tokens**2 * width_of_model
    return float(config["num_layers"] * (2 * linear + 3 * attention))


def matrix_rate(device: torch.device) -> float:
    """Return the operations per second of a large bf16 product on this card."""
    side = 8192
    a, b = (torch.randn(side, side, device=device, dtype=torch.bfloat16) for _ in range(2))
    for _ in range(5):
        a @ b
    torch.cuda.synchronize()
    began = time.perf_counter()
    for _ in range(50):
        a @ b
    torch.cuda.synchronize()
    return 50 * 2 * side**3 / (time.perf_counter() - began)


def measure_one(model: str, level: str, profile: Path | None) -> dict[str, Any]:
    """Measure one row in this process."""
    on_gpu = torch.cuda.is_available() and model != "tiny"
    device, size = torch.device("cuda" if on_gpu else "cpu"), SIZES[model]
    torch.backends.cuda.matmul.allow_tf32 = True
    row: dict[str, Any] = {"model": model, "level": level}
    rate = matrix_rate(device) if on_gpu else 0.0
    step = reference_step(size, level, device) if level in REFERENCES else our_step(size, LEVELS[level], device)
    times = []
    for number in range(WARM_UP + STEPS):
        if on_gpu and number == 1:  # exclude the memory of loading
            torch.cuda.reset_peak_memory_stats()
        began = time.perf_counter()
        step(number)
        if on_gpu:
            torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    seconds = statistics.median(times[WARM_UP:])
    row |= {"seconds": seconds, "first_step": times[0]}
    if on_gpu:
        row |= {
            "peak_gb": torch.cuda.max_memory_allocated() / GIGABYTE,
            "reserved_gb": torch.cuda.max_memory_reserved() / GIGABYTE,
            "share": needed(size) / rate / seconds,
            "matrix_tflops": rate / 1e12,
        }
    if profile is not None:
        profiled(step, profile / f"{model} {level}.txt")
    return row


def profiled(step: Callable[[int], None], path: Path) -> None:
    kinds = [torch.profiler.ProfilerActivity.CPU]
    kinds += [torch.profiler.ProfilerActivity.CUDA] if torch.cuda.is_available() else []
    with torch.profiler.profile(activities=kinds) as found:
        step(WARM_UP + STEPS)
    by = "self_cuda_time_total" if torch.cuda.is_available() else "self_cpu_time_total"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(found.key_averages().table(sort_by=by, row_limit=40))


def measure(model: str, level: str, options: argparse.Namespace) -> dict[str, Any]:
    """Measure one row in a separate process, so that levels do not affect one another's memory."""
    command = [sys.executable, __file__, "--one", model, level]
    command += ["--profile", str(options.profile)] if options.profile else []
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode == 0:
        row: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
        return row
    lines = done.stderr.strip().splitlines() or [f"exit {done.returncode}"]
    return {"model": model, "level": level, "failed": lines[-1][:300]}


def main() -> None:
    parser = arguments((__doc__ or "").splitlines()[0], models=["tiny"], levels=["full"])
    parser.add_argument("--models", nargs="+", choices=SIZES, default=["2b", "5b", "1.5-5b"])
    parser.add_argument("--levels", nargs="+", choices=[*LEVELS, *REFERENCES], default=[*REFERENCES, *LEVELS])
    parser.add_argument("--profile", type=Path, help="also write the slowest kernels into this folder")
    parser.add_argument("--one", nargs=2, metavar=("MODEL", "LEVEL"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        model, level = options.one
        print(json.dumps(measure_one(model, level, options.profile)))
        return
    if "tiny" not in options.models and not torch.cuda.is_available():
        sys.exit("there is no GPU here: --models tiny shows that the harness runs")
    rows = []
    for model in options.models:
        for level in options.levels:
            rows.append(measure(model, level, options))
            print(json.dumps(rows[-1]), flush=True)
            if options.json:  # keep the measurements in any case
                options.json.parent.mkdir(parents=True, exist_ok=True)
                options.json.with_suffix(".partial.json").write_text(json.dumps(rows, indent=2))
    columns = list(dict.fromkeys(key for row in rows for key in row))
    card = torch.cuda.get_device_name() if torch.cuda.is_available() else "processor"
    report([{column: row.get(column, "") for column in columns} for row in rows], options.json, card=card)


if __name__ == "__main__":
    main()
