"""Several processes that compute one run, here two on the processor: they learn what one learns, none is left over."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
import torch.distributed as dist
from safetensors.torch import load_file

from tests.browser.server import own_port
from tests.driving import create, go
from tests.masked import add_masks, right_half
from tests.patience import PATIENCE, until
from tests.platforms import several_gpus
from workbench import jobs
from workbench.dataset_builder import Dataset
from workbench.errors import ConfigError, ExitCode
from workbench.families.hunyuan15 import FAMILY as HUNYUAN15
from workbench.families.model import Model
from workbench.fit import levels
from workbench.jobs import State, gpu_lock, platform, queue
from workbench.jobs.devices import Device
from workbench.runs import checkpoints, failures
from workbench.runs.checks import check_ranks
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.trainer import launcher, loop
from workbench.trainer.loop import train_step
from workbench.trainer.ranks import Ranks
from workbench.workspace import Workspace

pytestmark = pytest.mark.long

STEPS = 6
SETTINGS = {"steps": STEPS, "gradient_accumulation": 2, "evaluate_every": 0, "device": "cpu", "save_every": 2}


@pytest.fixture(autouse=True)
def one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


@pytest.fixture
def begin(workspace: Workspace, dataset: Dataset, toy_model: Model) -> Iterator[Callable[..., Run]]:
    """Make and start a run on two processes, settings by name; what is left of it afterwards is ended."""

    def make(**values: object) -> Run:
        run = create(workspace, **{**SETTINGS, "model": toy_model.source, "gpus": 2, **values})
        run.start()
        return run

    yield make
    for folder in workspace.runs.glob("*/"):
        jobs.kill(folder)


def set_to(run: Run, **values: object) -> None:
    run.settings.changed(**values).save(run.folder / jobs.CONFIG)


def of(run: Run) -> list[psutil.Process]:
    """The living processes of a run: its launcher and its ranks."""
    found = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            if str(run.folder) in process.cmdline() and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def rank_of(process: psutil.Process) -> str:
    with contextlib.suppress(psutil.Error):
        return process.environ().get("RANK", "")
    return ""


def reach(run: Run, step: int) -> None:
    def there() -> bool:
        assert run.status.state.alive, jobs.log_tail(run.folder)
        return any(line["step"] >= step for line in run.metrics if "loss" in line)

    until(there)


def losses(run: Run) -> list[float]:
    return [line["loss"] for line in run.metrics if "loss" in line]


def quantiles(run: Run) -> list[list[float]]:
    return [[pair[0] for pair in line["samples"]] for line in run.metrics if "samples" in line]


@several_gpus
def test_two_learn_what_one_learns_stop_on_a_signal_and_go_on_with_weights_in_pieces(
    begin: Callable[..., Run], workspace: Workspace, dataset: Dataset, toy_model: Model
) -> None:
    # In some batches no clip has a mask: both processes call the base model all the same.
    add_masks(dataset, lambda clip: right_half(clip) if clip.source[0] in "024" else None)
    preserved = {
        **{"loss_mask": "inside", "outside_weight": 0.5, "unmasked_clips": "whole"},
        "preservation_weight": 0.5,
        "regularization_dataset": "squares",
        "regularization_target": "base model",
    }
    previews = {"preview_every": STEPS, "preview_steps": 1, "preview_prompts": ("a red square",)}
    run = begin(evaluate_every=STEPS, **previews, **preserved)
    reach(run, 3)
    assert sorted(map(rank_of, of(run))) == ["", "0", "1"]
    os.kill(run.status.pid or 0, signal.SIGTERM)
    stopped = run.wait(PATIENCE)
    assert (stopped.state, stopped.exit_code) == (State.STOPPED, ExitCode.STOPPED), jobs.log_tail(run.folder)
    assert not any(map(rank_of, of(run)))
    assert run.checkpoints[-1] == stopped.step
    set_to(run, parallel="fsdp")
    run.start()
    assert run.wait(PATIENCE).state is State.FINISHED, jobs.log_tail(run.folder)

    alone = go(create(workspace, toy_model.source, **SETTINGS, **preserved), STEPS)
    alone.save()
    assert losses(run) == pytest.approx(losses(Run(alone.run)), rel=1e-6)
    for key in ("preservation_loss", "outside_loss"):
        ours, theirs = ([line[key] for line in one.metrics if "loss" in line] for one in (run, Run(alone.run)))
        assert max(ours) > 0
        assert ours == pytest.approx(theirs, rel=1e-4, abs=1e-9)
    ours, theirs = (load_file(checkpoints.folder_of(one, STEPS) / checkpoints.LORA) for one in (run.folder, alone.run))
    for name, tensor in theirs.items():
        assert (ours[name] - tensor).abs().max() < 1e-5, name
    assert quantiles(run) == quantiles(Run(alone.run))
    assert [line["step"] for line in run.metrics if "held_out_loss" in line] == [0, STEPS]
    assert [preview.step for preview in run.previews] == [0, STEPS]
    assert jobs.log_tail(run.folder).count("held-out loss") == 2


@several_gpus
def test_weights_in_pieces_reach_a_forward_pass_that_is_not_diffusers(
    begin: Callable[..., Run], workspace: Workspace, tmp_path: Path
) -> None:
    """HunyuanVideo 1.5, with embedders beside the blocks that quoted text alone reaches."""
    values = {"targets": "all-linear", "model": HUNYUAN15.toy(tmp_path / "toy", "text").source}
    run = begin(parallel="fsdp", **values)
    assert run.wait(PATIENCE).state is State.FINISHED, jobs.log_tail(run.folder)
    alone = go(create(workspace, **{**SETTINGS, **values}), STEPS)
    assert losses(run) == pytest.approx(losses(Run(alone.run)), rel=1e-5)


@several_gpus
def test_when_one_dies_all_end_the_failure_names_it_and_one_process_goes_on_from_the_pieces(
    begin: Callable[..., Run], workspace: Workspace, toy_model: Model
) -> None:
    values = {"method": "full", "ema_decay": 0.9, "learning_rate": 0.001, "steps": 500}
    run = begin(parallel="fsdp", **values)
    reach(run, 3)
    next(process for process in of(run) if rank_of(process) == "1").kill()
    ended = run.wait(PATIENCE)
    assert ended.state is State.FAILED
    assert ended.message.startswith("Process 2 of 2: The process was killed")
    assert not any(map(rank_of, of(run)))
    failure = failures.failure_of(ended, jobs.log_tail(run.folder), run.checkpoints, run.settings)
    assert failure.cause == "The process was killed"

    saved = run.checkpoints[-1]
    alone = go(create(workspace, toy_model.source, **{**SETTINGS, **values}), saved)
    alone.save()
    pieces, whole = (checkpoints.folder_of(folder, saved) for folder in (run.folder, alone.run))
    for name in (checkpoints.WEIGHTS, checkpoints.OPTIMIZER, checkpoints.EMA):
        ours, theirs = load_file(pieces / name), load_file(whole / name)
        assert set(ours) == set(theirs), name
        assert all((ours[key] - value).abs().max() < 1e-5 for key, value in theirs.items()), name
    train_step(alone)
    set_to(run, gpus=1)
    go(run, saved + 1)
    assert losses(run) == pytest.approx(losses(Run(alone.run)), rel=1e-6)


@several_gpus
def test_no_rank_outlives_its_keeper(begin: Callable[..., Run], workspace: Workspace) -> None:
    run = begin()
    until(lambda: {"0", "1"} <= set(map(rank_of, of(run))))
    os.kill(run.status.pid or 0, signal.SIGKILL)
    until(lambda: not of(run))
    until(lambda: gpu_lock.holder(workspace.locks, "") is None)
    assert run.status.state is State.DIED


def test_a_rank_that_fails_says_why_and_the_run_fails_of_it(tmp_path: Path) -> None:
    with launcher.Follower(tmp_path, launcher.ProcessRank(1, 2)):
        raise ConfigError("rank is 0, must be 1 or more: set it to 4")
    with launcher.FirstRank(tmp_path, launcher.ProcessRank(0, 2)) as job:
        job._began = 0.0
        raise RuntimeError("Connection closed by peer")
    result = jobs.result(tmp_path)
    assert result["message"] == "Process 2 of 2: rank is 0, must be 1 or more: set it to 4"
    assert result["exit_code"] == ExitCode.BAD_CONFIG


def summed_on(rank: int, port: int, folder: Path) -> None:
    """Sum gradients of which this rank's batch has left out some, and save them."""
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    weights = [torch.nn.Parameter(torch.zeros(3)) for _ in range(4)]
    for number in ((0, 1), (0, 2))[rank]:
        weights[number].grad = torch.full((3,), 10.0 * (number + 1) + rank)
    with Ranks.met(launcher.ProcessRank(rank, 2, rank, 2), Device("cpu", "a processor", 1.0)) as ranks:
        ranks.sum_gradients(weights)
    torch.save([weight.grad for weight in weights], folder / f"{rank}.pt")


def test_a_weight_that_one_rank_s_batch_does_not_reach_gets_the_others_gradient(tmp_path: Path) -> None:
    torch.multiprocessing.spawn(summed_on, (own_port(), tmp_path), nprocs=2)
    for rank in range(2):
        found = torch.load(tmp_path / f"{rank}.pt")
        assert [None if one is None else one[0].item() for one in found] == [21.0, 20.0, 31.0, None]


@several_gpus
def test_batches_must_share_out_evenly() -> None:
    check_ranks(TrainSettings(gradient_accumulation=4), 2)
    with pytest.raises(ConfigError, match="gradient_accumulation is 5, must be a multiple of 4, .*: set it to 8"):
        check_ranks(TrainSettings(gradient_accumulation=5), 4)


@several_gpus
@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"device": "cuda:1"}, "device is cuda:1, a single GPU, but gpus is 2: set gpus to 1, or device to cuda"),
        ({"parallel": "fsdp", "base_model_precision": "int8"}, "base_model_precision is int8 and parallel is fsdp"),
        ({"parallel": "fsdp", "method": "full", "optimizer": "muon"}, "optimizer is muon, .*: set optimizer to adamw"),
    ],
)
def test_what_does_not_go_together_is_refused_for_several_processes_alone(
    values: dict[str, Any], sentence: str
) -> None:
    settings = TrainSettings().changed(gradient_accumulation=2, **values)
    check_ranks(settings, 1)
    with pytest.raises(ConfigError, match=sentence):
        check_ranks(settings, 2)


def test_gpus_wait_for_one_another_as_long_as_the_setting_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    TrainSettings(nccl_timeout=7.5).save(tmp_path / jobs.CONFIG)
    joined: dict[str, Any] = {}
    monkeypatch.setattr(dist, "init_process_group", lambda backend, **given: joined.update(given, backend=backend))
    for name in ("new_group", "barrier", "destroy_process_group"):
        monkeypatch.setattr(dist, name, lambda *_, **__: None)
    monkeypatch.setattr(torch.cuda, "set_device", lambda index: None)
    monkeypatch.setattr(loop, "pick_devices", lambda choice, count: [Device("cuda", "a card", 24.0)] * count)
    monkeypatch.setattr(loop, "Session", lambda *_, **__: None)
    monkeypatch.setattr(loop, "finish_or_fall_back", lambda session: True)
    loop.train(jobs.Job(tmp_path), launcher.ProcessRank(0, 2, 0, 2))
    assert joined["backend"] == "nccl"
    assert joined["timeout"] == timedelta(minutes=7.5)


@several_gpus
def test_all_gpus_of_a_machine_are_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    cards = [Device("cuda", "a card", 24.0, index, f"GPU-{index}") for index in range(4)]
    monkeypatch.setattr(levels, "gpus", lambda: cards)
    found = levels.offer(TrainSettings(gradient_accumulation=6))
    assert found.flags == "--gpus 4 --gradient-accumulation 8"
    assert "8 batches instead of 6" in found.sentence
    assert levels.offer(TrainSettings(gpus=0)) is None
    assert levels.offer(TrainSettings(device="cpu")) is None
    assert levels.offer(TrainSettings().changed(device="cuda:1")) is None


def test_where_no_process_inherits_locks_several_gpus_are_neither_offered_nor_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(platform, "INHERITS", False)
    monkeypatch.setattr(levels, "gpus", lambda: [Device("cuda", "a card", 24.0, index) for index in range(2)])
    assert levels.offer(TrainSettings()) is None
    check_ranks(TrainSettings(), 1)
    with pytest.raises(ConfigError, match="gpus is 2, but a run on several GPUs needs Linux: set gpus to 1"):
        check_ranks(TrainSettings(gradient_accumulation=2), 2)


def test_a_run_holds_all_its_gpus_and_so_do_those_who_inherit_the_locks(workspace: Workspace) -> None:
    cards = [Device("cuda", "a card", 1.0, index, f"GPU-{index}") for index in (1, 0)]
    folder = workspace.runs / "both"
    folder.mkdir()
    with jobs.Job(folder) as job, queue.acquired(workspace, cards, job) as held:
        assert [gpu_lock.holder(workspace.locks, card.uuid) for card in cards] == ["run both", "run both"]
        copy = os.dup(held.locks[0])
    assert gpu_lock.holder(workspace.locks, "GPU-0") == "run both"
    assert gpu_lock.holder(workspace.locks, "GPU-1") is None
    os.close(copy)
    assert gpu_lock.holder(workspace.locks, "GPU-0") is None


@pytest.mark.parametrize(
    ("variable", "name"), [("ACCELERATE_USE_DEEPSPEED", "DeepSpeed"), ("ACCELERATE_USE_FSDP", "FSDP")]
)
def test_a_model_that_accelerate_would_wrap_a_second_time_is_refused(
    monkeypatch: pytest.MonkeyPatch, variable: str, name: str
) -> None:
    check_ranks(TrainSettings(), 1)
    monkeypatch.setenv(variable, "true")
    with pytest.raises(ConfigError, match=f"accelerate started this process with {name}"):
        check_ranks(TrainSettings(), 1)
