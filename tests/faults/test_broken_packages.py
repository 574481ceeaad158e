"""`workbench doctor` tries what people will do: a package that is there and does not work is found and named."""

from __future__ import annotations

import os
import site
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE
from workbench.errors import ExitCode
from workbench.operations import machine

ROOT = Path(__file__).resolve().parents[2]
BROKEN = 'raise ImportError("libavformat.so.62: cannot open shared object file: No such file or directory")\n'


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """An environment's python with the installed packages, but for an av that cannot be loaded."""
    place, broken = tmp_path / "env", tmp_path / "broken"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", place], check=True, timeout=3 * PATIENCE)
    (broken / "av").mkdir(parents=True)
    (broken / "av" / "__init__.py").write_text(BROKEN)
    packages = next((place / "lib").glob("python*")) / "site-packages"
    paths = [str(broken), str(ROOT), *site.getsitepackages(), *_linked()]
    (packages / "others.pth").write_text("\n".join(paths) + "\n")
    return place / "bin" / "python"


def _linked() -> list[str]:
    """Folders that this environment's own .pth files add to the path."""
    return [path for path in sys.path if path.endswith("site-packages")]


def looked(python: Path | str, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(python), "-m", "workbench", "doctor", "--workspace", str(folder), *arguments]
    variables = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, capture_output=True, text=True, timeout=3 * PATIENCE, cwd=folder, env=variables)


def test_a_machine_in_order_imports_a_clip_and_trains(tmp_path: Path) -> None:
    done = looked(sys.executable, tmp_path)
    assert "read, converted and checked: 9 frames of 160x160" in done.stdout, done.stdout + done.stderr
    assert "took two steps (loss " in done.stdout
    assert "! a clip" not in done.stdout
    assert "! training" not in done.stdout


def test_a_broken_av_is_found_by_trying(environment: Path, tmp_path: Path) -> None:
    done = looked(environment, tmp_path)
    assert done.returncode == ExitCode.BAD_CONFIG
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("! a clip")]
    assert "libavformat.so.62" in line
    assert "-> python scripts/install.py" in done.stdout
    assert "Traceback" not in done.stdout + done.stderr
    assert looked(environment, tmp_path, "--quick").returncode == looked(sys.executable, tmp_path, "--quick").returncode


def test_a_trial_that_crashes_or_hangs_is_a_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "TRIAL", "no.such.module")
    crashed = machine.tried()
    assert "No module named" in crashed[0].found
    assert crashed[0].remedy
    monkeypatch.setattr(machine, "TRIAL", "tests.faults.endless")
    hung = machine.tried(seconds=1.0)
    assert hung[0].found == "no response within 1 s"
    assert hung[0].remedy
