"""Packages in other versions than the installed ones, for child processes.

An environment is a folder with a few packages that stand before the installed ones on the path; everything else, torch
above all, is shared. It is made once by pip and kept in the user's cache. Where the package index does not answer, the
test is skipped with a sentence.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.patience import PATIENCE

INSTALL_SECONDS = 240


def environment(*pins: str) -> dict[str, str]:
    """Variables for a child process that sees the packages of `pins` ("peft==0.18.0") before the installed ones."""
    return {**os.environ, "PYTHONPATH": str(folder(pins)), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


def folder(pins: Sequence[str]) -> Path:
    """Where the packages lie; made when it is not there."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "video-lora-workbench" / "packages"
    python = f"python{sys.version_info.major}.{sys.version_info.minor}"
    place = cache / "_".join([python, *sorted(pin.replace("==", "-") for pin in pins)])
    if place.is_dir():
        return place
    cache.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=cache, prefix=".new-"))
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--no-compile"]  # of transformers a few modules are imported
    try:
        done = subprocess.run(
            [*command, "--target", str(scratch), *pins], capture_output=True, text=True, timeout=INSTALL_SECONDS
        )
        if done.returncode:
            pytest.skip(f"the package index does not give {', '.join(pins)}: {done.stderr.strip().splitlines()[-1]}")
        try:
            os.rename(scratch, place)
        except OSError:  # another test was faster
            assert place.is_dir()
    except subprocess.TimeoutExpired:
        pytest.skip(f"the package index does not answer: {', '.join(pins)} could not be installed")
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return place


def python(code: str, variables: Mapping[str, str], *arguments: object, cwd: Path | None = None) -> str:
    """What a child process prints that runs `code`; fails with its words when it does."""
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env=dict(variables),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=3 * PATIENCE,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout
