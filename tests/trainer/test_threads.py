"""A run on the processor takes its share of the cores when it begins, and goes on with as many threads as it had."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch

from tests.driving import create, go, session
from workbench.dataset_builder import Dataset
from workbench.families.model import Model
from workbench.trainer import threads
from workbench.workspace import Workspace


@pytest.fixture
def four_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(4)
    yield
    torch.set_num_threads(before)


def test_runs_that_train_at_once_share_the_cores(
    four_threads: None, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
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
            assert process.stdout is not None
            assert process.stdout.readline() == "there\n"
        assert threads.others(own) >= 3  # other tests may train as well
        assert threads.settle(own, None).startswith("computing with 1 of 4 threads: ")
        assert torch.get_num_threads() == 1
        torch.set_num_threads(4)
        monkeypatch.setattr(threads, "others", lambda run: 0)
        assert threads.settle(own, None) == "computing with 2 of 4 threads: the rest is for other work"
        torch.set_num_threads(4)
        monkeypatch.setenv(threads.VARIABLE, "4")
        assert (threads.settle(own, None), torch.get_num_threads()) == ("", 4), "a person has decided"
    finally:
        for process in sleepers:
            process.communicate(process.kill())


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
