"""What runs on Windows, run on Linux: each method of the portable implementation, and the tests of jobs with it."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from tests.patience import PATIENCE, until
from workbench.operating_system import VARIABLE, bare_environment, portable
from workbench.operating_system.portable import Portable
from workbench.ui.server import serving

ROOT = Path(__file__).resolve().parents[2]
SYSTEM = Portable()


@pytest.mark.long
def test_the_tests_of_jobs_pass_with_it() -> None:
    command = [sys.executable, "-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "tests/jobs"]
    done = subprocess.run(
        command, cwd=ROOT, env={**os.environ, VARIABLE: "portable"}, capture_output=True, encoding="utf-8"
    )
    assert done.returncode == 0, done.stdout[-4000:]


def test_it_is_chosen_by_a_variable() -> None:
    code = "from workbench.operating_system import system; print(type(system).__name__)"
    for value, name in (("portable", "Portable"), ("", "Posix")):
        done = subprocess.run(
            [sys.executable, "-c", code], cwd=ROOT, env={**os.environ, VARIABLE: value}, capture_output=True, text=True
        )
        assert done.stdout.strip() == name, done.stderr


def test_the_public_demo_is_refused_where_visitors_cannot_be_limited() -> None:
    done = subprocess.run(
        [sys.executable, "webui.py", "--demo"],
        cwd=ROOT,
        env={**os.environ, VARIABLE: "portable"},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 1
    assert done.stderr.strip() == serving.NO_VISITORS


def test_a_lock_is_held_by_one_and_freed_by_closing(tmp_path: Path) -> None:
    path = tmp_path / "one.lock"
    with path.open("a") as first:
        SYSTEM.lock(first, shared=False, wait=True)
        for shared in (False, True):
            with path.open("a") as second, pytest.raises(BlockingIOError):
                SYSTEM.lock(second, shared, wait=False)
        taken = threading.Event()

        def take() -> None:
            with path.open("a") as third:
                SYSTEM.lock(third, shared=False, wait=True)
                taken.set()

        waiting = threading.Thread(target=take)
        waiting.start()
        assert not taken.wait(0.1)
    waiting.join(PATIENCE)
    assert taken.is_set()


def test_a_file_that_is_open_elsewhere_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As os.replace fails on Windows while another process reads the target."""
    refusals, replace = [1, 2, 3], os.replace

    def refusing(source: str, target: str) -> None:
        if refusals:
            refusals.pop()
            raise PermissionError(13, "it is open")
        replace(source, target)

    monkeypatch.setattr(os, "replace", refusing)
    (tmp_path / "new").write_text("new")
    SYSTEM.replace(tmp_path / "new", tmp_path / "old")
    assert (tmp_path / "old").read_text() == "new"
    refusals = [1] * 100_000
    monkeypatch.setattr(portable, "PATIENCE_SECONDS", 0.05)
    (tmp_path / "new").write_text("newer")
    with pytest.raises(PermissionError):
        SYSTEM.replace(tmp_path / "new", tmp_path / "old")


def test_a_folder_replaces_an_empty_folder_alone(tmp_path: Path) -> None:
    for name in ("source", "target"):
        (tmp_path / name).mkdir()
    (tmp_path / "source" / "file").touch()
    SYSTEM.replace(tmp_path / "source", tmp_path / "target")
    assert (tmp_path / "target" / "file").exists()
    (tmp_path / "source").mkdir()
    with pytest.raises(OSError, match="not empty"):
        SYSTEM.replace(tmp_path / "source", tmp_path / "target")


def test_a_file_gets_a_second_name_without_symbolic_links(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("weights")
    SYSTEM.link(tmp_path / "file", tmp_path / "linked")
    assert (tmp_path / "linked").samefile(tmp_path / "file")
    monkeypatch.delattr(os, "link")
    monkeypatch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(OSError(1, "no links")), raising=False)
    SYSTEM.link(tmp_path / "file", tmp_path / "copied")
    assert (tmp_path / "copied").read_text() == "weights"
    assert not (tmp_path / "copied").samefile(tmp_path / "file")


def test_only_ordinary_files_are_opened(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("video")
    (tmp_path / "link").symlink_to("file")
    os.mkfifo(tmp_path / "pipe")
    os.close(SYSTEM.open_ordinary(tmp_path / "file"))
    os.close(SYSTEM.open_ordinary(tmp_path / "pipe"))  # waits for no writer; the caller sees that it is no file
    with pytest.raises(OSError, match="symbolic"):
        SYSTEM.open_ordinary(tmp_path / "link")


def test_a_process_is_ended_with_all_that_it_started(tmp_path: Path) -> None:
    code = (
        "import subprocess, sys, time; child = subprocess.Popen(['sleep', '600'], start_new_session=True);"
        f"open({str(tmp_path / 'child')!r}, 'w').write(str(child.pid)); time.sleep(600)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], **SYSTEM.detached())
    until(lambda: (tmp_path / "child").exists() and (tmp_path / "child").read_text() != "")
    child = int((tmp_path / "child").read_text())
    assert not SYSTEM.request_end(process.pid)
    assert SYSTEM.start_time(child) is not None
    SYSTEM.end(process.pid)
    assert process.wait(PATIENCE) < 0
    until(lambda: SYSTEM.start_time(child) is None)
    SYSTEM.end(process.pid)  # gone: nothing is done


def test_a_process_is_known_by_its_start() -> None:
    mine = SYSTEM.start_time(os.getpid())
    assert mine is not None
    assert mine == SYSTEM.start_time(os.getpid()) != SYSTEM.start_time(1)  # a parent may start in the same moment
    assert SYSTEM.boot_id() == Portable().boot_id()


def test_a_process_ends_with_its_parent(tmp_path: Path) -> None:
    inner = (
        "import os, time; from workbench.operating_system.portable import Portable;"
        f"Portable().end_with_parent(os.getppid()); open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()));"
        "time.sleep(600)"
    )
    outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}])"
    parent = subprocess.Popen([sys.executable, "-c", outer], cwd=ROOT)
    until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text() != "")
    child = int((tmp_path / "pid").read_text())
    parent.kill()
    parent.wait()
    until(lambda: SYSTEM.start_time(child) is None)


def _hoard() -> None:
    kept = []
    while True:
        kept.append(b"x" * 10_000_000)
        time.sleep(0.01)


def _spin() -> None:
    while True:
        pass


@pytest.mark.parametrize(("target", "late"), [(_hoard, False), (_spin, True)])
def test_a_child_above_its_limits_is_ended(target: object, late: bool) -> None:
    child = multiprocessing.get_context("spawn").Process(target=target)  # type: ignore[arg-type]
    child.start()
    assert child.pid
    guard = SYSTEM.guard(child.pid, memory=300_000_000)
    with guard.task(2.0 if late else 600.0):
        child.join(PATIENCE)
    assert child.exitcode is not None
    assert child.exitcode < 0
    assert guard.ended_late(child.exitcode) is late


def test_a_child_that_makes_progress_is_left_alone() -> None:
    child = multiprocessing.get_context("spawn").Process(target=_spin)
    child.start()
    assert child.pid
    began, process = time.monotonic(), psutil.Process(child.pid)
    guard = SYSTEM.guard(child.pid, memory=10**12)
    with guard.task(0.5):
        while process.cpu_times().user < 1.0 and time.monotonic() - began < PATIENCE:
            guard.progress()
            time.sleep(0.01)
    assert child.is_alive()
    child.kill()
    child.join()


def test_what_windows_needs_is_passed_to_a_limited_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(portable, "ON_WINDOWS", True)
    monkeypatch.setattr(sys, "_base_executable", "C:/Python/python.exe", raising=False)
    program, variables = SYSTEM.python()
    assert program == "C:/Python/python.exe"
    assert variables == {"PYTHONUTF8": "1", "__PYVENV_LAUNCHER__": sys.executable}
    monkeypatch.setenv("SYSTEMROOT", "C:/Windows")
    monkeypatch.setenv(VARIABLE, "rules.json")
    assert {"SYSTEMROOT", VARIABLE} <= set(bare_environment())
    assert SYSTEM.death_signal(0xC0000005) == 11
    assert SYSTEM.death_signal(1) == 0
    assert SYSTEM.boot_id() == "windows"
