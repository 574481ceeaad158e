"""A rented machine stops by itself: once no run is left there, and not before."""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from pathlib import Path

import pytest

from tests.patience import PATIENCE
from workbench import jobs
from workbench.jobs import processes
from workbench.remote import idle
from workbench.remote.remote_folder import RemoteFolder
from workbench.workspace import read_object, write_json


def test_a_machine_without_a_run_left_runs_the_command(tmp_path: Path) -> None:
    off = tmp_path / "off"
    home = tmp_path / "folders" / "cats-1" / "runs" / "cats"
    write_json(home / jobs.CONFIG, {})
    write_json(home / jobs.PROCESS, {**processes.identity(os.getpid()), "started_at": time.time()})  # it is alive
    write_json(home / jobs.HEARTBEAT, {"phase": "training", "step": 1, "total": 9, "time": time.time()})
    command = f"{shlex.quote(sys.executable)} -c 'import pathlib; pathlib.Path({json.dumps(str(off))}).touch()'"
    folder = RemoteFolder(str(tmp_path), "cats-1", "cats")
    folder.stop_when_idle(command, minutes=0.0)
    job = tmp_path / idle.FOLDER
    end = time.monotonic() + PATIENCE
    while read_object(job / jobs.HEARTBEAT).get("phase") != "1 running" and time.monotonic() < end:
        time.sleep(0.05)
    assert read_object(job / jobs.HEARTBEAT)["phase"] == "1 running"
    assert not off.exists()
    # The run ends: the machine stops.
    write_json(home / jobs.RESULT, {"status": "finished", "exit_code": 0, "message": "", "ended_at": time.time()})
    assert jobs.wait(job, PATIENCE).state is jobs.State.FINISHED, jobs.log_tail(job)
    assert off.exists()


def test_somebody_who_asks_keeps_it_on_and_a_command_that_fails_says_so(tmp_path: Path) -> None:
    write_json(tmp_path / "folders" / "cats-1" / "runs" / "cats" / jobs.CONFIG, {})
    folder = RemoteFolder(str(tmp_path), "cats-1", "cats")
    idle.watch(tmp_path, "exit 3", minutes=0.02)
    before = (tmp_path / idle.FOLDER / idle.ASKED).stat().st_mtime_ns
    folder.poll()
    assert (tmp_path / idle.FOLDER / idle.ASKED).stat().st_mtime_ns > before
    status = jobs.wait(tmp_path / idle.FOLDER, PATIENCE)
    assert status.state is jobs.State.FAILED
    assert "when_idle is 'exit 3', which failed there" in status.message


@pytest.mark.skipif(sys.platform == "win32", reason="a target's shell is a POSIX shell")
def test_stopping_the_watch_leaves_the_machine_on(tmp_path: Path) -> None:
    off = tmp_path / "off"
    idle.watch(tmp_path, f"touch {shlex.quote(str(off))}", minutes=60)
    jobs.stop(tmp_path / idle.FOLDER)
    assert jobs.wait(tmp_path / idle.FOLDER, PATIENCE).message == "The machine stays on."
    assert not off.exists()
