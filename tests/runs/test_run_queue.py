"""The run queue, with real waiting processes: order, reordering, failures, kills, other device holders."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from tests.idle_jobs import BEHAVIOR, DEVICES, MODULE
from tests.patience import PATIENCE, until
from workbench import jobs
from workbench.errors import ConfigError, ExitCode
from workbench.jobs import State, gpu_lock, processes, queue
from workbench.overview import OverviewReader
from workbench.runs.run import Run
from workbench.runs.settings import TrainSettings
from workbench.runs.snapshot import snapshot
from workbench.workspace import Workspace, write_json

pytestmark = pytest.mark.long


@pytest.fixture
def runs(workspace: Workspace) -> Iterator[Callable[[str], Run]]:
    """Make a run's folder by name; whatever still lives in one is ended afterwards."""

    def make(name: str) -> Run:
        folder = workspace.runs / name
        folder.mkdir()
        TrainSettings(dataset="squares", device="cpu").save(folder / jobs.CONFIG)
        return Run(folder)

    yield make
    end_all(workspace)


def end_all(workspace: Workspace) -> None:
    """End every run, waiting or not, and what would start the next."""
    starter = workspace.runs / queue.STARTER
    tasks = workspace.datasets.glob("*/.*/")
    for folder in (starter, *workspace.runs.glob("*/"), *tasks, starter):  # a run that ends may restart it
        jobs.kill(folder)


def phase(run: Run, words: str) -> None:
    until(lambda: words in run.status.phase)


@pytest.mark.from_nothing
def test_runs_wait_in_order_and_without_torch(workspace: Workspace, runs: Callable[[str], Run]) -> None:
    first, second, third = (runs(name) for name in ("first", "second", "third"))
    with gpu_lock.hold(workspace.locks, "", "a person's own script"):
        for run in (first, second, third):
            run.start()
        assert queue.order(workspace) == ["first", "second", "third"]
        phase(first, "first in the queue, the CPU is held by a person's own script")
        phase(third, "third in the queue, after run second")
        pid = first.status.pid
        assert "libtorch" not in Path(f"/proc/{pid}/maps").read_text()
        assert psutil.Process(pid).memory_info().rss < 200e6
        assert (second.status.pid, third.status.pid) == (None, None)  # whoever is not next has no process

        assert queue.move(workspace, "third", 1) == ["third", "first", "second"]
        phase(third, "first in the queue, the CPU is held")
        phase(first, "second in the queue, after run third")

        for run in (first, second):  # one with a process, one without
            run.stop()
        assert second.status.state is State.STOPPED
        second.start()
        ended = first.wait(PATIENCE)
        assert (ended.state, ended.exit_code) == (State.STOPPED, ExitCode.STOPPED)
        assert "while it waited" in ended.message
        os.kill(third.status.pid or 0, signal.SIGKILL)
        phase(second, "first in the queue, the CPU is held")
        assert queue.order(workspace) == ["second"]
        with pytest.raises(ConfigError, match="'third' is not waiting: .* now second"):
            queue.move(workspace, "third", 1)
        second.stop()
        second.wait(PATIENCE)
    assert queue.order(workspace) == []


def test_a_paused_run_that_goes_first_is_named_on_those_that_wait_and_is_not_counted(
    workspace: Workspace, runs: Callable[[str], Run]
) -> None:
    """Every face has the same numbers: the run's own phase, the snapshot, Home, and the order."""
    paused, first, second = (runs(name) for name in ("paused", "first", "second"))
    sleeper = subprocess.Popen(["sleep", "600"], start_new_session=True)
    write_json(paused.folder / jobs.PROCESS, {**processes.identity(sleeper.pid), "started_at": time.time()})
    write_json(paused.folder / jobs.HEARTBEAT, {"phase": "paused", "paused": True, "time": time.time()})
    queue.join(workspace, queue.Entry.of(workspace, paused.folder, "", ()), first=True)
    first.start()
    second.start()
    phase(first, "first in the queue; run paused is paused and goes first: resume or stop it")
    phase(second, "second in the queue, after run first; run paused is paused and goes first")
    assert queue.order(workspace) == ["first", "second"]
    assert [snapshot(run).position for run in (paused, first, second)] == [None, 1, 2]
    active = OverviewReader(workspace).read().active
    assert [(line.name, line.state) for line in active] == [
        ("paused", "paused"),
        ("first", "waiting"),
        ("second", "waiting"),
    ]
    assert "second in the queue, after run first; run paused is paused" in active[2].activity
    sleeper.kill()
    sleeper.wait()


def test_a_failed_run_does_not_stop_the_next_and_neither_does_a_killed_one(
    workspace: Workspace, runs: Callable[[str], Run]
) -> None:
    names = ("fails", "dies", "lasts")
    jobs_by_name = {name: runs(name) for name in names}
    for name in names:
        queue.submit(workspace, workspace.runs / name, MODULE, env={BEHAVIOR: "cpu"})
    turn = {name: run.folder / "turn" for name, run in jobs_by_name.items()}
    until(turn["fails"].exists)
    phase(jobs_by_name["dies"], "held by run fails")
    (jobs_by_name["fails"].folder / "fail").touch()
    until(turn["dies"].exists)
    assert jobs.wait(jobs_by_name["fails"].folder, PATIENCE).state is State.FAILED
    assert not turn["lasts"].exists()
    os.kill(jobs_by_name["dies"].status.pid or 0, signal.SIGKILL)
    until(turn["lasts"].exists)
    assert queue.order(workspace) == []


def test_a_task_that_needs_the_device_waits_its_turn_like_a_run(
    workspace: Workspace, runs: Callable[[str], Run]
) -> None:
    """And one that needs none starts at once."""
    task, other = (workspace.datasets / "cats" / name for name in (".caption", ".check"))
    first, last = runs("first"), runs("last")
    with gpu_lock.hold(workspace.locks, "", "a person's own script"):
        first.start()
        queue.submit(workspace, task, MODULE, [DEVICES["cpu"]], "caption of cats", env={BEHAVIOR: "cpu"})
        last.start()
        assert queue.order(workspace) == ["first", "datasets/cats/.caption", "last"]
        phase(last, "third in the queue, after caption of cats")
        assert (
            queue.with_position(workspace, jobs.status(task)).phase == "waiting: second in the queue, after run first"
        )
        assert queue.submit(workspace, other, MODULE, env={BEHAVIOR: "busy"}).pid is not None
        first.stop()
        until(lambda: "held by a person's own script" in jobs.status(task).phase)
    until((task / "turn").exists)
    phase(last, "the CPU is held by caption of cats")
    jobs.stop(task)
    last.stop()
    assert jobs.wait(task, PATIENCE).state is State.STOPPED


def test_a_brief_job_goes_before_runs_that_wait_and_a_paused_one(
    workspace: Workspace, runs: Callable[[str], Run]
) -> None:
    """Someone waits for it, and it takes seconds."""
    paused, first = runs("paused"), runs("first")
    write_json(paused.folder / jobs.PROCESS, {**processes.identity(os.getpid()), "started_at": time.time()})
    write_json(paused.folder / jobs.HEARTBEAT, {"phase": "paused", "paused": True, "time": time.time()})
    brief = workspace.datasets / "cats" / ".look"
    with gpu_lock.hold(workspace.locks, "", "a person's own script"):
        first.start()
        queue.submit(workspace, brief, MODULE, [DEVICES["cpu"]], "look of cats", brief=True, env={BEHAVIOR: "brief"})
        queue.join(workspace, queue.Entry.of(workspace, paused.folder, "", ()), first=True)
        assert queue.order(workspace) == ["datasets/cats/.look", "first"]
        assert queue.move(workspace, "first", 1) == ["datasets/cats/.look", "first"]
        phase(first, "second in the queue, after look of cats; run paused is paused and goes first")
        until(lambda: "first in the queue, the CPU is held" in jobs.status(brief).phase)
    until((brief / "turn").exists)
    (paused.folder / jobs.PROCESS).unlink()
    phase(first, "held by look of cats")
    jobs.stop(brief)
    first.stop()
    assert jobs.wait(brief, PATIENCE).state is State.STOPPED


def test_who_only_keeps_a_model_warm_lets_go_of_the_gpu(workspace: Workspace, runs: Callable[[str], Run]) -> None:
    run = runs("training")
    taken = threading.Event()

    def keep_warm() -> None:
        with gpu_lock.hold(workspace.locks, "GPU-1", "samples"):
            taken.set()
            until(lambda: gpu_lock.wanted(workspace.locks, "GPU-1"))

    sampler = threading.Thread(target=keep_warm)
    sampler.start()
    taken.wait()
    jobs.start(run.folder, MODULE, env={BEHAVIOR: "gpu"})
    until((run.folder / "turn").exists)
    sampler.join()
    assert gpu_lock.holder(workspace.locks) == "run training"
    assert gpu_lock.holder(workspace.locks, "") is None  # the CPU is another device


def test_a_run_that_waits_is_not_said_to_have_started(workspace: Workspace) -> None:
    """It waits for the one before it in the queue, or for the one that trains on its device."""
    for name in ("one", "two"):
        TrainSettings(dataset="cats", device="cpu").save(workspace.run(name) / jobs.CONFIG)
    assert queue.waits_for(workspace, "two") == ""
    with gpu_lock.hold(workspace.locks, "", "run one"):
        assert queue.waits_for(workspace, "two") == "one"
        assert queue.waits_for(workspace, "one") == ""
    with gpu_lock.hold(workspace.locks, "", "the sampling worker"):
        assert queue.waits_for(workspace, "two") == "", "it lets go of the device"
