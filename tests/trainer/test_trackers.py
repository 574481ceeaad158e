"""Trackers get the metrics' own lines, go on with the same run after a resume, and never stop one."""

from __future__ import annotations

import importlib.util
import json
import os
import sqlite3
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from tests.drawing import MakeClip
from tests.patience import PATIENCE
from tests.trainer.tracked import log
from workbench.errors import ConfigError
from workbench.runs.checks import check_tracker
from workbench.runs.settings import TrainSettings
from workbench.trainer import trackers

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parent.parent.parent.parent


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace" / "runs" / "cats"
    folder.mkdir(parents=True)
    return folder


def in_a_process(home: Path, *calls: list[object]) -> str:
    """As a job runs it: no terminal, nobody logged in anywhere."""
    secret = {name for name in os.environ if name.startswith(("WANDB", "TRACKIO", "NETRC", "COMET"))}
    kept = {name: value for name, value in os.environ.items() if name not in secret}
    done = subprocess.run(
        [sys.executable, "-m", "tests.trainer.tracked", json.dumps(calls)],
        cwd=ROOT,
        env={**kept, "HOME": str(home)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=3 * PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_a_missing_package_is_named_before_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    check_tracker(TrainSettings())
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    check_tracker(TrainSettings())
    with pytest.raises(ConfigError, match="pip install wandb, or choose none"):
        check_tracker(TrainSettings(tracker="wandb"))
    with pytest.raises(ConfigError, match="tracker is comet_ml, .*: pip install comet_ml, or choose none"):
        check_tracker(TrainSettings(tracker="comet_ml"))
    with pytest.raises(ConfigError, match="tracker is all, but none is installed: install one of tensorboard, "):
        check_tracker(TrainSettings(tracker="all"))


def test_tensorboard_goes_on_in_the_same_folder_and_hides_what_comes_again(run: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    said = log(run, "tensorboard", 1, 6)
    assert said == [f"TensorBoard: tensorboard --logdir {run.parent}"]
    log(run, "tensorboard", 4, 8)  # it was killed after step 6 and goes on from the checkpoint of step 3
    assert [path.name for path in run.iterdir()] == ["tensorboard"]
    events = EventAccumulator(str(run / "tensorboard")).Reload()
    assert [(one.step, round(one.value, 4)) for one in events.Scalars("loss")] == [
        (step, round(1 / step, 4)) for step in range(1, 9)
    ]
    assert [one.step for one in events.Scalars("held_out_bands/1")] == [8]
    assert any("settings" in tag for tag in events.Tags()["tensors"])


@pytest.fixture(scope="module")
def tracked(tmp_path_factory: pytest.TempPathFactory, make_clip: MakeClip) -> tuple[Path, Path, str]:
    """A workspace after runs with trackio and Weights & Biases, the latter's run, and what was said; in one process."""
    home = tmp_path_factory.mktemp("tracked")
    clip = make_clip(home / "0.mp4")
    first, second, third = (home / "workspace/runs" / name for name in ("cats", "dogs", "everywhere"))
    for folder in (first, second, third):
        folder.mkdir(parents=True)
    calls: list[list[object]] = [
        [str(first), "trackio", 1, 4, str(clip)],
        [str(first), "trackio", 3, 6],  # it was killed after step 4 and goes on from the checkpoint of step 2
        [str(first)],
        [str(first), "trackio", 1, 2],  # another run of that name, after the first one was deleted
        [str(second), "wandb", 1, 4],
        [str(second), "wandb", 3, 6],
        [str(third), "all", 1, 4, str(clip)],
        [str(third), "all", 3, 6],
    ]
    return home / "workspace", second, in_a_process(home, *calls)


def test_trackio_keeps_runs_in_the_workspace_and_apart(tracked: tuple[Path, Path, str]) -> None:
    workspace, _, said = tracked
    assert "its dashboard opens in the Train tab" in said
    folder = workspace / trackers.TRACKIO
    with sqlite3.connect(folder / "tests.db") as database:
        rows = database.execute(
            "select run_id, step, metrics from metrics where run_name = 'cats' order by id"
        ).fetchall()
    first, *_, last = [row[0] for row in rows]
    assert first != last
    steps = [(row[1], json.loads(row[2])) for row in rows if row[0] == first]
    assert {step: values["loss"] for step, values in steps if "loss" in values} == {s: 1 / s for s in range(1, 7)}
    assert [row[1] for row in rows if row[0] == last] == [1, 2, 2]
    assert len(list(folder.glob("media/**/*.mp4"))) == 2  # a preview of this run, and one of the run that has all


def test_all_writes_to_every_tracker_and_comet_stays_offline(tracked: tuple[Path, Path, str]) -> None:
    """Comet is an extra that the project's own environment leaves out: where it is installed, it is tried, too."""
    workspace, _, said = tracked
    comet = importlib.util.find_spec("comet_ml") is not None
    assert f"trackers: tensorboard, trackio, wandb{', comet_ml' if comet else ''}" in said
    assert "could not be" not in said
    run = workspace / "runs" / "everywhere"
    assert (run / "tensorboard").is_dir()
    assert list((run / "wandb").glob("offline-run-*/*.wandb"))
    if not comet:
        return
    kept = sorted((run / "comet_ml").glob("*.zip"))
    lines = [
        message
        for archive in map(zipfile.ZipFile, kept)
        for message in map(json.loads, archive.read("messages.json").splitlines())
    ]
    losses = {
        line["payload"]["metric"]["metricValue"]
        for line in lines
        if line["type"] == "metric_msg" and line["payload"]["metric"]["metricName"] == "loss"
    }
    assert losses == {1 / step for step in range(1, 7)}


def test_weights_and_biases_stays_offline_where_nobody_is_logged_in(tracked: tuple[Path, Path, str]) -> None:
    _, run, said = tracked
    assert "nobody is logged in" in said
    # The folders are named by the second, with a suffix for a second one in it; `wandb sync` goes by the file's name.
    kept = {path.name for path in (run / "wandb").glob("offline-run-*/*.wandb")}
    assert kept == {f"run-{json.loads((run / trackers.RECORD).read_text())['id']}.wandb"}


def test_a_tracker_that_breaks_later_is_turned_off_once(run: Path) -> None:
    class Broken:
        """A tracker whose server is gone after the first line."""

        def __init__(self) -> None:
            self.lines, self.ended = 0, False

        def log(self, values: Any, step: int) -> None:
            self.lines += 1
            if self.lines > 2:
                raise ConnectionError("the server went away\nand more")

        def finish(self) -> None:
            self.ended = True

    class Accelerator:
        trackers: list[Any]

        def __init__(self) -> None:
            self.trackers = []

        def init_trackers(self, *_: Any) -> None:
            self.trackers.append(Broken())

    said: list[str] = []
    accelerator = Accelerator()
    tracked = trackers.Tracker(accelerator, run, TrainSettings(tracker="tensorboard"), 0, said.append)
    for step in (1, 2, 3, 4):
        tracked.log({"step": step, "loss": 1.0})
    tracked.finish()
    assert said[1:] == [
        "the tracker tensorboard could not be written to and is now off; the run continues: the server went away"
    ]
    assert accelerator.trackers[0].lines == 3
