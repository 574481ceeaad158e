"""What a processor cannot show: runs, samples and locks on an NVIDIA GPU, through the entry points that people use.

`pytest -m gpu tests/gpu tests/memory` runs them and the tests of tests/memory that take a device. Everything is small:
the built-in model and a random miniature.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.patience import PATIENCE
from workbench import jobs
from workbench.dataset_builder import Dataset
from workbench.families.model import Model
from workbench.jobs import State
from workbench.jobs.devices import gpus, pick_device
from workbench.runs.failures import fallback_record
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.sampler import queue
from workbench.sampler.generate import Sampler
from workbench.sampler.settings import SampleSettings
from workbench.workspace import Workspace

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no NVIDIA GPU here")]
LEVELS: dict[str, dict[str, Any]] = {
    "keep attention": {"gradient_checkpointing": "keep attention"},
    "full": {"gradient_checkpointing": "full"},
    "offloaded": {"gradient_checkpointing": "offloaded"},
    "swapped": {"gradient_checkpointing": "full", "blocks_to_swap": 1},
}


def settings_of(model: Model, **changed: Any) -> TrainSettings:
    small = {"rank": 4, "preview_every": 0, "evaluate_every": 0, "held_out": 1, "frames": 9, "save_every": 5}
    settings = TrainSettings(model=model.source, dataset="squares", tracker="none")
    return settings.changed(**{"device": "cuda", "steps": 10, **small, **changed})


def trained(workspace: Workspace, settings: TrainSettings, name: str) -> Run:
    run = Run.create(workspace, settings, name)
    run.start()
    assert run.wait(PATIENCE).state is State.FINISHED, jobs.log_tail(run.folder)
    return run


def weights(run: Run) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    assert run.lora is not None
    return load_file(run.lora)


def same(one: Run, other: Run) -> bool:
    ours, theirs = weights(one), weights(other)
    return ours.keys() == theirs.keys() and all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_the_gpu_is_found_and_taken(workspace: Workspace, dataset: Dataset, toy_model: Model) -> None:
    assert pick_device("auto").kind == "cuda"
    assert gpus()[0].total_gb > 1
    run = trained(workspace, settings_of(toy_model, device="auto"), "auto")
    assert any(line.get("memory_gb") for line in run.metrics)


@pytest.mark.parametrize("precision", ["auto", "bf16", "fp32"])
def test_a_run_ends_in_each_precision(workspace: Workspace, dataset: Dataset, toy_model: Model, precision: str) -> None:
    run = trained(workspace, settings_of(toy_model, precision=precision), precision)
    assert all(torch.isfinite(tensor).all() for tensor in weights(run).values())
    assert all(tensor.dtype == torch.float32 for tensor in weights(run).values())


def test_an_exact_run_is_the_same_twice_and_after_a_stop(
    workspace: Workspace, dataset: Dataset, toy_model: Model
) -> None:
    settings = settings_of(toy_model, exact=True, lora_dropout=0.1)
    once, twice = (trained(workspace, settings, name) for name in ("once", "twice"))
    assert same(once, twice)
    stopped = Run.create(workspace, settings.changed(steps=10), "stopped")
    stopped.start()
    end = time.monotonic() + PATIENCE
    while stopped.status.state.alive and stopped.status.step < 6 and time.monotonic() < end:
        time.sleep(0.01)
    stopped.stop()
    stopped.wait(PATIENCE)
    if stopped.status.state is not State.FINISHED:
        stopped.start()
        assert stopped.wait(PATIENCE).state is State.FINISHED, jobs.log_tail(stopped.folder)
    assert same(once, stopped)


@pytest.mark.parametrize("level", LEVELS)
def test_a_memory_level_gives_the_same_bits_on_a_gpu(
    workspace: Workspace, dataset: Dataset, toy_model: Model, level: str
) -> None:
    settings = settings_of(toy_model, exact=True)
    plain = trained(workspace, settings, "plain")
    assert same(plain, trained(workspace, settings.changed(**LEVELS[level]), "level"))


@pytest.mark.parametrize("precision", ["int8", "fp8", "nf4"])
def test_a_low_bit_base_trains(workspace: Workspace, dataset: Dataset, toy_model: Model, precision: str) -> None:
    run = trained(workspace, settings_of(toy_model, base_model_precision=precision), precision)
    assert all(torch.isfinite(tensor).all() for tensor in weights(run).values())


def test_compiled_blocks_train(workspace: Workspace, dataset: Dataset, toy_model: Model) -> None:
    plain = trained(workspace, settings_of(toy_model, steps=3), "plain")
    compiled = trained(workspace, settings_of(toy_model, steps=3, compile=True), "compiled")
    for name, tensor in weights(plain).items():
        torch.testing.assert_close(weights(compiled)[name], tensor, rtol=0.05, atol=1e-4)


def test_a_run_whose_memory_runs_out_goes_on(workspace: Workspace, dataset: Dataset, toy_model: Model) -> None:
    """The built-in model's batch is made large until what is left is too little for it without recomputing."""
    settings = settings_of(toy_model, model="tiny-cogvideox", batch_size=256, steps=2, save_every=1)
    plain = trained(workspace, settings, "plain")
    needed = max(line.get("memory_gb") or 0.0 for line in plain.metrics)
    free, _ = torch.cuda.mem_get_info()
    ballast = torch.empty(int(free - (0.6 * needed + 0.8) * 1024**3), dtype=torch.uint8, device="cuda")
    run = trained(workspace, settings, "short of memory")
    del ballast
    torch.cuda.empty_cache()
    assert fallback_record(run.folder)["after"]


def test_two_runs_take_turns(workspace: Workspace, dataset: Dataset, toy_model: Model) -> None:
    first = Run.create(workspace, settings_of(toy_model, steps=200), "first")
    second = Run.create(workspace, settings_of(toy_model), "second")
    first.start()
    second.start()
    waited = False
    while second.status.state.alive and first.status.state.alive:
        waited = waited or second.status.phase != "training"
        assert not (first.status.phase == second.status.phase == "training")
        time.sleep(0.05)
    assert second.wait(PATIENCE).state is State.FINISHED
    assert first.wait(PATIENCE).state is State.FINISHED
    assert waited


@pytest.mark.parametrize("speed", ["exact", "fast", "low-memory"])
def test_samples_are_generated_in_every_mode(workspace: Workspace, speed: Any) -> None:
    asked = SampleSettings(
        model="tiny-cogvideox", prompt="a red circle moves right", device="cuda", seed=3, speed=speed
    )
    sampler = Sampler(asked.model, pick_device("cuda"), lambda _: None, speed)
    one, other = (sampler.generate(workspace, asked).frames for _ in range(2))
    assert one.std() > 1
    assert (one == other).all()


def test_a_sampler_that_is_kept_warm_gives_the_gpu_to_a_run(
    workspace: Workspace, dataset: Dataset, toy_model: Model
) -> None:
    asked = SampleSettings(model="tiny-cogvideox", prompt="a red circle", device="cuda")
    done = queue.wait(workspace, queue.submit(workspace, asked), PATIENCE)
    assert done.video is not None, done.message
    try:
        trained(workspace, settings_of(toy_model), "run")
        again = queue.wait(workspace, queue.submit(workspace, asked), PATIENCE)
        assert again.video is not None, again.message
    finally:
        queue.stop_worker(workspace, 30)


def test_frames_are_the_processors_within_rounding(workspace: Workspace, tmp_path: Path) -> None:
    frames = {}
    for device in ("cuda", "cpu"):
        asked = SampleSettings(model="tiny-cogvideox", prompt="a blue square moves up", device=device, seed=5)
        frames[device] = Sampler(asked.model, pick_device(device), lambda _: None).generate(workspace, asked).frames
    difference = abs(frames["cuda"].astype(float) - frames["cpu"])
    assert difference.mean() < 2
