"""Jobs with real processes: every state is derived from the folder, and only the right process is ever touched."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.patience import PATIENCE, until
from tests.small_job import BEHAVIOR
from workbench import jobs
from workbench.errors import ConfigError, DeviceBusy, ExitCode
from workbench.jobs import State, gpu_lock, platform, processes
from workbench.jobs.control import FORCED
from workbench.jobs.reading import STALE_SECONDS

MODULE = "tests.small_job"


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A job's folder; whatever still runs in it is ended afterwards."""
    (tmp_path / jobs.CONFIG).write_text("{}")
    yield tmp_path
    if jobs.status(tmp_path).pid != os.getpid():  # some tests name this very process
        jobs.kill(tmp_path)


def start(folder: Path, behavior: str = "run") -> jobs.Status:
    return jobs.start(folder, MODULE, env={BEHAVIOR: behavior})


def stepping(folder: Path) -> bool:
    return jobs.status(folder).step > 0


def write(folder: Path, name: str, value: dict[str, Any]) -> None:
    (folder / name).write_text(json.dumps(value))


def myself() -> dict[str, Any]:
    """A process record of a process that is alive: this one."""
    return {**processes.identity(os.getpid()), "started_at": time.time()}


# ---- states from files


TRAINS = {"phase": "train", "step": 4, "total": 10, "step_seconds": 2}


@pytest.mark.parametrize(
    ("process", "beat", "result", "state"),
    [
        (None, None, None, State.NEW), ({}, None, None, State.STARTING), ({}, TRAINS, None, State.RUNNING),
        ({}, {**TRAINS, "paused": True}, None, State.PAUSED),
        ({}, {**TRAINS, "stopping": True}, None, State.STOPPING), ({"boot_id": "another"}, TRAINS, None, State.DIED),
        ({}, '{"phase": "train", "st', None, State.STARTING), ({}, "[]", None, State.STARTING),
        ({}, '{"step": "many", "time": "noon"}', None, State.RUNNING),
        (None, None, {"status": "exploded"}, State.FAILED),
        ({}, TRAINS, {"status": "finished", "exit_code": 0}, State.FINISHED),
    ],
)  # fmt: skip
def test_the_files_of_a_job_tell_its_state_whatever_is_in_them(
    folder: Path, process: Any, beat: Any, result: Any, state: State
) -> None:
    if process is not None:
        write(folder, jobs.PROCESS, {**myself(), **process})
    if isinstance(beat, dict):
        write(folder, jobs.HEARTBEAT, {**beat, "time": time.time()})
    elif beat:
        (folder / jobs.HEARTBEAT).write_text(beat)
    if result is not None:
        write(folder, jobs.RESULT, result)
    now = jobs.status(folder)
    assert now.state is state
    if state is State.RUNNING and beat is TRAINS:
        assert now.seconds_left == 12


def test_a_living_process_that_is_silent_for_long_hangs(folder: Path) -> None:
    write(folder, jobs.PROCESS, myself())
    write(folder, jobs.HEARTBEAT, {"phase": "train", "time": time.time() - STALE_SECONDS - 5})
    assert jobs.status(folder).hanging


# ---- states from processes


@pytest.mark.parametrize(
    ("behavior", "state", "code", "message"),
    [
        ("finish", State.FINISHED, 0, ""),
        ("fail", State.FAILED, ExitCode.BAD_DATA, "no usable clips: import some"),
        ("crash", State.FAILED, ExitCode.BUG, "ZeroDivisionError: a bug"),
    ],
)
def test_a_job_that_ends_says_how(folder: Path, behavior: str, state: State, code: int, message: str) -> None:
    start(folder, behavior)
    now = jobs.wait(folder, PATIENCE)
    assert (now.state, now.exit_code, now.message) == (state, code, message)
    assert ("Traceback" in jobs.log_tail(folder)) == (state is State.FAILED)
    assert (jobs.result(folder).get("lora") == "lora.safetensors") == (behavior == "finish")


def test_a_living_job_says_what_its_threads_do(folder: Path) -> None:
    start(folder)
    until(lambda: stepping(folder))
    said = jobs.stacks(folder)
    assert "small_job.py" in said
    assert "in _keep_beating" in said
    before = jobs.status(folder).step
    until(lambda: jobs.status(folder).step > before)


def test_a_process_that_would_die_of_the_question_is_not_asked(folder: Path) -> None:
    with pytest.raises(ConfigError, match="cannot show its stacks"):
        jobs.stacks(folder)
    stranger = subprocess.Popen(["sleep", "600"])
    try:
        write(folder, jobs.PROCESS, {**processes.identity(stranger.pid), "started_at": time.time()})
        with pytest.raises(ConfigError, match="cannot show its stacks"):
            jobs.stacks(folder)
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


# ---- starting


def test_starting_twice_at_once_gives_one_process(folder: Path) -> None:
    threads = [threading.Thread(target=start, args=(folder,)) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    until(lambda: stepping(folder))
    assert len((folder / "starts").read_text().split()) == 1


def test_a_job_outlives_its_starter_and_leaves_its_session(folder: Path) -> None:
    code = f"from pathlib import Path; from workbench import jobs; jobs.start(Path({str(folder)!r}), {MODULE!r})"
    subprocess.run([sys.executable, "-c", code], check=True)
    until(lambda: stepping(folder))
    pid = jobs.status(folder).pid
    assert pid
    assert os.getsid(pid) == pid != os.getsid(0)


def test_commands_left_for_an_earlier_process_are_not_obeyed(folder: Path) -> None:
    jobs.send(folder, "stop")
    start(folder)
    until(lambda: stepping(folder))


# ---- commands


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_counts_as_stop(folder: Path, number: signal.Signals) -> None:
    start(folder)
    until(lambda: stepping(folder))
    pid = jobs.status(folder).pid
    assert pid
    os.kill(pid, number)
    assert jobs.wait(folder, PATIENCE).state is State.STOPPED


def test_a_job_that_is_put_off_while_its_last_process_is_on_its_way_out_gets_another(folder: Path) -> None:
    write(folder, jobs.PROCESS, myself())  # it has said how it ended, and lives
    write(folder, jobs.RESULT, {"status": "stopped", "exit_code": 90, "message": "", "ended_at": 1.0})
    jobs.put_off(folder, MODULE, {BEHAVIOR: "run"}, contextlib.nullcontext())
    jobs.start_waiting(folder)
    until(lambda: jobs.status(folder).state is State.RUNNING)
    assert jobs.status(folder).pid != os.getpid()
    jobs.kill(folder)


def test_a_job_that_does_not_listen_is_ended_with_its_children(folder: Path) -> None:
    start(folder, "deaf")
    until(lambda: (folder / "deaf").exists())
    child = int((folder / "child").read_text())
    jobs.stop(folder, grace=0.3)
    ended = jobs.status(folder)
    assert (ended.state, ended.message) == (State.STOPPED, FORCED)
    until(lambda: platform.start_time(child) is None)


def test_a_save_that_has_begun_is_finished_however_impatient_the_stop(folder: Path) -> None:
    start(folder, "saves")
    until(lambda: jobs.status(folder).phase.startswith("saving"))
    jobs.stop(folder, grace=0.1)
    assert (folder / "saved").exists()


def test_a_pid_that_now_belongs_to_someone_else_is_never_touched(folder: Path) -> None:
    stranger = subprocess.Popen(["sleep", "600"], start_new_session=True)
    try:
        record = {**myself(), "pid": stranger.pid, "start_time": "1"}
        write(folder, jobs.PROCESS, record)
        assert jobs.status(folder).state is State.DIED
        jobs.stop(folder, grace=0)
        jobs.kill(folder)
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_a_job_run_by_hand_is_found_and_can_be_ended(folder: Path) -> None:
    child = subprocess.Popen([sys.executable, "-m", MODULE, str(folder)], env={**os.environ, BEHAVIOR: "deaf"})
    until(lambda: (folder / "deaf").exists())
    assert jobs.status(folder).pid == child.pid
    jobs.kill(folder)
    child.wait(PATIENCE)
    with contextlib.suppress(ProcessLookupError):  # it shares its group with us, so by groups its child is not found
        os.kill(int((folder / "child").read_text()), signal.SIGKILL)


# ---- the GPU lock


def test_a_gpu_is_held_by_one_process_and_freed_by_its_death(folder: Path) -> None:
    start(folder, "hold")
    until(lambda: stepping(folder))
    assert gpu_lock.holder(folder) == f"run {folder.name}"
    with pytest.raises(DeviceBusy, match=f"held by run {folder.name}"), gpu_lock.hold(folder, "GPU-1", "me"):
        pass
    with gpu_lock.hold(folder, "GPU-2", "me"):
        assert gpu_lock.holder(folder, "GPU-2") == "me"
    pid = jobs.status(folder).pid
    assert pid
    os.kill(pid, signal.SIGKILL)
    jobs.wait(folder, PATIENCE)
    until(lambda: gpu_lock.holder(folder) is None)
    with gpu_lock.hold(folder, "GPU-1", "me"):
        assert gpu_lock.holder(folder, "GPU-1") == "me"


def test_many_readers_at_once_still_see_the_holder(folder: Path) -> None:
    """Asking who holds a free GPU must not make it look taken to the next one who asks, or to one who takes it."""
    (folder / "gpu-GPU-1.lock").touch()
    seen: list[str | None] = []
    refused: list[str] = []

    def ask() -> None:
        seen.extend(gpu_lock.holder(folder) for _ in range(200))

    def take() -> None:
        for _ in range(200):
            with contextlib.suppress(DeviceBusy), gpu_lock.hold(folder, "GPU-1", "me"):
                continue
            refused.append("refused")

    askers = [threading.Thread(target=ask) for _ in range(3)]
    taker = threading.Thread(target=take)
    for thread in [*askers, taker]:
        thread.start()
    for thread in [*askers, taker]:
        thread.join()
    assert not refused
    assert set(seen) <= {None, "me", "another process"}


def test_a_holder_that_only_keeps_warm_is_asked_to_let_go(tmp_path: Path) -> None:
    with contextlib.ExitStack() as warm:
        warm.enter_context(gpu_lock.hold(tmp_path, "GPU-1", "samples"))
        taken: list[float] = []

        def train() -> None:
            with gpu_lock.hold(tmp_path, "GPU-1", "run cats", patience=30.0):
                taken.append(time.monotonic())

        thread = threading.Thread(target=train)
        thread.start()
        while not gpu_lock.wanted(tmp_path, "GPU-1"):
            time.sleep(0.01)
        assert not taken
        warm.close()
        thread.join(PATIENCE)
        assert taken
    assert not gpu_lock.wanted(tmp_path, "GPU-1")
