"""A command of the shell, run in the test's own process; the fixture `shell` gives it the test's workspace."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

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
