"""benchmarks/gpu_hour.py keeps what it has measured, ends in time, and takes a full memory for a result."""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import psutil
import pytest

from tests.patience import PATIENCE
from workbench.paths import CODE

DETACHED = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
print(child.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture
def gpu_hour(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(CODE / "benchmarks"))
    yield importlib.import_module("gpu_hour")
    for name in ("gpu_hour", "common"):
        sys.modules.pop(name, None)


def test_a_row_that_was_measured_is_known_and_a_failed_one_is_not(gpu_hour: ModuleType, tmp_path: Path) -> None:
    gpu_hour.write("fit", tmp_path, [{"row": "one", "ours": 1}, {"row": "two", "failed": "its time was over"}])
    gpu_hour.write("fit", tmp_path / "earlier", [{"row": "three", "out of memory": True}])
    assert list(gpu_hour.measured("fit", [tmp_path, tmp_path / "earlier"])) == ["one", "three"]
    held = json.loads((tmp_path / "gpu_fit.json").read_text())
    assert {"machine", "versions", "card", "rows"} <= set(held)


def test_a_row_whose_time_is_over_is_ended_with_all_that_it_started(gpu_hour: ModuleType) -> None:
    for seconds in (3.0, 20.0, PATIENCE):  # a busy machine may not have begun it
        output, code = gpu_hour.run([sys.executable, "-c", DETACHED], seconds)
        if output:
            break
    assert code is None
    child = int(output.split()[0])
    end = time.monotonic() + PATIENCE
    while psutil.pid_exists(child) and psutil.Process(child).status() != "zombie" and time.monotonic() < end:
        time.sleep(0.05)
    assert not psutil.pid_exists(child) or psutil.Process(child).status() == "zombie"


def test_the_fastest_level_is_the_one_that_is_profiled(gpu_hour: ModuleType, tmp_path: Path) -> None:
    levels = {"diffusers": 1.0, "full": 4.0, "keep attention": 3.0}
    rows = [{"row": name, "level": name, "seconds": seconds} for name, seconds in levels.items()]
    gpu_hour.write("training-5b", tmp_path, [*rows, {"row": "none", "level": "none", "out of memory": True}])
    (asked,) = gpu_hour.blocks("work", [tmp_path])["profile"]
    assert asked.name == "5b, keep attention"


def test_every_row_of_the_plan_names_options_that_its_script_has(gpu_hour: ModuleType) -> None:
    training = importlib.import_module("gpu_training")
    known = {*training.LEVELS, *training.REFERENCES}
    for rows in gpu_hour.blocks("work", []).values():
        for asked in rows:
            if asked.script == "gpu_training.py":
                assert asked.arguments[1] in training.SIZES
                assert asked.arguments[2] in known
            elif asked.script == "fit_check.py":
                assert asked.name in importlib.import_module("fit_check").ON_GPU
            elif asked.script == "whole_run.py":
                assert asked.arguments[3] in importlib.import_module("whole_run").ROWS
