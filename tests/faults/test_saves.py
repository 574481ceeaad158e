"""Saves that go wrong, on a real run: a disk that refuses for a while, a damaged file in each place of a checkpoint."""

from __future__ import annotations

import resource
import shutil
from pathlib import Path

import psutil

from tests.patience import PATIENCE, until_run
from workbench import jobs
from workbench.dataset_builder import Dataset
from workbench.families.model import Model
from workbench.jobs import State
from workbench.runs import checkpoints
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.workspace import Workspace

SMALL = 300_000  # bytes: the metrics of the first thousand steps fit, the tensors of a checkpoint do not


def said(run: Run, words: str) -> bool:
    return words in (run.folder / jobs.LOG).read_text()


def limit_files(run: Run, most: int) -> None:
    """From now on the kernel refuses that the run's process writes a file larger than this (in bytes)."""
    process = psutil.Process(run.status.pid)
    _, hard = process.rlimit(resource.RLIMIT_FSIZE)
    process.rlimit(resource.RLIMIT_FSIZE, (most, hard))


def newest(run: Run) -> int:
    found = checkpoints.newest(run.folder)
    return found[0] if found else 0


def test_a_disk_that_refuses_costs_a_save_and_damage_costs_one_checkpoint(
    workspace: Workspace, dataset: Dataset, toy_model: Model
) -> None:
    settings = TrainSettings(
        model=toy_model.source,
        dataset="squares",
        steps=100_000,
        rank=128,
        save_every=20,
        keep_checkpoints=2,
        preview_every=0,
        evaluate_every=0,
        held_out=1,
        frames=9,
        tracker="none",
    )
    run = Run.create(workspace, settings, "run")
    run.start()
    until_run(run, lambda: len(run.checkpoints) >= 2)

    # The disk refuses: the run says so, goes on, keeps what it has, and saves again once the disk does not.
    limit_files(run, SMALL)
    until_run(run, lambda: said(run, "is not saved"))
    before = newest(run)
    assert before
    limit_files(run, resource.RLIM_INFINITY)
    until_run(run, lambda: newest(run) > before)
    run.stop()
    assert run.wait(PATIENCE).state is State.STOPPED, jobs.log_tail(run.folder)

    # Each file of the newest checkpoint flipped, cut short and gone: the one before is found.
    last, earlier = run.checkpoints[-1], run.checkpoints[-2]
    names = sorted(path.name for path in checkpoints.folder_of(run.folder, last).iterdir())
    assert {checkpoints.LORA, checkpoints.OPTIMIZER, checkpoints.STATE, checkpoints.MANIFEST} <= set(names)
    for name in names:
        for damage in (flip, cut, Path.unlink):
            copy = Run(shutil.copytree(run.folder, workspace.runs / "copy"))
            damage(checkpoints.folder_of(copy.folder, last) / name)
            assert newest(copy) == earlier, f"{name}, {damage.__name__}"
            shutil.rmtree(copy.folder)

    # And it is used: the run goes on from there.
    flip(checkpoints.folder_of(run.folder, last) / checkpoints.LORA)
    run.start()
    until_run(run, lambda: said(run, f"going on from the checkpoint of step {earlier}"))
    until_run(run, lambda: newest(run) > earlier)
    run.stop(grace=PATIENCE)


def flip(path: Path) -> None:
    """One bit; of the manifest one in a hash, elsewhere it may be in a space."""
    data = bytearray(path.read_bytes())
    data[data.index(b'"sha256": "') + 12 if path.name == checkpoints.MANIFEST else len(data) // 2] ^= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
