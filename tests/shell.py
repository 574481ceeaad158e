"""A command of the shell, run in the test's own process; the fixture `shell` gives it the test's workspace."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.patience import PATIENCE, until
from workbench.cli import main


class Said(NamedTuple):
    """What a command printed and how it ended."""

    code: int
    out: str
    err: str


Shell = Callable[..., Said]


def run_command(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> Said:
    """Run `workbench ARGUMENTS`."""
    capsys.readouterr()
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return Said(int(ended.value.code or 0), captured.out, captured.err)


def ctrl_c(*arguments: str, when: Callable[[], bool]) -> str:
    """Run `workbench ARGUMENTS` in a process, press Ctrl-C once something has happened; return what it printed."""
    watcher = subprocess.Popen(
        [sys.executable, "-m", "workbench", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).resolve().parent.parent,
        start_new_session=True,
        # Tests that run in the background of a script inherit Ctrl-C switched off.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        until(when)
        os.killpg(watcher.pid, signal.SIGINT)
        out, _ = watcher.communicate(timeout=PATIENCE)
        assert watcher.returncode == 0
        return out
    finally:
        watcher.kill()
        watcher.communicate()
