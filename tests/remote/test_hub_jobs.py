"""Runs as Hub jobs: a server that speaks the Hub's protocol runs each job as a local process."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fake_hub import TOKEN
from tests.patience import PATIENCE, until_run
from tests.remote.fake_jobs import USER, FakeJobs
from tests.remote.waiting import start_on, steps
from workbench import jobs
from workbench.errors import ExitCode
from workbench.jobs import State
from workbench.remote import targets
from workbench.remote.base import RemoteRecord
from workbench.remote.targets import HubJobsTarget, choose_target
from workbench.runs.run import Run
from workbench.workspace import Workspace, read_json

pytestmark = pytest.mark.long

REPOSITORY = f"{USER}/runs"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, workspace: Workspace) -> Iterator[FakeJobs]:
    """The Hub, with a login on this machine and a target named "hub" in the workspace."""
    home = tmp_path / "login"
    home.mkdir()
    (home / "token").write_text(TOKEN)
    (tmp_path / "hub").mkdir()
    with FakeJobs(tmp_path / "hub").serving() as server:
        for name, value in (("HF_ENDPOINT", server.url), ("HF_HOME", str(home)), ("HF_HUB_DISABLE_XET", "1")):
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
        target = HubJobsTarget(flavor="cpu-basic", repository=REPOSITORY, image="an/image", python=sys.executable)
        targets.save(workspace, "hub", target)
        yield server


@pytest.mark.release  # every process imports torch anew; tests/remote/test_ssh.py shows the same synchronization
def test_a_run_as_a_job_of_the_hub(workspace: Workspace, hub: FakeJobs, run: Run) -> None:
    start_on(workspace, run, "hub")
    until_run(run, lambda: len(steps(run)) > 3 and run.checkpoints and run.previews)
    assert f"datasets/{REPOSITORY}" in hub.private

    # The process that synchronizes it is killed: the job stays, and is found again.
    os.kill(read_json(run.folder / jobs.PROCESS)["pid"], signal.SIGKILL)
    jobs.wait(run.folder, PATIENCE)
    before = len(steps(run))
    run.start()
    until_run(run, lambda: len(steps(run)) > before)
    assert len(hub.jobs) == 1

    run.stop()
    assert run.wait(PATIENCE).state == State.STOPPED, f"{run.status} {jobs.log_tail(run.folder)}"
    assert steps(run) == list(range(1, run.checkpoints[-1] + 1))
    assert "this start begins at" in (run.folder / jobs.LOG).read_text()
    (job,) = hub.jobs.values()
    assert job.process.wait(PATIENCE) == ExitCode.STOPPED
    assert job.spec["flavor"] == "cpu-basic"

    # The token went as a secret, and nowhere else.
    assert job.spec.pop("secrets") == {"HF_TOKEN": TOKEN}
    assert TOKEN not in json.dumps(job.spec) + job.log.read_text()
    kept = [path for path in workspace.root.rglob("*") if path.is_file()]
    assert not any(TOKEN.encode() in path.read_bytes() for path in kept)

    # It goes on there in another job, without sending the clips again.
    last = run.checkpoints[-1]
    clips = [name for name in hub.repos[f"datasets/{REPOSITORY}"] if name.startswith("contents/")]
    run.settings.changed(steps=last + 2, preview_every=0).save(run.folder / jobs.CONFIG)
    run.start()
    assert run.wait(PATIENCE).state == State.FINISHED, jobs.log_tail(run.folder)
    assert steps(run) == list(range(1, last + 3))
    assert run.lora is not None
    assert len(hub.jobs) == 2
    assert set(clips) < {name for name in hub.repos[f"datasets/{REPOSITORY}"] if name.startswith("contents/")}
    assert not RemoteRecord.load(run.folder).open
    choose_target(workspace, run, targets.LOCAL)


def test_a_missing_setting_is_reported_before_anything_is_sent(workspace: Workspace, hub: FakeJobs, run: Run) -> None:
    targets.save(workspace, "empty", HubJobsTarget(repository=REPOSITORY))
    start_on(workspace, run, "empty")
    assert run.wait(PATIENCE).state == State.FAILED
    assert "image of the target empty is empty" in run.status.message
    assert not hub.repos
