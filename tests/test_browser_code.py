"""The browser code's own tests (tests/browser_code), run by node; its rules are checked by eslint, see `make lint`."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.patience import PATIENCE

TESTS = Path(__file__).resolve().parent / "browser_code"


@pytest.mark.parametrize("file", sorted(TESTS.glob("*.test.mjs")), ids=lambda file: file.name.partition(".")[0])
def test_browser_code(file: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is missing: install it to test the browser code")
    done = subprocess.run([node, "--test", str(file)], capture_output=True, text=True, timeout=PATIENCE)
    assert done.returncode == 0, done.stdout + done.stderr
