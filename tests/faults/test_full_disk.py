"""A disk that is full for a while, under a real run: what it refuses waits and is written later; a cause is kept."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.faults import long_runs
from tests.patience import PATIENCE, until_run
from workbench import jobs
from workbench.dataset_builder import Dataset
from workbench.errors import CannotWrite
from workbench.families.model import Model
from workbench.jobs import Job, State
from workbench.workspace import Workspace, files

SMALL = 1000  # bytes: a heartbeat and a command fit; a line of the curve or the log, a video and a checkpoint do not
EVERY = 10


def test_a_full_disk_under_previews_curve_and_log_ends_no_run_and_nothing_of_them_is_lost(
    workspace: Workspace, dataset: Dataset, toy_model: Model
) -> None:
    run = long_runs.start(
        workspace, toy_model, save_every=EVERY, preview_every=EVERY, preview_prompts=("a",), preview_steps=1,
        preview_inputs=False,
    )  # fmt: skip
    until_run(run, lambda: any(preview.step for preview in run.previews))
    long_runs.limit_files(run, SMALL)
    full = run.status.step
    until_run(run, lambda: run.status.step >= full + 3 * EVERY and "cannot write" in run.status.message)
    assert max(line["step"] for line in run.metrics) < run.status.step
    long_runs.limit_files(run, resource.RLIM_INFINITY)
    until_run(run, lambda: run.checkpoints[-1] > full + 3 * EVERY)
    refused = set(range(0, full + 3 * EVERY, EVERY))
    until_run(run, lambda: refused <= {preview.step for preview in run.previews})
    run.stop()
    assert run.wait(PATIENCE).state is State.STOPPED, jobs.log_tail(run.folder)
    last = run.status.step
    assert [line["step"] for line in run.metrics if "loss" in line] == list(range(1, last + 1))


@pytest.fixture
def fill(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Fill the disk: from the call on no new file is written; what is there can be overwritten."""

    def full(opened: Callable[..., Any]) -> Callable[..., Any]:
        def refusing(path: Path, mode: str = "r", *rest: Any, **more: Any) -> Any:
            if Path(path).is_relative_to(tmp_path) and set(mode) & set("wxa"):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return opened(path, mode, *rest, **more)

        return refusing

    def fill() -> None:
        monkeypatch.setattr(Path, "open", full(Path.open))
        monkeypatch.setattr(files, "open", full(open), raising=False)

    return fill


def test_the_cause_is_kept_where_the_disk_has_no_room_for_a_new_file(tmp_path: Path, fill: Callable[[], None]) -> None:
    with Job(tmp_path) as job:
        fill()
        jobs.send(tmp_path, "stop")  # it can be given
        assert job.take("stop") == {}
        raise CannotWrite("cannot write step 20: the disk is full: free some space")
    ended = jobs.status(tmp_path)
    assert (ended.state, ended.message) == (State.FAILED, "cannot write step 20: the disk is full: free some space")
    assert not list(tmp_path.glob(".*.room"))


def test_a_result_that_is_longer_than_the_reserved_room_is_kept_without_its_longest_parts(
    tmp_path: Path, fill: Callable[[], None]
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    with Job(other):
        with Job(tmp_path) as job:
            fill()
            job.outcome = {"counts": {"taken": 900}, "files": [{"name": f"{number}.mp4"} for number in range(900)]}
            job.outcome["problems"] = ["a long sentence"] * 2000
        raise CannotWrite("no room. " * 10_000)
    assert jobs.status(tmp_path).state is State.FINISHED
    result = jobs.result(tmp_path)
    assert result["counts"] == {"taken": 900}
    assert result["left_out"] == ["problems", "files"]
    assert {"problems", "files"} & set(result) == set()
    assert jobs.status(other).state is State.FAILED
    assert jobs.status(other).message.startswith("no room. ")
