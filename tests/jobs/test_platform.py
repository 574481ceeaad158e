"""What Windows does differently with processes, done on Linux as it is done there; `make portable` runs more so."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.patience import PATIENCE, until
from workbench.errors import ConfigError
from workbench.jobs import platform
from workbench.jobs.locks import locked
from workbench.jobs.processes import bare_environment
from workbench.ui.server import serving
from workbench.workspace.disk import VARIABLE

ROOT = Path(__file__).resolve().parents[2]


def test_it_is_chosen_by_a_variable() -> None:
    code = "from workbench.workspace import disk; print(disk.PORTABLE)"
    for value, name in (("portable", "True"), ("", "False")):
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


def test_a_process_is_ended_with_all_that_it_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "PORTABLE", True)
    code = (
        "import subprocess, sys, time; child = subprocess.Popen(['sleep', '600'], start_new_session=True);"
        f"open({str(tmp_path / 'child')!r}, 'w').write(str(child.pid)); time.sleep(600)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], **platform.detached())
    until(lambda: (tmp_path / "child").exists() and (tmp_path / "child").read_text() != "")
    child = int((tmp_path / "child").read_text())
    assert not platform.request_end(process.pid)
    assert platform.start_time(child) is not None
    platform.end(process.pid)
    assert process.wait(PATIENCE) < 0
    until(lambda: platform.start_time(child) is None)
    platform.end(process.pid)  # gone: nothing is done


def test_a_process_ends_with_its_parent(tmp_path: Path) -> None:
    inner = (
        "import os, time; from workbench.jobs import platform; platform.PORTABLE = True;"
        f"platform.end_with_parent(os.getppid()); open({str(tmp_path / 'pid')!r}, 'w').write(str(os.getpid()));"
        "time.sleep(600)"
    )
    outer = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {inner!r}])"
    parent = subprocess.Popen([sys.executable, "-c", outer], cwd=ROOT)
    until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text() != "")
    child = int((tmp_path / "pid").read_text())
    parent.kill()
    parent.wait()
    until(lambda: platform.start_time(child) is None)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="elsewhere no thread outlives the main one")
def test_a_process_lives_until_its_last_thread_ends(tmp_path: Path) -> None:
    code = (
        "import ctypes, os, sys, threading; from pathlib import Path; from workbench.jobs.locks import locked;"
        "threading.Thread(target=lambda: (sys.stdin.read(), os._exit(0))).start();"
        f"held = locked(Path({str(tmp_path / 'lock')!r})); held.__enter__();"
        "print('locked', flush=True); ctypes.CDLL(None).pthread_exit(None)"
    )
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, text=True, **pipes) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "locked\n"
        until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE)
        assert platform.start_time(process.pid) is not None
        with pytest.raises(ConfigError, match="busy"), locked(tmp_path / "lock", "busy"):
            pass
        process.stdin.close()  # type: ignore[union-attr]  # its other thread ends it
        until(lambda: platform.start_time(process.pid) is None)
        with locked(tmp_path / "lock", "busy"):
            assert psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE  # none has collected its exit code


def test_what_windows_needs_is_passed_to_a_limited_child(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "ON_WINDOWS", True)
    monkeypatch.setattr(sys, "_base_executable", "C:/Python/python.exe", raising=False)
    program, variables = platform.python()
    assert program == "C:/Python/python.exe"
    assert variables == {"PYTHONUTF8": "1", "__PYVENV_LAUNCHER__": sys.executable}
    monkeypatch.setenv("SYSTEMROOT", "C:/Windows")
    monkeypatch.setenv(VARIABLE, "rules.json")
    assert {"SYSTEMROOT", VARIABLE} <= set(bare_environment())
    assert platform.death_signal(0xC0000005) == 11
    assert platform.death_signal(1) == 0
    assert platform.boot_id.__wrapped__() == "windows"


ARENAS = """
import ctypes, sys, threading
from workbench.jobs import platform
if sys.argv[1] == "shared":
    platform.share_freed_memory()
many = threading.Barrier(6)
def allocate():
    many.wait()
    kept = [bytes(100_000 + number) for number in range(20)]
    many.wait()
threads = [threading.Thread(target=allocate) for _ in range(6)]
for thread in threads: thread.start()
for thread in threads: thread.join()
libc = ctypes.CDLL(None)
libc.fopen.restype = ctypes.c_void_p
file = ctypes.c_void_p(libc.fopen(sys.argv[2].encode(), b"w"))
libc.malloc_info(0, file)
libc.fclose(file)
"""


@pytest.mark.skipif(
    not sys.platform.startswith("linux") or not hasattr(ctypes.CDLL(None), "malloc_info"), reason="glibc alone does it"
)
def test_threads_share_the_memory_that_they_free(tmp_path: Path) -> None:
    found = []
    for how in ("shared", "own"):
        file = tmp_path / how
        subprocess.run([sys.executable, "-c", ARENAS, how, str(file)], cwd=ROOT, check=True, timeout=PATIENCE)
        found.append(file.read_text().count("<heap nr="))
    shared, own = found
    assert shared <= 2 < own
