"""The watchdog on real processes that hang: in Python, in C with the interpreter's lock held, and not at all."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from tests.idle_jobs import BEHAVIOR, MODULE
from tests.patience import PATIENCE
from workbench import jobs
from workbench.errors import ExitCode
from workbench.jobs import State, processes
from workbench.runs import checkpoints
from workbench.runs.failures import failure_of
from workbench.trainer.stall_timeout import STACKS


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folders of four jobs, by behavior, once all of them are over."""
    folders = {name: tmp_path_factory.mktemp(name) for name in ("silent", "native", "busy", "patient")}
    for name, folder in folders.items():
        checkpoints.publish(folder, 10, lambda target: (target / "lora.safetensors").write_bytes(b"x"))
        jobs.start(folder, MODULE, env={BEHAVIOR: name})
    for folder in folders.values():
        assert not jobs.wait(folder, PATIENCE).state.alive, jobs.log_tail(folder)
    return folders


def test_a_run_that_says_nothing_is_ended_with_its_stacks(ended: dict[str, Path]) -> None:
    status = jobs.status(ended["silent"])
    assert (status.state, status.exit_code) == (State.FAILED, ExitCode.STALLED)
    assert "step 12 of 300" in status.message
    assert "the last checkpoint is from step 10" in status.message
    stacks = (ended["silent"] / STACKS).read_text()
    assert "in silent" in stacks
    assert "in _watch" in stacks  # every thread
    assert "in silent" in jobs.log_tail(ended["silent"], 200)


def test_a_call_that_keeps_the_interpreter_s_lock_is_ended_too(ended: dict[str, Path]) -> None:
    folder = ended["native"]
    status = jobs.status(folder)
    assert status.state is State.DIED
    assert "in native" in (folder / STACKS).read_text()
    shown = failure_of(status, jobs.log_tail(folder), [10])
    assert shown.rule == "hang in native code"


@pytest.mark.parametrize("behavior", ["busy", "patient"])
def test_a_run_that_speaks_or_said_it_would_be_silent_is_left_alone(ended: dict[str, Path], behavior: str) -> None:
    assert jobs.status(ended[behavior]).state is State.FINISHED
    assert not (ended[behavior] / STACKS).exists()


def test_a_living_run_whose_steps_stopped_coming_is_shown_as_hanging(tmp_path: Path) -> None:
    beat = {"phase": "training", "step": 5, "total": 9, "step_seconds": 20.0, "time": time.time()}
    (tmp_path / jobs.PROCESS).write_text(json.dumps(processes.identity(os.getpid())))

    def hanging(**more: object) -> bool:
        (tmp_path / jobs.HEARTBEAT).write_text(json.dumps({**beat, **more}))
        return jobs.status(tmp_path).hanging

    assert not hanging(still=150.0)  # long for a job, not for steps of 20 s
    assert hanging(still=210.0)
    assert not hanging(still=210.0, patient=True)
