"""A grid of 3 prompts by (base, 3 checkpoints, 3 LoRA scales) on the built-in model: its time, and whether it is true.

    python benchmarks/grid.py

A short run of the demo makes the checkpoints; the grid is asked for once and drawn by the worker. Then every video of
it is drawn again by a stock diffusers pipeline with the same inputs, encoded the same way and compared: "psnr" is the
least of all, in decibels (50 or more cannot be told apart). The grid is then extended by one scale, which draws new
videos only. `--speed fast` states what that mode costs.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from common import arguments, report

from workbench import demo, jobs
from workbench.clips import media
from workbench.compare import Cell, CellState, Grid, GridSettings
from workbench.compare.suggestions import base_of
from workbench.families import find_model
from workbench.runs.run import Run
from workbench.sampler import queue
from workbench.sampler.loras import split_scale
from workbench.sampler.settings import SampleSettings
from workbench.workspace import Workspace

SCALES = ("0.5", "0.75", "1")
PATIENCE = 3600.0


def trained(workspace: Workspace, steps: int) -> Run:
    """A run with three checkpoints (two of a very short one), long enough for each to draw otherwise."""
    settings = demo.prepare(workspace).changed(
        steps=steps, save_every=max(1, steps // 3), preview_every=0, evaluate_every=0, keep_checkpoints=9, device="cpu"
    )
    run = Run.create(workspace, settings, "grid")
    run.start()
    status = run.wait(PATIENCE)
    assert status.state is jobs.State.FINISHED, status.message
    return run


def drawn(grid: Grid) -> float:
    """Seconds until all of the grid is there."""
    began = time.perf_counter()
    grid.ask()
    while (view := grid.look()).count(CellState.DONE) < len(view.all):
        failed = [cell.message for cell in view.all if cell.state is CellState.FAILED]
        assert not failed, failed[0]
        assert time.perf_counter() - began < PATIENCE
        queue.revive(grid.workspace)
        time.sleep(0.2)
    return time.perf_counter() - began


class Stock:
    """A stock pipeline, loaded once; LoRAs come and go through its own loader."""

    def __init__(self, model: str) -> None:
        from diffusers import CogVideoXPipeline

        self.model = find_model(model)[1]
        self.pipeline = CogVideoXPipeline.from_pretrained(self.model.source)
        self.pipeline.set_progress_bar_config(disable=True)

    def draw(self, settings: SampleSettings) -> np.ndarray:
        pipeline = self.pipeline
        pipeline.unload_lora_weights()
        for number, text in enumerate(settings.loras):
            file, scale = split_scale(text)
            pipeline.load_lora_weights(file, adapter_name=f"stock_{number}")
            pipeline.set_adapters(f"stock_{number}", scale)
        model = self.model
        scale = model.guidance_scale if settings.guidance_scale is None else settings.guidance_scale
        video = pipeline(
            prompt=settings.prompt, negative_prompt=settings.negative_prompt, guidance_scale=scale,
            num_frames=settings.frames or model.frames, height=settings.height or model.height,
            width=settings.width or model.width, num_inference_steps=settings.steps or model.steps,
            generator=torch.Generator().manual_seed(settings.seed or 0), output_type="np",
            max_sequence_length=pipeline.transformer.config.max_text_seq_length,
        ).frames[0]  # fmt: skip
        return (video * 255).round().astype(np.uint8)


def decibels(stock: Stock, cell: Cell, folder: Path) -> float:
    """How alike a cell's video and the stock pipeline's are."""
    assert cell.video is not None
    frames = stock.draw(cell.settings)
    media.encode(frames, folder / "stock.mp4", cell.record["fps"])
    one, other = (media.read_frames(path, range(len(frames))) for path in (cell.video, folder / "stock.mp4"))
    return float(10 * np.log10(255**2 / max(float(np.square(one.astype(float) - other).mean()), 1e-6)))


def measure(workspace: Workspace, options: argparse.Namespace) -> list[dict[str, Any]]:
    run, speed = trained(workspace, options.steps), options.speed
    settings = GridSettings(run=run.name).changed(
        prompts=list(demo.prompts()[: options.prompts]), checkpoints=["base", *map(str, sorted(run.checkpoints))],
        scales=list(SCALES[: options.scales]),
    )  # fmt: skip
    base = base_of(workspace, settings).changed(speed=speed)
    grid = Grid.create(workspace, settings, base)
    try:
        seconds = drawn(grid)
        cells = grid.look().all
        stock = Stock(run.settings.model)
        alike = [decibels(stock, cell, workspace.root) for cell in cells]
        before = {cell.key: cell.video.stat().st_mtime_ns for cell in cells if cell.video}
        grid.extend(scales=["1.25"])
        extended = drawn(grid)
        again = {key: grid.video(key).stat().st_mtime_ns for key in before}
        assert again == before, "a video was drawn twice"
        more = len(grid.look().all) - len(cells)
    finally:
        queue.stop_worker(workspace, 30)
    row = {"mode": speed, "psnr": min(alike), "psnr_median": float(np.median(alike))}
    return [
        {"case": f"seconds, a grid of {len(cells)} videos from a cold start", "ours": seconds, **row},
        {
            "case": f"seconds, one more scale: {more} videos",
            "ours": extended,
            "mode": speed,
            "psnr": "",
            "psnr_median": "",
        },
    ]


def main() -> None:
    parser = arguments((__doc__ or "").splitlines()[0], prompts=1, steps=2, scales=1)
    parser.add_argument("--speed", choices=["exact", "fast", "low-memory"], default="exact")
    parser.add_argument("--prompts", type=int, default=3)
    parser.add_argument("--scales", type=int, default=len(SCALES))
    parser.add_argument("--steps", type=int, default=60, help="of the run, which saves three times")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report(measure(Workspace.open(Path(folder) / "workspace"), options), options.json)


if __name__ == "__main__":
    main()
