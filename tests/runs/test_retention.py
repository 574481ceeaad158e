"""Which checkpoints go and which stay, and that going is told before it happens."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from workbench.errors import ConfigError
from workbench.runs import checkpoints
from workbench.runs.metrics import METRICS


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with checkpoints at 10, 20 ... 100, the best of them at 30."""
    for step in range(10, 110, 10):
        checkpoints.publish(tmp_path, step, lambda folder: (folder / "lora.safetensors").write_bytes(b"x" * 1000))
    lines = [{"step": 5, "held_out_loss": 0.1}]  # the very lowest, but nothing was saved there
    lines += [{"step": step, "held_out_loss": 1 + abs(step - 30)} for step in range(0, 110, 10)]
    lines += [{"step": 40, "loss": 0.0}]
    (tmp_path / METRICS).write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"step": 20, "held_out_lo')
    return tmp_path


def test_last_every_best_and_starred_stay_and_the_rest_is_told_first(run: Path) -> None:
    checkpoints.star(run, 50)
    told = checkpoints.doomed(run, keep=2, keep_every=40)
    assert [one.step for one in told] == [10, 20, 60, 70]
    assert all(one.bytes > 1000 for one in told)
    assert checkpoints.steps(run) == list(range(10, 110, 10))  # looking removes nothing
    assert checkpoints.retire(run, keep=2, keep_every=40) == told
    assert checkpoints.steps(run) == [30, 40, 50, 80, 90, 100]
    checkpoints.unstar(run, 50)
    assert [one.step for one in checkpoints.doomed(run, keep=2, keep_every=40)] == [50]


def test_the_best_one_is_kept_whose_previews_show_something(run: Path) -> None:
    assert checkpoints.best(run) == 30
    effects = {20: (6.0, 5.0), 40: (7.0, 5.0), 60: (20.0, 5.0)}
    lines = [
        {"step": step, "preview_changes": [own], "control_changes": [control]}
        for step, (own, control) in effects.items()
    ]
    with (run / METRICS).open("a") as metrics:
        metrics.write("\n" + "".join(json.dumps(line) + "\n" for line in lines))
    assert checkpoints.best(run) == 60
    assert 30 in [one.step for one in checkpoints.retire(run, keep=2)]
    assert checkpoints.steps(run) == [60, 90, 100]


def test_what_goes_with_the_next_checkpoint_is_what_went_once_it_is_there(run: Path) -> None:
    told = checkpoints.doomed(run, keep=3, coming=110)
    checkpoints.publish(run, 110, lambda folder: (folder / "lora.safetensors").write_bytes(b"x"))
    assert checkpoints.retire(run, keep=3, keep_every=0, written=110) == told
    assert checkpoints.steps(run) == [30, 90, 100, 110]


def test_the_last_whole_checkpoint_stays_whatever_the_rules_say(run: Path) -> None:
    for step in (80, 90, 100):
        (checkpoints.folder_of(run, step) / "lora.safetensors").write_bytes(b"y" * 1000)
    checkpoints.retire(run, keep=1)
    assert checkpoints.steps(run) == [30, 70]
    assert checkpoints.newest(run) == (70, checkpoints.folder_of(run, 70))
    aside = [f"{checkpoints.DAMAGED}step-{step:08d}" for step in (80, 90, 100)]
    assert sorted(path.name for path in (run / checkpoints.FOLDER).glob(".*")) == aside


@pytest.mark.parametrize("keep", [1, 2])
def test_what_was_just_written_stays_beside_damaged_ones_of_higher_steps(run: Path, keep: int) -> None:
    for step in (90, 100):
        (checkpoints.folder_of(run, step) / "lora.safetensors").write_bytes(b"y" * 1000)
    checkpoints.publish(run, 85, lambda folder: (folder / "lora.safetensors").write_bytes(b"x"))
    checkpoints.retire(run, keep, 0, written=85)
    assert checkpoints.steps(run) == [30, *[80, 85][-keep:]]


def test_leftovers_are_swept_but_not_what_a_living_process_writes(run: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    folder = run / checkpoints.FOLDER
    (folder / f".tmp-110-{gone.pid}").mkdir()
    (folder / f".del-1-{gone.pid}").mkdir()
    (folder / f".tmp-110-{os.getppid()}").mkdir()
    checkpoints.retire(run, keep=100)
    assert [path.name for path in folder.glob(".*")] == [f".tmp-110-{os.getppid()}"]


def test_only_what_is_there_can_be_starred(run: Path) -> None:
    with pytest.raises(ConfigError, match="no checkpoint of step 7"):
        checkpoints.star(run, 7)
    (run / checkpoints.STARS).write_text("[")
    assert checkpoints.starred(run) == []
