"""Runs on another machine: through a real ssh server, in real processes, the connection cut in between."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.patience import PATIENCE, until, until_run
from tests.remote.ssh_server import SshServer, serving
from tests.remote.waiting import start_on, steps
from tests.shell import Shell
from workbench import jobs
from workbench.cli.operations import documents
from workbench.errors import ConfigError, ExitCode
from workbench.jobs import State
from workbench.remote import targets
from workbench.remote.base import RemoteRecord
from workbench.remote.targets import SshTarget, check_target, choose_target
from workbench.runs.run import Run
from workbench.workspace import Workspace, read_json

pytestmark = pytest.mark.long


@pytest.fixture
def far(tmp_path: Path, workspace: Workspace) -> Iterator[SshServer]:
    """A machine named "far" that is a target of the workspace; its folder is tmp_path/far."""
    (tmp_path / "keys").mkdir()
    with serving(tmp_path / "keys") as server:
        target = SshTarget(
            host="far",
            python=sys.executable,
            folder=str(tmp_path / "far"),
            ssh_config=str(server.config),
            when_idle=f"touch {shlex.quote(str(tmp_path / 'off'))}",
            idle_minutes=0.02,
        )
        targets.save(workspace, "far", target)
        yield server


def test_a_run_far_away_is_a_run_like_any_other(workspace: Workspace, far: SshServer, run: Run, tmp_path: Path) -> None:
    start_on(workspace, run, "far")
    until_run(run, lambda: len(steps(run)) > 3 and run.checkpoints and run.previews)
    record = RemoteRecord.load(run.folder)
    there = tmp_path / "far" / "folders" / record.folder / "runs" / "cats"
    process = read_json(there / jobs.PROCESS)

    # The connection goes: the run there stays, and is found again.
    before, connections = len(steps(run)), far.connections
    far.cut()
    until_run(run, lambda: len(steps(run)) > before and far.connections > connections)

    # The process that synchronizes it is killed: what was started there is found again, not started twice.
    os.kill(read_json(run.folder / jobs.PROCESS)["pid"], signal.SIGKILL)
    jobs.wait(run.folder, PATIENCE)
    assert run.status.state == State.DIED
    with pytest.raises(ConfigError, match="was sent to far and its result has not come back"):
        choose_target(workspace, run, targets.LOCAL)
    before = len(steps(run))
    run.start()
    until_run(run, lambda: len(steps(run)) > before)
    assert read_json(there / jobs.PROCESS) == process

    # Commands go there.
    run.pause()
    until_run(run, lambda: run.status.state == State.PAUSED)
    run.resume()
    until_run(run, lambda: run.status.state == State.RUNNING)
    run.stop()
    assert run.wait(PATIENCE).state == State.STOPPED, jobs.log_tail(run.folder)
    assert run.result == jobs.result(there)
    last = run.checkpoints[-1]
    assert steps(run) == list(range(1, last + 1))
    for name in ("metrics.jsonl", "sessions.jsonl", "dataset.lock.json"):
        assert (run.folder / name).read_bytes() == (there / name).read_bytes()
    assert {p.relative_to(there) for p in (there / "previews").rglob("*.*")} == {
        p.relative_to(run.folder) for p in (run.folder / "previews").rglob("*.*")
    }
    assert "this start begins at" in (run.folder / jobs.LOG).read_text()
    assert not RemoteRecord.load(run.folder).open
    until(lambda: (tmp_path / "off").exists())  # nothing is left to do there

    # It goes on here, from what was brought back.
    choose_target(workspace, run, targets.LOCAL)
    run.settings.changed(steps=last + 2).save(run.folder / jobs.CONFIG)
    run.start()
    assert run.wait(PATIENCE).state == State.FINISHED, jobs.log_tail(run.folder)
    assert steps(run) == list(range(1, last + 3))


def test_a_dry_run_says_what_is_there(workspace: Workspace, far: SshServer, tmp_path: Path) -> None:
    found = {line.title: line for line in check_target(workspace, "far")}
    assert found["workbench"].remedy == ""
    assert "free disk" in found
    target = targets.load(workspace, "far")
    targets.save(workspace, "bare", target.changed(python="/usr/bin/env python-that-is-not-there"))
    with pytest.raises(ConfigError, match="cannot run the workbench"):
        check_target(workspace, "bare")
    assert not (tmp_path / "far").exists()


def test_programs_read_whether_a_target_is_ready(shell: Shell, workspace: Workspace, far: SshServer) -> None:
    done = shell("targets", "check", "far", "--json")
    lines = json.loads(done.out)
    assert all(set(line) == set(documents()["targets check"].keys) for line in lines)
    assert {"host", "workbench", "free disk"} <= {line["title"] for line in lines}
    assert done.code == (ExitCode.BAD_CONFIG if any(line["remedy"] for line in lines) else 0)


def test_a_host_that_is_not_known_is_refused(workspace: Workspace, far: SshServer, tmp_path: Path) -> None:
    (tmp_path / "keys" / "known_hosts").write_text("")
    with pytest.raises(ConfigError, match="is not known"):
        check_target(workspace, "far")
    # and no ssh config turns the check off
    far.config.write_text(far.config.read_text().replace(str(tmp_path / "keys" / "known_hosts"), "none"))
    with pytest.raises(ConfigError, match="UserKnownHostsFile none"):
        check_target(workspace, "far")
