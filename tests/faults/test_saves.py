"""A refused save and damaged checkpoints: what is kept, what is said, and what is asked first."""

from __future__ import annotations

import resource
import shutil
from pathlib import Path

import pytest

from tests.faults import long_runs
from tests.patience import PATIENCE, until_run
from tests.shell import Shell
from workbench import jobs
from workbench.dataset_builder import Dataset
from workbench.errors import ExitCode
from workbench.families.model import Model
from workbench.jobs import State
from workbench.runs import checkpoints
from workbench.runs.metrics import read_sessions
from workbench.runs.run import Run
from workbench.workspace import Workspace

pytestmark = pytest.mark.long

SMALL = 300_000  # bytes: the metrics of the first thousand steps fit, the tensors of a checkpoint do not


def said(run: Run, words: str) -> bool:
    return words in (run.folder / jobs.LOG).read_text()


def newest(run: Run) -> int:
    found = checkpoints.newest(run.folder)
    return found[0] if found else 0


def test_a_disk_that_refuses_costs_a_save_and_damage_costs_one_checkpoint(
    workspace: Workspace, dataset: Dataset, toy_model: Model
) -> None:
    run = long_runs.start(workspace, toy_model, rank=128, save_every=20)
    until_run(run, lambda: len(run.checkpoints) >= 2)

    # The disk refuses: the run says so, goes on, keeps what it has, and saves again once the disk does not.
    long_runs.limit_files(run, SMALL)
    until_run(run, lambda: said(run, "was not saved"))
    before = newest(run)
    assert before
    long_runs.limit_files(run, resource.RLIM_INFINITY)
    until_run(run, lambda: newest(run) > before)
    run.stop()
    assert run.wait(PATIENCE).state is State.STOPPED, jobs.log_tail(run.folder)

    # Each file of the newest checkpoint flipped, cut short and gone: the one before is found.
    last, earlier = run.checkpoints[-1], run.checkpoints[-2]
    names = sorted(path.name for path in checkpoints.folder_of(run.folder, last).iterdir())
    assert {checkpoints.LORA, checkpoints.OPTIMIZER, checkpoints.STATE, checkpoints.MANIFEST} <= set(names)
    leaving = shutil.ignore_patterns("*.room")  # which the process removes last, after it has said that it stopped
    for name in names:
        for damage in (flip, cut, Path.unlink):
            copy = Run(shutil.copytree(run.folder, workspace.runs / "copy", ignore=leaving))
            damage(checkpoints.folder_of(copy.folder, last) / name)
            assert newest(copy) == earlier, f"{name}, {damage.__name__}"
            shutil.rmtree(copy.folder)

    # And it is used: the run goes on from there.
    flip(checkpoints.folder_of(run.folder, last) / checkpoints.LORA)
    run.start()
    until_run(run, lambda: said(run, f"resuming from the checkpoint of step {earlier}"))
    until_run(run, lambda: newest(run) > earlier)
    run.stop(grace=PATIENCE)


def flip(path: Path) -> None:
    """One bit; of the manifest one in a hash, elsewhere it may be in a space."""
    data = bytearray(path.read_bytes())
    data[data.index(b'"sha256": "') + 12 if path.name == checkpoints.MANIFEST else len(data) // 2] ^= 1
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


# ---- recovery


def damage(run: Run, step: int) -> None:
    """Flip a bit of the checkpoint's weights."""
    path = checkpoints.folder_of(run.folder, step) / checkpoints.LORA
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def aside(run: Run) -> list[str]:
    return sorted(path.name for path in (run.folder / checkpoints.FOLDER).glob(f"{checkpoints.DAMAGED}*"))


def steps_of_the_curve(run: Run) -> list[int]:
    return [line["step"] for line in run.metrics if "loss" in line]


def test_damaged_checkpoints_cost_neither_the_curve_nor_what_is_written_after_them(
    workspace: Workspace, dataset: Dataset, toy_model: Model, shell: Shell
) -> None:
    run = long_runs.start(workspace, toy_model, save_every=5)
    until_run(run, lambda: len(run.checkpoints) >= 2)
    run.stop()
    assert run.wait(PATIENCE).state is State.STOPPED, jobs.log_tail(run.folder)
    earlier, last = run.checkpoints[-2:]

    # The newest is damaged: the run goes on from the one before, says so wherever one looks, and keeps what it saves.
    damage(run, last)
    run.start()
    until_run(run, lambda: run.status.phase == "training" and run.status.step > earlier)
    damaged = "the content of lora.safetensors does not match the manifest"
    told = f".damaged-step-{last:08d} ({damaged}); the run resumes from step"
    assert told in (run.folder / jobs.LOG).read_text()
    assert told in run.status.message
    assert told in read_sessions(run.folder)[-1].note
    assert told in shell("runs", "show", "run").out.replace("\n", " ")
    assert steps_of_the_curve(run)[:earlier] == list(range(1, earlier + 1))
    until_run(run, lambda: run.checkpoints[-1] > earlier)
    jobs.kill(run.folder)
    assert aside(run) == [f".damaged-step-{last:08d}"]

    # Both of two are damaged: nothing is touched, and nothing begins, before somebody has said that it may.
    saved, curve = run.checkpoints, steps_of_the_curve(run)
    for step in saved:
        damage(run, step)
    run.start()
    ended = run.wait(PATIENCE)
    assert (ended.state, ended.exit_code) == (State.FAILED, ExitCode.RESUME_REFUSED)
    assert "runs start run --from-start" in ended.message
    assert (run.checkpoints, steps_of_the_curve(run)) == (saved, curve)
    assert "next: workbench runs start run --from-start" in shell("runs", "show", "run").out

    # So is a run whose checkpoints somebody has taken away.
    (run.folder / checkpoints.FOLDER).rename(workspace.root / "taken")
    run.start()
    assert run.wait(PATIENCE).exit_code == ExitCode.RESUME_REFUSED
    assert steps_of_the_curve(run) == curve
    (workspace.root / "taken").rename(run.folder / checkpoints.FOLDER)

    # Once it is said: damaged ones stand aside, and what is written from then on is kept.
    assert shell("runs", "start", "run", "--from-start", "--detach").code == 0
    until_run(run, lambda: checkpoints.newest(run.folder) is not None)
    jobs.kill(run.folder)
    assert aside(run) == [f".damaged-step-{step:08d}" for step in sorted({*saved, last})]
    assert steps_of_the_curve(run)[:3] == [1, 2, 3]
    assert read_sessions(run.folder)[-1].note == "started over at step 0, as requested"
