"""Runs that wait have no process: real jobs in a queue, killed where it hurts, copied, and started twice."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.idle_jobs import BEHAVIOR, MODULE
from tests.patience import PATIENCE, until
from tests.runs.test_run_queue import end_all
from workbench import jobs
from workbench.errors import ExitCode
from workbench.jobs import State, platform, reading
from workbench.jobs import queue as run_queue
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.workspace import Workspace, read_json


@pytest.fixture
def queue(workspace: Workspace) -> Iterator[list[Run]]:
    """Twelve runs in the queue: the first holds the device, the second is next, ten have no process."""
    made = []
    for name in (f"run-{number:02d}" for number in range(12)):
        (workspace.runs / name).mkdir()
        TrainSettings(dataset="squares", device="cpu").save(workspace.runs / name / jobs.CONFIG)
        made.append(Run(workspace.runs / name))
        run_queue.submit(workspace, workspace.runs / name, MODULE, env={BEHAVIOR: "cpu"})
    until((made[0].folder / "turn").exists)
    until(lambda: "is held by run run-00" in made[1].status.phase)
    yield made
    end_all(workspace)


def processes_of(workspace: Workspace) -> list[psutil.Process]:
    """Every process of ours at work in the workspace."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if "-m" in words and any(word.startswith(f"{workspace.root}/") for word in words):
            found.append(process)
    return found


def kill(folder: Path) -> None:
    pid = jobs.status(folder).pid
    assert pid
    os.kill(pid, signal.SIGKILL)


def test_a_waiting_run_has_no_process_and_nothing_that_is_killed_stops_it(
    workspace: Workspace, queue: list[Run]
) -> None:
    first, second, third = queue[:3]
    names = [run.name for run in queue]
    starter = workspace.runs / run_queue.STARTER
    assert len(processes_of(workspace)) == 3  # the one that holds the device, the next one, the starter
    assert run_queue.order(workspace) == names[1:]
    until(lambda: queue[11].status.phase == "waiting: number 11 in the queue, after run run-10")
    assert queue[11].status.state is State.RUNNING

    # The starter and the next run are killed, and nobody looks: the run that trains sees to it.
    kill(starter)
    kill(second.folder)
    until(lambda: third.status.pid is not None and "is held by run run-00" in third.status.phase)
    assert second.status.state is State.DIED
    # The run that trains is killed: the next one has the device.
    kill(first.folder)
    until((third.folder / "turn").exists)

    # One without a process is stopped, moved and started again like any other.
    queue[5].stop()
    assert (queue[5].status.state, queue[5].status.exit_code) == (State.STOPPED, ExitCode.STOPPED)
    assert "while it waited" in queue[5].status.message
    queue[5].folder.joinpath(jobs.CONTROL).mkdir(exist_ok=True)
    run_queue.move(workspace, names[8], 1)
    until(lambda: queue[8].status.pid is not None)

    # A queue file that somebody broke is made anew of those that wait.
    (workspace.runs / run_queue.QUEUE).write_text('["run-')
    assert set(names[6:]) - {names[8]} <= set(run_queue.order(workspace))

    # A copy of a run that waits waits for nothing, and neither does one of before the machine was started anew.
    copy = shutil.copytree(queue[10].folder, workspace.runs / "copy")
    assert (Run(copy).status.state, Run(copy).status.message) == (State.DIED, reading.LOST)
    ticket = queue[11].folder / reading.TICKET
    assert ticket.stat().st_mode & 0o077 == 0
    ticket.write_text(ticket.read_text().replace(platform.boot_id(), "another"))
    assert queue[11].status.state is State.DIED

    # And all the others get the device, one after the other.
    for run in (third, queue[8], *queue[3:5], *queue[6:8], *queue[9:11]):
        (run.folder / "fail").touch()
    until(lambda: all((run.folder / "turn").exists() for run in (*queue[3:5], *queue[6:11])))
    until(lambda: not any(run.status.state.alive for run in queue))


def test_a_living_run_cannot_be_taken_over(workspace: Workspace) -> None:
    folder = workspace.runs / "cats"
    folder.mkdir()
    TrainSettings(dataset="squares", device="cpu").save(folder / jobs.CONFIG)
    run_queue.submit(workspace, folder, MODULE, env={BEHAVIOR: "cpu"})
    try:
        until((folder / "turn").exists)
        before = read_json(folder / jobs.PROCESS)
        asked = [sys.executable, "-m", "workbench.trainer", str(folder)]
        said = subprocess.run(asked, capture_output=True, text=True, timeout=PATIENCE)
        assert said.returncode == ExitCode.DEVICE_BUSY
        assert said.stderr == f"cats is already running as process {before['pid']}: stop it first, or leave it alone\n"
        assert read_json(folder / jobs.PROCESS) == before
        assert Run(folder).status.state is State.RUNNING
    finally:
        end_all(workspace)
