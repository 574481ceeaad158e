"""The browser code's own tests (tests/browser_code), run by node; its rules are checked by eslint, see `make lint`."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.patience import PATIENCE


def test_browser_code() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is missing: install it to test the browser code")
    files = map(str, sorted((Path(__file__).resolve().parent / "browser_code").glob("*.test.mjs")))
    done = subprocess.run([node, "--test", *files], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
