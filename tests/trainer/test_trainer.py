"""The trainer as people run it: a real process on a run folder, on a random miniature model."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import time
from collections.abc import Callable

import pytest
import torch
from safetensors.torch import load_file

from tests.driving import create, session
from tests.patience import PATIENCE
from workbench import jobs
from workbench.dataset_builder import Dataset
from workbench.errors import ExitCode
from workbench.families import find_model
from workbench.families.model import Model
from workbench.jobs import State
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.runs.snapshot import snapshot
from workbench.trainer.encoder import Cache
from workbench.workspace import Workspace, read_json

pytestmark = pytest.mark.long

Start = Callable[..., Run]


@pytest.fixture
def start(workspace: Workspace, dataset: Dataset, toy_model: Model) -> Start:
    """Create and start a run of the toy model; settings by name."""

    def begin(name: str = "run", wait: bool = True, **values: object) -> Run:
        chosen = {
            "model": toy_model.source,
            "dataset": "squares",
            "steps": 6,
            "rank": 2,
            "learning_rate": 0.01,
            "preview_every": 0,
            "evaluate_every": 3,
            "save_every": 3,
            "held_out": 1,
            "warmup_steps": 2,
            **values,
        }
        run = Run.create(workspace, TrainSettings(**chosen), name)  # type: ignore[arg-type]
        run.start()
        if wait:
            run.wait(PATIENCE)
        return run

    return begin


def reach(run: Run, step: int) -> None:
    """Wait until the run has made that step."""
    end = time.monotonic() + PATIENCE
    while max((line["step"] for line in run.metrics if "loss" in line), default=0) < step:
        assert run.status.state.alive, jobs.log_tail(run.folder)
        assert time.monotonic() < end, f"step {step} was not reached: {jobs.log_tail(run.folder)}"
        time.sleep(0.005)


def digest(run: Run) -> str:
    assert run.lora is not None, jobs.log_tail(run.folder)
    return hashlib.sha256(run.lora.read_bytes()).hexdigest()


@pytest.mark.from_nothing
def test_a_run_leaves_everything_a_person_needs(start: Start) -> None:
    run = start(preview_every=3, preview_prompts=("a red square",), preview_steps=2)
    assert run.status.state == State.FINISHED, jobs.log_tail(run.folder)
    steps = [line for line in run.metrics if "loss" in line]
    assert [line["step"] for line in steps] == [1, 2, 3, 4, 5, 6]
    assert {"lr", "grad_norm", "samples", "seconds", "memory_gb", "time"} <= set(steps[0])
    assert [line["lr"] for line in steps[:3]] == pytest.approx([0.0, 0.005, 0.01])
    measured = {line["step"]: line["held_out_loss"] for line in run.metrics if "held_out_loss" in line}
    assert list(measured) == [0, 3, 6]
    assert measured[6] < measured[0]
    assert run.result["held_out_loss_before"] == measured[0]
    assert run.result["change"] > 0
    assert [(preview.step, preview.prompt) for preview in run.previews] == [(s, "a red square") for s in (0, 3, 6)]
    moved = {line["step"]: line["preview_changes"] for line in run.metrics if "preview_changes" in line}
    assert list(moved) == [3, 6]
    assert all(change > 0 for (change,) in moved.values()), "it trains fast enough to see"
    known = find_model(run.settings.model)[0].preservation_prompts[0]
    controls = snapshot(run).previews.controls
    assert [(one.step, one.prompt) for one in controls] == [(s, known) for s in (0, 3, 6)], "one a prompt"
    effects = {line["step"]: line for line in run.metrics if "visible_effect" in line}
    assert list(effects) == [3, 6]
    assert all(line["control_changes"][0] > 0 and line["visible_effect"] > 0 for line in effects.values())
    assert run.checkpoints == [3, 6]
    card = (run.folder / "README.md").read_text()
    assert "load_lora_weights" in card
    assert "zwx" in card
    assert "Videos from the same noise with and without it differ by" in card
    roles = [entry["role"] for entry in read_json(run.folder / "dataset.lock.json")]
    assert sorted(roles) == ["held_out", *["train"] * 5]


def test_killed_twice_and_resumed_it_ends_in_the_same_bytes(start: Start) -> None:
    """With all that draws random numbers at once; test_exact.py has the settings one by one, in one process."""
    values = {
        "steps": 14, "save_every": 4, "gradient_accumulation": 2, "batch_size": 3, "lora_dropout": 0.3,
        "lr_schedule": "cosine", "regularization_dataset": "squares", "gradient_checkpointing": "full",
    }  # fmt: skip
    whole = start("whole", **values)
    want, steps = digest(whole), [line for line in whole.metrics if "loss" in line]
    shutil.rmtree(whole.folder)
    killed = start("whole", wait=False, **values)
    for step in (3, 11):
        reach(killed, step)
        pid = killed.status.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        jobs.wait(killed.folder, PATIENCE)
        assert killed.status.state == State.DIED
        killed.start(from_start=True)  # the first kill comes before the first checkpoint
    assert killed.wait(PATIENCE).state == State.FINISHED, jobs.log_tail(killed.folder)
    assert digest(killed) == want
    assert [line["loss"] for line in killed.metrics if "loss" in line] == [line["loss"] for line in steps]


def test_stop_saves_and_start_goes_on(start: Start) -> None:
    run = start(steps=2000, save_every=2000, wait=False)
    reach(run, 3)
    run.stop()
    status = run.wait(PATIENCE)
    assert (status.state, status.exit_code) == (State.STOPPED, ExitCode.STOPPED)
    stopped_at = run.checkpoints[-1]
    assert f"Stopped at step {stopped_at} of 2000" in status.message
    run.start()
    reach(run, stopped_at + 2)
    os.kill(run.status.pid or 0, signal.SIGTERM)  # the same as the stop command
    assert run.wait(PATIENCE).state == State.STOPPED
    assert run.checkpoints[-1] > stopped_at
    losses = [line["step"] for line in run.metrics if "loss" in line]
    assert losses == list(range(1, len(losses) + 1))


def test_pause_save_and_preview_are_obeyed(start: Start) -> None:
    run = start(steps=100_000, save_every=100_000, preview_prompts=("a",), preview_steps=1, wait=False)
    reach(run, 2)
    run.pause()
    while run.status.state != State.PAUSED:
        assert run.status.state.alive, jobs.log_tail(run.folder)
        time.sleep(0.05)
    paused_at = run.metrics[-1]["step"]
    time.sleep(0.5)
    assert run.metrics[-1]["step"] == paused_at
    run.save()
    run.preview("a blue circle of my own")
    run.resume()
    reach(run, paused_at + 2)
    end = time.monotonic() + PATIENCE
    while not (run.checkpoints and run.previews):
        assert time.monotonic() < end, jobs.log_tail(run.folder)
        time.sleep(0.05)
    assert run.previews[0].prompt == "a blue circle of my own"
    run.stop(grace=PATIENCE)
    assert run.status.state == State.STOPPED


def test_a_number_that_is_none_ends_the_run_at_once_and_names_the_clip(
    start: Start, workspace: Workspace, toy_model: Model
) -> None:
    session(create(workspace, toy_model.source))  # encodes the clips
    for path in workspace.cache.glob("*.safetensors"):
        tensors = load_file(path)
        if "mean" in tensors:
            broken = {name: torch.full_like(tensor, float("nan")) for name, tensor in tensors.items()}
            Cache(workspace.cache).put(path.stem, broken)
    run = start("broken", evaluate_every=0)
    assert run.status.exit_code == ExitCode.NON_FINITE_LOSS
    assert "the loss of step 1 is not a number" in run.status.message
    assert ".mp4" in run.status.message
    assert run.lora is None


def test_a_run_makes_the_folders_that_its_workspace_has_lost(
    workspace: Workspace, dataset: Dataset, toy_model: Model
) -> None:
    run = create(workspace, toy_model.source, steps=3, preview_every=0)
    for folder in (workspace.locks, workspace.samples, workspace.grids):
        shutil.rmtree(folder)
    run.start()
    assert run.wait(PATIENCE).state is State.FINISHED, jobs.log_tail(run.folder)
    assert workspace.locks.is_dir()
