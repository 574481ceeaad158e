"""A disk that is full for a while, under a real run: what it refuses waits and is written later; a cause is kept."""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.patience import PATIENCE, until_run
from workbench import jobs
from workbench.dataset_builder import Dataset
from workbench.errors import CannotWrite
from workbench.families.base import Model
from workbench.jobs import Job, State
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.workspace import Workspace

SMALL = 1000  # bytes: a heartbeat and a command fit; a line of the curve or the log, a video and a checkpoint do not
EVERY = 10


def limit_files(run: Run, most: int) -> None:
    """From now on the kernel refuses that the run's process writes a file beyond this size (in bytes)."""
    process = psutil.Process(run.status.pid)
    _, hard = process.rlimit(resource.RLIMIT_FSIZE)
    process.rlimit(resource.RLIMIT_FSIZE, (most, hard))


def test_a_full_disk_under_previews_curve_and_log_ends_no_run_and_nothing_of_them_is_lost(
    workspace: Workspace, dataset: Dataset, toy_model: Model
) -> None:
    settings = TrainSettings(
        model=toy_model.source,
        dataset="squares",
        steps=100_000,
        rank=2,
        save_every=EVERY,
        keep_checkpoints=2,
        preview_every=EVERY,
        preview_prompts=("a",),
        preview_steps=1,
        preview_inputs=False,
        evaluate_every=0,
        held_out=1,
        frames=9,
        tracker="none",
    )
    run = Run.create(workspace, settings, "run")
    run.start()
    until_run(run, lambda: any(preview.step for preview in run.previews))
    limit_files(run, SMALL)
    full = run.status.step
    until_run(run, lambda: run.status.step >= full + 3 * EVERY and "cannot write" in run.status.message)
    assert max(line["step"] for line in run.metrics) < run.status.step
    limit_files(run, resource.RLIM_INFINITY)
    until_run(run, lambda: run.checkpoints[-1] > full + 3 * EVERY)
    refused = set(range(0, full + 3 * EVERY, EVERY))
    until_run(run, lambda: refused <= {preview.step for preview in run.previews})
    run.stop()
    assert run.wait(PATIENCE).state is State.STOPPED, jobs.log_tail(run.folder)
    last = run.status.step
    assert [line["step"] for line in run.metrics if "loss" in line] == list(range(1, last + 1))


def test_the_cause_is_kept_where_the_disk_has_no_room_for_a_new_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Path.open

    def full(path: Path, mode: str = "r", *rest: Any, **more: Any) -> Any:
        if path.is_relative_to(tmp_path) and set(mode) & set("wxa"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return opened(path, mode, *rest, **more)

    with monkeypatch.context() as patch, Job(tmp_path) as job:
        patch.setattr(Path, "open", full)
        jobs.send(tmp_path, "stop")  # it can be given
        assert job.take("stop") == {}
        raise CannotWrite("cannot write step 20: the disk is full: free some space")
    ended = jobs.status(tmp_path)
    assert (ended.state, ended.message) == (State.FAILED, "cannot write step 20: the disk is full: free some space")
    assert not list(tmp_path.glob(".*.room"))
