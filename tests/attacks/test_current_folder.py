"""Files of the current folder are never run: not its webui.py, and no module that one of our processes imports."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.patience import PATIENCE
from tests.small_job import BEHAVIOR
from workbench import jobs
from workbench.jobs import State

ROOT = Path(__file__).resolve().parent.parent.parent
TRAPS = ("webui", "workbench", "psutil", "httpx", "click", "gradio", "numpy", "uvicorn", "tests")
TRAP = "import pathlib; pathlib.Path(__file__).with_suffix('.sprung').touch(); raise SystemExit('a trap')\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with modules that say when they were imported."""
    here = tmp_path / "here"
    here.mkdir()
    for name in TRAPS:
        (here / f"{name}.py").write_text(TRAP)
    monkeypatch.chdir(here)
    return here


def test_the_command_opens_our_own_page(folder: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-P", "-m", "workbench", "webui"]  # as the installed `workbench webui`
    environment = {**os.environ, "WORKBENCH_HOME": str(tmp_path / "workspace")}
    page = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    line = page.stdout.readline()
    page.kill()
    page.communicate()
    assert line.startswith("Video LoRA Workbench: http://127.0.0.1:")
    assert not list(folder.glob("*.sprung"))


def test_a_job_imports_nothing_from_here(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(BEHAVIOR, "finish")
    jobs.start(tmp_path / "job", "tests.small_job")
    assert jobs.wait(tmp_path / "job", PATIENCE).state is State.FINISHED, jobs.log_tail(tmp_path / "job")
    assert not list(folder.glob("*.sprung"))


# Two start the page by its file, which is no module of the current folder either; the rest are
# of other machines.
STARTERS = {
    "jobs/processes.py", "cli/webui.py", "notebook/page.py", "operations/machine.py", "remote/hub_jobs.py",
    "remote/ssh.py", "jobs/platform.py",
}  # fmt: skip


def test_every_process_of_ours_is_started_in_one_way() -> None:
    """By processes.command, which names -P; where a command is for another machine it stands there."""
    found = {}
    for path in sorted((ROOT / "workbench").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if re.search(r"sys\.executable|\"-m\",|\s-m \{", text):
            found[path.relative_to(ROOT / "workbench").as_posix()] = text
    assert set(found) == STARTERS
    assert '[platform.python()[0], "-P", "-m", module' in found["jobs/processes.py"]
    assert '"-m"' not in found["jobs/platform.py"]
    assert '"-P", "-m"' in found["remote/hub_jobs.py"]
    assert " -P -m {" in found["remote/ssh.py"]
    assert found["operations/machine.py"].count("sys.executable") == 1, "which it only shows"
    assert "[sys.executable, str(PAGE)" in found["cli/webui.py"]
