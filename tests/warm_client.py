"""Asking a warm host (tests.warm_host) for a process: as subprocess.Popen does, and with nothing but Python's library.

It is imported by the tests and, before they are forked, by the processes that a host starts: what those start in turn
is then begun in the same way (`Popen`).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import select
import signal
import socket
import struct
import subprocess
import threading
from collections.abc import Mapping
from contextlib import ExitStack
from typing import IO, Any

MOST_BYTES = 100_000  # of a message
STATUS = struct.Struct("i")
HOSTS = "TESTS_WARM_HOSTS"  # the variable that names the hosts to a notebook's kernel
CHILDREN = ("workbench.dataset_builder.ingest.worker", "workbench.dataset_builder.checks.measures")
# By what kind of process: variables that may be others than the host's. All else may have been looked at by a package
# when it was imported.
FREE = {
    "job": re.compile(
        r"WORKBENCH_(?!PLATFORM$).*|TORCHINDUCTOR_CACHE_DIR|PYTHONSTARTUP|TMPDIR|HF_HUB_DISABLE_TELEMETRY"
        r"|GOMP_SPINCOUNT"  # of several threads, and tests compute with one
    ),
    "page": re.compile(r"PYTEST_.*|TORCHINDUCTOR_.*|COLUMNS|LINES"),  # the last two are set by readline
    "child": re.compile(r"TMPDIR"),
}


class WarmProcess:
    """What is used of subprocess.Popen by those who start jobs, children with limits and pages."""

    def __init__(self, pid: int, status: int, stdin: IO[bytes] | None, stdout: IO[Any] | None) -> None:
        self.pid, self.stdin, self.stdout = pid, stdin, stdout
        self.returncode: int | None = None
        self._status = status
        self._lock = threading.Lock()

    def poll(self) -> int | None:
        return self._code(0)

    def wait(self, timeout: float | None = None) -> int:
        code = self._code(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
        return code

    def communicate(self, timeout: float | None = None) -> tuple[str, None]:
        with self.stdout or open(os.devnull) as out:
            said: str = out.read()
        self.wait(timeout)
        return said, None

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def _code(self, timeout: float | None) -> int | None:
        with self._lock:
            if self.returncode is None and select.select([self._status], [], [], timeout)[0]:
                told = os.read(self._status, STATUS.size)
                os.close(self._status)
                # Without an answer the host is gone, at the end of all tests.
                self.returncode = os.waitstatus_to_exitcode(STATUS.unpack(told)[0]) if told else 0
            return self.returncode


def fits(kind: str, host: Mapping[str, str], environment: Mapping[str, str], few: bool = False) -> bool:
    """Whether the host imports as a process with that environment does, or with a few of its variables."""
    ours, theirs = (
        {name: value for name, value in one.items() if not FREE[kind].fullmatch(name)} for one in (host, environment)
    )
    return theirs.items() <= ours.items() if few else theirs == ours


def connected(name: str) -> tuple[socket.socket, dict[str, str]]:
    """A host, ready to be asked for one process, and the environment in which it has imported."""
    asking = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        asking.connect(f"\0{name}")
        return asking, json.loads(asking.recv(MOST_BYTES))
    except BaseException:
        asking.close()
        raise


def started(
    asking: socket.socket, hosts: Mapping[str, str], command: list[str], options: Mapping[str, Any]
) -> WarmProcess:
    """Ask for the process that subprocess.Popen(command, **options) would be; `env` is among the options.

    hosts: the names of those that it asks itself, by kind
    """
    wanted = {
        "command": command,
        "environment": dict(options["env"]),
        "folder": str(options.get("cwd") or os.getcwd()),
        "session": options.get("start_new_session", False),
        "hosts": dict(hosts),
    }
    with asking, ExitStack() as theirs:
        nothing = theirs.enter_context(open(os.devnull, "r+b")).fileno()
        stdin, write = options.get("stdin"), None
        if stdin == subprocess.PIPE:
            stdin, end = os.pipe()
            write = os.fdopen(end, "wb")
            theirs.callback(os.close, stdin)
        stdout, read = options.get("stdout"), None
        if stdout == subprocess.PIPE:
            end, stdout = os.pipe()
            read = os.fdopen(end, encoding="utf-8") if options.get("text") else os.fdopen(end, "rb")
            theirs.callback(os.close, stdout)
        out = stdout if isinstance(stdout, int) else stdout.fileno()
        stderr = options.get("stderr", 2)
        err = {subprocess.STDOUT: out, subprocess.DEVNULL: nothing}.get(stderr, stderr)
        status, told = os.pipe()
        theirs.callback(os.close, told)
        given = [nothing if stdin in (None, subprocess.DEVNULL) else stdin, out, err, told]
        numbers = [one if isinstance(one, int) else one.fileno() for one in given]
        socket.send_fds(asking, [json.dumps(wanted).encode()], numbers)
        return WarmProcess(int(asking.recv(MOST_BYTES)), status, write, read)


class Popen(subprocess.Popen):  # type: ignore[type-arg]
    """subprocess.Popen of a process that was itself begun by a host: it asks for jobs and children with limits.

    A job needs a session of its own for that: others have to stay in that of the process that starts them.
    """

    hosts: Mapping[str, str] = {}

    def __new__(cls, *arguments: Any, **options: Any) -> Any:
        kind = _kind(arguments[0], options) if cls is Popen and arguments and "env" in options else ""
        if kind in cls.hosts and options.get("stderr") != subprocess.PIPE:  # a host hands on its own, or a file
            with contextlib.suppress(ConnectionError):  # none was begun, or all tests are over
                asking, environment = connected(cls.hosts[kind])
                if fits(kind, environment, options["env"]):
                    return started(asking, cls.hosts, arguments[0], options)
                asking.close()
        return super().__new__(cls)


def _kind(command: list[str], options: Mapping[str, Any]) -> str:
    module = command[3] if command[1:3] == ["-P", "-m"] else ""
    if module in CHILDREN:
        return "child"
    own = module.startswith("workbench.") and not module.startswith("workbench.ui.")
    return "job" if own and options.get("start_new_session") else ""


def patch(hosts: Mapping[str, str]) -> None:
    """From now on what this process starts is asked of the hosts of these names, by kind."""
    Popen.hosts = hosts
    subprocess.Popen = Popen  # type: ignore[misc]


def patch_kernel() -> None:
    """The same for a notebook's kernel: the hosts are named in its environment."""
    patch(json.loads(os.environ.pop(HOSTS)))
