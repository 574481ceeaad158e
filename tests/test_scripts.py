"""Installing: the small build of torch without a GPU, the large one with, and what is there is kept."""

from __future__ import annotations

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
    """What pip is asked to install; nothing is installed."""
    calls: list[tuple[str, ...]] = []

    def pip(python: Path, *arguments: str, check: bool = True) -> bool:
        calls.append(arguments)
        return True

    monkeypatch.setattr(install, "pip", pip)
    monkeypatch.setattr(install, "installed_torch", lambda python: None)
    monkeypatch.setattr(install, "has_gpu", lambda: False)
    monkeypatch.setattr(sys, "platform", "linux")
    return calls


def test_without_a_gpu_the_cpu_build_comes_from_its_index(asked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "reachable", lambda url: True)
    install.install_torch(PYTHON)
    assert asked == [(PINNED, "--index-url", install.CPU_INDEX)]


def test_where_that_index_does_not_answer_the_default_one_is_asked(asked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "reachable", lambda url: False)
    install.install_torch(PYTHON)
    assert asked == [(PINNED,)]


def test_with_a_gpu_the_cuda_build_comes(asked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "has_gpu", lambda: True)
    install.install_torch(PYTHON)
    assert asked == [(PINNED,)]


def test_a_torch_that_fits_is_kept(asked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(install, "installed_torch", lambda python: "2.13.0+cpu")
    install.install_torch(PYTHON)
    assert asked == []


def test_a_cpu_build_on_a_machine_with_a_gpu_is_replaced(asked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[Any] = []
    monkeypatch.setattr(install, "installed_torch", lambda python: "2.13.0+cpu")
    monkeypatch.setattr(install, "has_gpu", lambda: True)
    monkeypatch.setattr(subprocess, "run", lambda command, **_: ran.append(command))
    install.install_torch(PYTHON)
    assert "uninstall" in ran[0]
    assert asked == [(PINNED,)]


def test_an_address_that_does_not_answer_is_not_reachable() -> None:
    assert not install.reachable("http://127.0.0.1:9")


def test_the_project_is_installed_without_moving_torch(asked: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[str] = []

    def pip(python: Path, *arguments: str, check: bool = True) -> bool:
        kept.append(Path(arguments[arguments.index("--constraint") + 1]).read_text())
        return True

    monkeypatch.setattr(install, "pip", pip)
    monkeypatch.setattr(install, "installed_torch", lambda python: "2.13.0+cpu")
    install.install_project(PYTHON, dev=False)
    assert kept == ["torch==2.13.0+cpu\n"]


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
