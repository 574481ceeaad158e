"""Compare every memory level with the plain model, on the built-in models: does it learn the same?

Each row is a level, through a run's own session on the demo's clips. "loss" and "gradients" are the largest relative
differences from the plain model (diffusers' attention, no recomputation, no rounding) in one step with a trained LoRA;
"cosine" compares all gradients; "held-out" is the loss on held-out clips after a short training, next to the plain
model's ("reference"); "step" is the time of a step relative to the plain model's, on a CPU, where no level is faster.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from accelerate.state import AcceleratorState
from common import arguments, report

from workbench import demo, jobs
from workbench.jobs.devices import pick_device
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.trainer.loop import train_step
from workbench.trainer.session import Session
from workbench.workspace import Workspace

PLAIN = "plain: diffusers' attention, all kept"
LEVELS: dict[str, dict[str, Any]] = {
    PLAIN: {"attention": "stock"},
    "own attention": {},
    "keep attention": {"gradient_checkpointing": "keep attention"},
    "full": {"gradient_checkpointing": "full"},
    "offloaded": {"gradient_checkpointing": "offloaded"},
    "full, 3 of 6 blocks streamed": {"gradient_checkpointing": "full", "blocks_to_swap": 3},
    "offloaded, all blocks streamed": {"gradient_checkpointing": "offloaded", "blocks_to_swap": 6},
    "compiled": {"compile": True},
    "compiled, keep attention": {"compile": True, "gradient_checkpointing": "keep attention"},
    "compiled, full": {"compile": True, "gradient_checkpointing": "full"},
    "int8": {"base_model_precision": "int8"},
    "fp8": {"base_model_precision": "fp8"},
    "nf4": {"base_model_precision": "nf4"},
    "fp8, compiled, keep attention": {
        "base_model_precision": "fp8",
        "compile": True,
        "gradient_checkpointing": "keep attention",
    },
    "nf4, offloaded, all blocks streamed": {
        "base_model_precision": "nf4",
        "gradient_checkpointing": "offloaded",
        "blocks_to_swap": 6,
    },
    "AdamW 8-bit": {"optimizer": "adamw-8bit"},
}
TIMED = 10
Gradients = dict[str, torch.Tensor]


def session(workspace: Workspace, settings: TrainSettings) -> Session:
    AcceleratorState._reset_state(reset_partial_state=True)
    run = Run.create(workspace, settings)
    return Session(jobs.Job(run.folder), settings, pick_device("cpu"))


def gradients(made: Session) -> tuple[float, Gradients]:
    """Return loss and gradients of the next step's batch, without changing the weights."""
    batch = made.inputs.batch(made.step + 1, 0)
    each = made.family.loss(made.transformer, made.schedule, batch.inputs)
    each.mean().backward()
    found = {name: parameter.grad.clone() for name, parameter in made.trainable.named if parameter.grad is not None}
    for _, parameter in made.trainable.named:
        parameter.grad = None
    return each.mean().item(), found


def joined(found: Gradients) -> torch.Tensor:
    return torch.cat([gradient.flatten() for gradient in found.values()])


def measure(workspace: Workspace, settings: TrainSettings, learned: dict[str, torch.Tensor]) -> dict[str, Any]:
    """Measure one level: gradients at the same trained weights, then a short training and its seconds per step."""
    made = session(workspace, settings)
    start = {name: parameter.detach().clone() for name, parameter in made.trainable.named}
    for name, parameter in made.trainable.named:
        parameter.data.copy_(learned.get(name, parameter))
    loss, found = gradients(made)
    for name, parameter in made.trainable.named:
        parameter.data.copy_(start[name])
    times = []
    while made.step < settings.steps:
        began = time.perf_counter()
        train_step(made)
        times.append(time.perf_counter() - began)
    if not learned:
        learned |= {name: parameter.detach().clone() for name, parameter in made.trainable.named}
        loss, found = gradients_at(made)
    made.evaluate()
    held_out = [line["held_out_loss"] for line in Run(made.run).metrics if "held_out_loss" in line][-1]
    made.close()
    return {"loss": loss, "gradients": found, "held_out": held_out, "step": statistics.median(times[-TIMED:])}


def gradients_at(made: Session) -> tuple[float, Gradients]:
    """Return loss and gradients of the first step's batch."""
    made.step, step = 0, made.step
    found = gradients(made)
    made.step = step
    return found


def rows(model: str, steps: int, levels: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace.open(Path(folder))
        settings = demo.prepare(workspace).changed(
            model=model,
            steps=steps,
            lr_schedule="constant",
            preview_every=0,
            evaluate_every=0,
            save_every=10**6,
            device="cpu",
            batch_size=4,
        )
        learned: dict[str, torch.Tensor] = {}
        plain, found = dict[str, Any](), []
        for name, values in levels.items():
            one = measure(workspace, settings.changed(**values), learned)
            plain = plain or one
            furthest = max(
                float((one["gradients"][key] - gradient).norm() / gradient.norm().clamp(min=1e-12))
                for key, gradient in plain["gradients"].items()
            )
            found.append(
                {
                    "case": f"{model}, {name}",
                    "loss": abs(one["loss"] / plain["loss"] - 1),
                    "gradients": furthest,
                    "cosine": float(
                        torch.cosine_similarity(joined(one["gradients"]), joined(plain["gradients"]), dim=0)
                    ),
                    "held-out": one["held_out"],
                    "reference": plain["held_out"],
                    "step": one["step"] / plain["step"],
                }
            )
    return found


def main() -> None:
    parser = arguments((__doc__ or "").splitlines()[0], models=["tiny-cogvideox"], steps=1, levels=["full"])
    parser.add_argument("--models", nargs="+", default=["tiny-cogvideox", "tiny-cogvideox-i2v"])
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--levels", nargs="+", choices=LEVELS, default=list(LEVELS))
    options = parser.parse_args()
    levels = {name: LEVELS[name] for name in dict.fromkeys([PLAIN, *options.levels])}
    report([row for model in options.models for row in rows(model, options.steps, levels)], options.json)


if __name__ == "__main__":
    main()
