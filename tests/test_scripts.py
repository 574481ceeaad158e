"""Installation: locked packages, torch's CPU build without a GPU, its CUDA build with one, existing builds kept.

The Windows scripts are read, not run: they must name existing files and have Windows line endings.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scripts import browser, install

PYTHON = Path(sys.executable)
PINNED = f"torch=={install.TORCH}"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The arguments that pip gets on Linux without a GPU; nothing is installed."""
    calls: list[tuple[str, ...]] = []
    monkeypatch.setattr(install, "pip", lambda python, *arguments, check=True: calls.append(arguments) or True)
    given(monkeypatch)
    return calls


def given(
    monkeypatch: pytest.MonkeyPatch,
    torch: str | None = None,
    gpu: bool = False,
    answers: bool = True,
    at: str = "linux",
) -> None:
    """Simulate a machine: its torch, whether it has a GPU, whether the indexes answer, its system."""
    monkeypatch.setattr(install, "installed_torch", lambda python: torch)
    monkeypatch.setattr(install, "has_gpu", lambda: gpu)
    monkeypatch.setattr(install, "reachable", lambda url: answers)
    monkeypatch.setattr(sys, "platform", at)


def test_the_build_of_torch_is_that_of_the_machine(asked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Any] = []
    monkeypatch.setattr(subprocess, "run", lambda command, **_: ran.append(command))
    for machine, wanted in (
        ({}, [(PINNED, "--index-url", install.CPU_INDEX)]),
        ({"answers": False}, [(PINNED,)]),
        ({"gpu": True}, [(PINNED,)]),
        ({"gpu": True, "at": "win32"}, [(PINNED, "--index-url", install.CUDA_INDEX)]),
        ({"torch": "2.13.0+cpu"}, []),  # it fits and is kept
    ):
        given(monkeypatch, **machine)
        install.install_torch(PYTHON)
        assert asked == wanted, machine
        assert ran == []
        asked.clear()
    given(monkeypatch, torch="2.13.0+cpu", gpu=True)
    install.install_torch(PYTHON)
    assert "uninstall" in ran[0]
    assert asked == [(PINNED,)]


def test_an_amd_gpu_is_told_how_to_get_its_build(
    asked: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for amd in (True, False):
        monkeypatch.setattr(install, "has_amd_gpu", lambda amd=amd: amd)
        install.install_torch(PYTHON)
        assert ("for your ROCm" in capsys.readouterr().out) == amd
    given(monkeypatch, torch="2.13.0+rocm7.2")
    install.install_torch(PYTHON)
    assert len(asked) == 2
    assert "keeping torch 2.13.0+rocm7.2" in capsys.readouterr().out


def test_the_project_is_installed_without_moving_torch(asked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[tuple[str, bool]] = []

    def pip(python: Path, *arguments: str, check: bool = True) -> bool:
        torch = Path(arguments[arguments.index("--constraint") + 1]).read_text()
        kept.append((torch, {"--no-index", "--no-build-isolation"} <= set(arguments)))
        return True

    monkeypatch.setattr(install, "pip", pip)
    monkeypatch.setattr(install, "installed_torch", lambda python: "2.13.0+cpu")
    install.install_project(PYTHON, dev=False, unlocked=False)
    install.install_project(PYTHON, dev=False, unlocked=True)
    assert kept == [("torch==2.13.0+cpu\n", True), ("torch==2.13.0+cpu\n", False)]


@pytest.mark.parametrize(("options", "lock"), [([], "notebook"), (["--dev"], "dev"), (["--unlocked"], None)])
def test_packages_come_from_the_lock_before_torch(
    asked: list[tuple[str, ...]], monkeypatch: pytest.MonkeyPatch, tmp_path: Path, options: list[str], lock: str | None
) -> None:
    monkeypatch.setattr(sys, "argv", ["install.py", "--venv", str(tmp_path), *options])
    monkeypatch.setattr(install, "environment", lambda venv: PYTHON)
    monkeypatch.setattr(install, "reachable", lambda url: False)
    assert install.main() == 0
    if lock:
        first, *asked = asked
        assert {"--require-hashes", "--no-deps"} <= set(first)
        assert Path(first[-1]) == install.ROOT / "locks" / f"{lock}.txt"
    assert asked[0] == (PINNED,)
    assert asked[1][0] == "--editable"
    assert (tmp_path / ".installed-dev").exists() == ("--dev" in options)


def test_a_lock_that_cannot_be_installed_names_the_way_without(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["install.py", "--dev", "--venv", str(tmp_path)])
    monkeypatch.setattr(install, "environment", lambda venv: PYTHON)
    monkeypatch.setattr(install, "pip", lambda *arguments, check: False)
    assert install.main() == 1
    assert "install.py --unlocked --dev" in capsys.readouterr().out
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["install.bat", "run.bat"])
def test_the_scripts_for_windows_are_as_windows_reads_them(name: str) -> None:
    text = (install.ROOT / name).read_bytes().decode("ascii")
    assert text.count("\r\n") == text.count("\n") > 5
    lines = (install.ROOT / ".gitattributes").read_text().splitlines()
    assert lines.index("* text=auto eol=lf") < lines.index("*.bat text eol=crlf")
    assert 'cd /d "%~dp0"' in text, "folders with spaces, other drives"
    assert "pause" in text, "the window stays open with its message"
    named = re.findall(r"[\w\\.]+\.(?:py|bat)\b", text)
    assert named
    assert all((install.ROOT / one.replace("\\", "/")).is_file() for one in named)


def test_the_pythons_that_windows_is_asked_for_are_the_supported_ones() -> None:
    text = (install.ROOT / "install.bat").read_text()
    (asked,) = re.findall(r"in \(([\d. ]+)\)", text)
    supported = range(install.NEWEST_PYTHON[1], install.OLDEST_PYTHON[1] - 1, -1)
    assert asked.split() == [f"3.{minor}" for minor in supported]


def test_an_old_python_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "OLDEST_PYTHON", (9, 0))
    monkeypatch.setattr(install, "NEWEST_PYTHON", (9, 1))
    monkeypatch.setattr(install.shutil, "which", lambda name: None)
    with pytest.raises(RuntimeError, match=r"9\.0 to 9\.1 are supported: install one"):
        install.new_enough_python()


def test_no_browser_is_one_sentence_and_no_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for way in ("find", "downloaded", "packaged"):
        monkeypatch.setattr(browser, way, lambda: None)
    assert browser.main() == 0
    assert "apt-get install chromium" in capsys.readouterr().out
