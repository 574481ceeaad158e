"""Runs on a cluster: submitit's local executor runs the job as local processes."""

from __future__ import annotations

import os
import signal

import psutil
import pytest

from tests.patience import PATIENCE, until_run
from tests.remote.waiting import start_on, steps
from workbench import jobs
from workbench.errors import ConfigError
from workbench.jobs import State, platform
from workbench.remote import targets
from workbench.remote.base import RemoteRecord
from workbench.remote.targets import SlurmTarget, check_target
from workbench.runs.metrics import read_sessions
from workbench.runs.run import Run
from workbench.workspace import Workspace, read_json


@pytest.mark.release  # every process imports torch anew; tests/remote/test_ssh.py shows the same synchronization
def test_a_preempted_run_saves_and_goes_on(workspace: Workspace, run: Run) -> None:
    targets.save(workspace, "cluster", SlurmTarget(executor="local", gpus=0))
    start_on(workspace, run, "cluster")
    until_run(run, lambda: len(steps(run)) > 3 and run.checkpoints)
    record = RemoteRecord.load(run.folder)

    # The process that synchronizes it is killed: the job stays, and is found again.
    os.kill(read_json(run.folder / jobs.PROCESS)["pid"], signal.SIGKILL)
    jobs.wait(run.folder, PATIENCE)
    run.start()
    before = len(steps(run))
    until_run(run, lambda: len(steps(run)) > before)
    assert RemoteRecord.load(run.folder).job == record.job

    # On Slurm's warning, as submitit sends it, the run saves, is queued again, and loses no step.
    (task,) = psutil.Process(int(record.job)).children()
    task.send_signal(signal.SIGUSR2)
    until_run(run, lambda: len(read_sessions(run.folder)) == 2)
    before = len(steps(run))
    until_run(run, lambda: len(steps(run)) > before)
    run.stop()
    assert run.wait(PATIENCE).state == State.STOPPED, jobs.log_tail(run.folder)
    assert steps(run) == list(range(1, run.checkpoints[-1] + 1))
    second = read_sessions(run.folder)[1]
    assert second.step in run.checkpoints or second.step < run.checkpoints[0]
    assert platform.start_time(int(record.job)) is None
    # The clips are linked, not copied, and what was encoded is in the workspace's own cache.
    clip = next(workspace.dataset("squares").glob("clips/*.mp4"))
    assert clip.stat().st_nlink > 1
    assert any(workspace.cache.glob("*.safetensors"))


def test_a_job_that_never_begins_says_why(workspace: Workspace, run: Run) -> None:
    targets.save(
        workspace, "cluster", SlurmTarget(executor="local", gpus=0, setup=("echo no such module >&2", "false"))
    )
    start_on(workspace, run, "cluster")
    status = run.wait(PATIENCE)
    assert status.state == State.FAILED
    assert "cluster ended the job before the run began" in status.message


def test_without_slurm_the_message_names_the_remedy(workspace: Workspace, run: Run) -> None:
    targets.save(workspace, "cluster", SlurmTarget())
    assert all(line.remedy for line in check_target(workspace, "cluster") if line.title in ("sbatch", "srun"))
    start_on(workspace, run, "cluster")
    assert run.wait(PATIENCE).state == State.FAILED
    assert "srun" in run.status.message
    with pytest.raises(ConfigError, match="there is no target 'moon'"):
        start_on(workspace, run, "moon")
