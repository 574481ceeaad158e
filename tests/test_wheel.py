"""The wheel, installed into an environment of its own in another folder: what a checkout has beside it is there.

The program is the one that uvx and pipx start. The environment shares the packages of this one, so that nothing is
downloaded. Not covered: what pip installs with it.
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.patience import PATIENCE
from workbench.paths import CODE

pytestmark = pytest.mark.long

MOST_BYTES = 30_000_000
Workbench = Callable[..., str]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(command, cwd=CODE, check=True, capture_output=True, timeout=3 * PATIENCE)
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def workbench(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Workbench:
    """Runs the installed program in a folder that has nothing else."""
    home = tmp_path_factory.mktemp("elsewhere")
    venv = home / "venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(venv)], check=True, timeout=3 * PATIENCE)
    paths = {"base": str(venv), "platbase": str(venv)}
    packages = Path(sysconfig.get_path("purelib", vars=paths))
    shared = [path for path in sys.path if Path(path).name == "site-packages"]
    (packages / "shared.pth").write_text("\n".join(shared))
    scripts = Path(sysconfig.get_path("scripts", vars=paths))
    pip = [sys.executable, "-m", "pip", "--python", str(scripts / Path(sys.executable).name), "install", "--quiet"]
    pip += ["--disable-pip-version-check", "--no-deps", "--no-index", "--no-compile", "--ignore-installed"]
    subprocess.run([*pip, str(wheel)], check=True, timeout=3 * PATIENCE, cwd=home)

    def run(*arguments: str) -> str:
        kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "WORKBENCH_HOME")}
        done = subprocess.run(
            [str(scripts / "workbench"), *arguments],
            cwd=home,
            env={**kept, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=3 * PATIENCE,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_the_wheel_is_small_and_holds_no_test(wheel: Path) -> None:
    assert wheel.stat().st_size < MOST_BYTES
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"workbench", "video_lora_workbench"}
    assert not [name for name in names if "/tests/" in name or name.endswith(".pyc")]


def test_the_demo_runs_from_an_installed_wheel(workbench: Workbench) -> None:
    said = workbench("demo", "--steps", "2")
    assert "before_after.mp4" in said
    assert "workbench webui" in said
    assert str(CODE) not in said


def test_the_notebooks_are_copied_and_nothing_is_replaced(workbench: Workbench, tmp_path: Path) -> None:
    workbench("notebooks", str(tmp_path / "mine"))
    assert len(list((tmp_path / "mine").glob("*.ipynb"))) == 5
    with pytest.raises(AssertionError, match="name another folder"):
        workbench("notebooks", str(tmp_path / "mine"))


def test_the_page_starts_from_an_installed_wheel(workbench: Workbench) -> None:
    assert "Video LoRA Workbench in the browser" in workbench("webui", "--help")
