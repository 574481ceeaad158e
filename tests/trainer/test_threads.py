"""A run on the processor takes its share of the cores when it begins, and goes on with as many threads as it had."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.driving import create, go, session
from workbench.dataset_builder import Dataset
from workbench.families.model import Model
from workbench.trainer import threads
from workbench.trainer.loop import rehearse, train_step
from workbench.trainer.threads import Threads
from workbench.workspace import Workspace


class Clock:
    """Stands in for time.perf_counter."""

    def __init__(self) -> None:
        self.now = 0.0

    def go(self, seconds: float) -> None:
        self.now += seconds

    def perf_counter(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(threads, "time", made)
    return made


@pytest.fixture
def four_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


def test_runs_that_train_at_once_share_the_cores(
    four_threads: None, workspace: Workspace, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(threads.VARIABLE, raising=False)
    own, sleep = workspace.runs / "own", "import time; print('there', flush=True); time.sleep(600)"
    sleepers = [
        subprocess.Popen(
            [sys.executable, "-c", sleep, "-m", threads.MODULE, str(folder)], stdout=subprocess.PIPE, text=True
        )
        for folder in (own, *(workspace.runs / name for name in "abc"))
    ]
    try:
        for process in sleepers:
            assert process.stdout.readline() == "there\n"
        assert threads.others(own) >= 3  # other tests may train as well
        Threads(own, None)
        assert torch.get_num_threads() == 1
        assert "computing with 1 of 4 threads: " in capfd.readouterr().out
    finally:
        for process in sleepers:
            process.communicate(process.kill())


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(threads.VARIABLE, raising=False)
    monkeypatch.setattr(threads, "others", lambda run: 0)


@pytest.mark.parametrize(
    ("seconds", "chosen"),
    [
        ({1: 0.10, 2: 0.06, 4: 0.04}, 4),
        ({1: 0.10, 2: 0.06, 4: 0.055}, 2),  # not worth the cores
        ({1: 0.05, 2: 0.06, 4: 0.04}, 4),
        ({1: 0.05, 2: 0.06, 4: 0.06}, 1),
        ({1: 9.0, 2: 5.0, 4: 2.0}, 2),  # trying would cost more than it finds
    ],
)
def test_the_fewest_threads_that_are_about_as_fast_as_any_are_taken(
    four_threads: None, alone: None, tmp_path: Path, seconds: dict[int, float], chosen: int, clock: Clock
) -> None:
    found = Threads(tmp_path, None)
    found.choose(lambda: clock.go(seconds[torch.get_num_threads()]))
    assert torch.get_num_threads() == chosen


def test_a_run_steps_back_once_others_want_the_cores(
    four_threads: None, alone: None, tmp_path: Path, clock: Clock
) -> None:
    found = Threads(tmp_path, None)
    found.choose(lambda: clock.go({1: 0.2, 2: 0.1, 4: 0.05}[torch.get_num_threads()]))
    for shape, seconds in [("small", 0.05), ("large", 0.3)] * threads.SLOW_STEPS:
        found.watch(shape, seconds)
    assert torch.get_num_threads() == 4, "a large batch is no other program"
    for _ in range(threads.SLOW_STEPS - 1):
        found.watch("small", 0.2)
    found.watch("small", 0.1)
    assert torch.get_num_threads() == 4, "one moment is none either"
    for _ in range(threads.SLOW_STEPS):
        found.watch("small", 0.2)
    assert torch.get_num_threads() == 2
    found.watch("small", 0.05)
    assert torch.get_num_threads() == 2, "it stays: sums change with the number"


def test_a_rehearsal_leaves_no_trace(workspace: Workspace, dataset: Dataset, toy_model: Model) -> None:
    """Bytes of the LoRA after two steps, with rehearsals and without."""
    made = {}
    for rehearsals in (0, 2):
        run = create(workspace, toy_model.source, lora_dropout=0.2, gradient_accumulation=2, steps=2)
        trained = session(run)
        for _ in range(rehearsals):
            rehearse(trained)
        train_step(trained)
        train_step(trained)
        made[rehearsals] = [one.detach().clone() for one in trained.trainable.parameters]
        trained.close()
    assert made[0]
    assert all(map(torch.equal, made[0], made[2]))


def test_a_run_goes_on_with_as_many_threads_as_it_had(
    four_threads: None, workspace: Workspace, dataset: Dataset, toy_model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(threads.VARIABLE, "4")
    run = create(workspace, toy_model.source)
    torch.set_num_threads(3)
    made = go(run, 1)
    made.save()
    made.close()
    torch.set_num_threads(1)
    session(run).close()
    assert torch.get_num_threads() == 3
