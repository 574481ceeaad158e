"""What a person may type or a system may refuse, in the shell: one clear sentence each, and no traceback."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.shell import Shell
from workbench import jobs
from workbench.cli.follow import watch
from workbench.dataset_builder import Dataset
from workbench.errors import ExitCode
from workbench.workspace import Workspace

LONG = "x" * 300
ROOT = Path(__file__).resolve().parents[2]


def refused(shell: Shell, *words: str) -> str:
    """The one line that a command says when it refuses."""
    said = shell(*words)
    assert said.code != 0, (words, said)
    (line,) = said.err.strip().splitlines()
    return line


def test_what_nobody_means_is_refused_in_a_sentence(shell: Shell, dataset: Dataset, tmp_path: Path) -> None:
    clip = dataset.clips[0].id
    for number in ("nan", "inf", "-inf", "1e400"):
        assert "must be a number" in refused(shell, "dataset", "trim", "squares", clip, "--", "0", number)
        assert "fps is" in refused(shell, "dataset", "set-fps", "squares", clip, f"--fps={number}")
    for fork in ("cats@²", "cats@", "cats@" + "9" * 5000):
        assert "must be RUN@STEP" in refused(shell, "train", "--fork", fork)
    deep = tmp_path / "deep.json"
    deep.write_text("[" * 100_000)
    assert "nested too deeply" in refused(shell, "train", "--config", str(deep))
    for setting in ("model", "start_from", "dataset"):  # a shell cannot pass NUL, a file can
        deep.write_text(json.dumps({"dataset": "squares", setting: "a\0b"}))
        refused(shell, "train", "--config", str(deep))
    for name in (LONG, "x/" * 3000, "\udcff", f"/{LONG}"):
        for words in (
            ("train", "--dataset", "squares", "--model"), ("fit", "--model"), ("train", "--config"), ("runs", "show"),
            ("loras", "show"), ("dataset", "show"), ("sample", "a cat", "--config"), ("sample", "a cat", "--lora"),
        ):  # fmt: skip
            refused(shell, *words, name)
    for where in (LONG, f"{tmp_path}/{LONG}"):
        assert "File name too long" in refused(shell, "--workspace", where, "runs")


def test_a_full_disk_under_the_output_is_said(workspace: Workspace) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "workbench", "--workspace", str(workspace.root), "runs"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )
    assert done.returncode == ExitCode.CANNOT_WRITE
    assert done.stderr == "Error: this command's output: No space left on device: free some space\n"


def test_a_file_system_without_locks_is_named(shell: Shell, dataset: Dataset, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(*_: object) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    for words in (("train", "--dataset", "squares", "--detach"), ("dataset", "trigger", "squares", "other")):
        line = refused(shell, *words)
        assert "has no file locks" in line
        assert "put the workspace on a disk that has them" in line


def test_ctrl_c_while_a_job_is_started_leaves_it_alone(tmp_path: Path) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job that another test ran in this process took it
    begun = []

    def begin() -> None:
        signal.raise_signal(signal.SIGINT)
        begun.append(True)

    assert watch(lambda: jobs.status(tmp_path), begin=begin) is None
    assert begun == [True]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
