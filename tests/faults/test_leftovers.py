"""What killed processes and cut uploads leave goes at the next start, and only that; a log has an end."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.patience import until
from tests.serving import Page
from tests.small_job import BEHAVIOR
from workbench import jobs
from workbench.jobs import leftovers, log
from workbench.workspace import Workspace

OLD = time.time() - leftovers.SECONDS - 60


def make(path: Path, age: float = OLD) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("half")
    os.utime(path, (age, age))
    return path


@pytest.fixture
def gone() -> int:
    """The number of a process that is no more."""
    child = subprocess.Popen([sys.executable, "-c", "pass"])
    child.wait()
    return child.pid


def test_only_what_is_provably_nobodys_goes(workspace: Workspace, gone: int) -> None:
    run, samples = workspace.runs / "cats", workspace.samples / "20260101"
    page = workspace.cache / "page"
    # A process that lives now cannot have written what is older than itself; one that is older may go on writing.
    parent = os.getppid()
    nobodys = [
        make(run / f".config.json.{gone}.140.tmp"),
        make(run / f".lora.safetensors.{gone}.tmp"),
        make(workspace.cache / f".abc.safetensors.{gone}.1.tmp"),
        make(run / ".heartbeat.json.140"),
        make(samples / f".20260101-000000-000000-abcd.{gone}.mp4"),
        make(run / f".x.{os.getpid()}.1.tmp"),
        make(workspace.datasets / "a" / "clips" / f".0.mp4.{gone}.7.part"),
    ]
    cut = make(page / "tmpab12cd_9")
    somebodys = [
        make(run / f".config.json.{gone}.141.tmp", time.time()), make(run / "notes.tmp"), make(run / ".hidden"),
        make(run / "config.json"), make(samples / "20260101-000000-000000-abcd.mp4"), make(run / ".x.tmp"),
        make(page / "0123abcd" / "tmpab12cd_9"), make(page / "tmpzz12cd_9", time.time()),
    ]  # fmt: skip
    assert set(leftovers.sweep(workspace.root)) == set(nobodys)
    assert leftovers.sweep_uploads(page) == [cut]
    assert all(path.exists() for path in somebodys)
    living = make(run / f".y.{parent}.1.tmp", time.time() - leftovers.SECONDS / 2)
    assert leftovers.sweep(run) == []
    assert living.exists()


def test_a_job_sweeps_its_folder_and_its_log_keeps_its_head_and_its_tail(tmp_path: Path, gone: int) -> None:
    (tmp_path / jobs.CONFIG).write_text("{}")
    left = make(tmp_path / "previews" / f".0.mp4.{gone}.tmp")
    line = b"a line of the log of a run that says too much\n"
    with (tmp_path / jobs.LOG).open("wb") as file:
        file.write(b"the first line\n" + line * (log.MOST // len(line) + 1))
    jobs.start(tmp_path, "tests.small_job", env={BEHAVIOR: "run"})
    try:
        until(lambda: not left.exists())
        until(lambda: log.TAIL < (tmp_path / jobs.LOG).stat().st_size <= log.HEAD + log.TAIL + 200)
        until(lambda: jobs.status(tmp_path).step > 0)
        assert jobs.stacks(tmp_path)  # what it writes from now on comes at the end
    finally:
        jobs.kill(tmp_path)
    text = (tmp_path / jobs.LOG).read_bytes()
    assert text.startswith(b"the first line\na line of")
    assert text.count(b"bytes of this log were left out here ...]\n") == 1
    assert b"\0" not in text
    assert "_keep_beating" in text.decode().rpartition(line.decode())[2]


def test_times_after_a_changed_clock_are_words_that_are_true() -> None:
    assert jobs.ago(time.time() - 200).startswith("3 min 20 s ago")
    assert jobs.ago(time.time() + 5) == "0 s ago"  # another machine's clock
    assert jobs.ago(time.time() + 86_400) == "before the clock was set back"


def test_a_page_that_starts_sweeps_its_workspace(tmp_path: Path) -> None:
    workspace = Workspace.open(tmp_path / "workspace")
    old = make(workspace.run("a") / f".y.{os.getpid()}.2.tmp", OLD)
    cut = make(workspace.cache / "page" / "tmpabcd1234", OLD)
    page = Page(workspace.root)
    try:
        until(lambda: not (old.exists() or cut.exists()))
    finally:
        page.close()
