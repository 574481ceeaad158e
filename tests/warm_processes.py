"""Jobs and pages of the tests, begun by a process that has imported what is large (tests.warm_host says why)."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import IO, Any

from tests import serving, visiting
from tests.browser import server
from tests.warm_host import MOST_BYTES, ROOM, STATUS
from workbench.families import architectures
from workbench.jobs import control, limited, processes
from workbench.paths import CODE

CHILDREN = ("workbench.dataset_builder.ingest.worker", "workbench.dataset_builder.checks.measures")
PAGE = str(CODE / "webui.py")
WITH_TORCH = importlib.util.find_spec("torch") is not None  # not in every environment of `make versions`
# By what kind of process: variables that may be others than the host's. All else may have been looked at by a package
# when it was imported.
FREE = {
    "job": re.compile(r"WORKBENCH_.*|TORCHINDUCTOR_CACHE_DIR"),
    "page": re.compile(r"PYTEST_.*|TORCHINDUCTOR_.*"),
    "child": re.compile(r"WORKBENCH_.*"),
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


class WarmHost:
    """Starts processes of one kind. Its own process begins with the first of them."""

    def __init__(self, kind: str, environment: Mapping[str, str]) -> None:
        self._kind, self._environment = kind, dict(environment)
        self._lock = threading.Lock()
        self._asking: socket.socket | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int | None:
        """The id of its process; None before the first one that was asked for."""
        return None if self._process is None else self._process.pid

    def fits(self, environment: Mapping[str, str], few: bool = False) -> bool:
        """Whether it imports as a process with that environment does, or with a few of its variables."""
        ours, theirs = (
            {name: value for name, value in one.items() if not FREE[self._kind].fullmatch(name)}
            for one in (self._environment, environment)
        )
        return theirs.items() <= ours.items() if few else theirs == ours

    def started(self, wanted: Mapping[str, Any], given: list[int], *ours: IO[Any] | None) -> WarmProcess:
        """given: descriptors of stdin, stdout, stderr;  ours: the other ends of those that are pipes"""
        with self._lock:
            asking = self._asking or self.begin()
            status, told = os.pipe()
            socket.send_fds(asking, [json.dumps(wanted).encode()], [*given, told])
            os.close(told)
            return WarmProcess(int(asking.recv(MOST_BYTES)), status, *ours)

    def begin(self) -> socket.socket:
        self._asking, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            self._start(other)
        assert self._asking.recv(MOST_BYTES) == b"ready"
        return self._asking

    def _start(self, other: socket.socket) -> None:
        command = [sys.executable, "-m", "tests.warm_host", self._kind, str(other.fileno()), "-" * ROOM]
        if self._kind != "page":
            command.insert(1, "-P")
        self._process = subprocess.Popen(
            command, cwd=CODE, env=self._environment, stdin=subprocess.DEVNULL, pass_fds=[other.fileno()]
        )

    def close(self) -> None:
        if self._asking is not None and self._process is not None:
            self._asking.close()
            self._process.wait()


class WarmHosts:
    """Takes the place of `subprocess` where jobs, children with limits and pages are started.

    `on`: whether it starts any itself.
    """

    def __init__(self, jobs: WarmHost | None = None) -> None:
        """jobs: the host of jobs, if it is a special one"""
        self.on = True
        self.jobs = jobs or WarmHost("job", processes.environment())
        self.pages = WarmHost("page", os.environ)
        self.children: WarmHost | None = None
        names = {name: getattr(subprocess, name) for name in ("DEVNULL", "PIPE", "STDOUT", "SubprocessError")}
        self.module = SimpleNamespace(Popen=self.popen, run=self.run, **names)

    def run(self, command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        """As subprocess.run of a child that only computes, with a bare environment."""
        host = self._host(command, options["env"])
        if host is None or not host.fits(options["env"], few=True):
            return subprocess.run(command, **options)
        with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
            process = self._started(host, command, {"env": options["env"], "stdout": out, "stderr": err})
            try:
                code = process.wait(options["timeout"])
            finally:
                process.kill()
            out.seek(0)
            err.seek(0)
            done = subprocess.CompletedProcess(command, code, out.read(), err.read())
        if options["check"]:
            done.check_returncode()
        return done

    def popen(self, command: list[str], **options: Any) -> Any:
        """As subprocess.Popen."""
        environment = options.get("env")
        environment = os.environ if environment is None else environment
        host = self._host(command, environment)
        if host is None or not host.fits(environment):
            return subprocess.Popen(command, **options)
        return self._started(host, command, {**options, "env": environment})

    def _started(self, host: WarmHost, command: list[str], options: Mapping[str, Any]) -> WarmProcess:
        wanted = {
            "command": command,
            "environment": dict(options["env"]),
            "folder": str(options.get("cwd") or os.getcwd()),
            "session": options.get("start_new_session", False),
        }
        with ExitStack() as theirs:
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
            given = [nothing if stdin in (None, subprocess.DEVNULL) else stdin, out, err]
            return host.started(wanted, [one if isinstance(one, int) else one.fileno() for one in given], write, read)

    def _host(self, command: list[str], environment: Mapping[str, str]) -> WarmHost | None:
        if not self.on:
            return None
        if "-m" in command:
            module = command[command.index("-m") + 1]
            if module in CHILDREN:
                self.children = self.children or WarmHost("child", environment)
                return self.children
            if module.startswith("workbench."):
                return self.jobs if WITH_TORCH else None
            return self.pages if module.startswith("tests.") and module.endswith("_page") else None
        return self.pages if PAGE in command[1:2] else None

    def close(self) -> None:
        for host in (self.jobs, self.pages, self.children):
            if host is not None:
                host.close()
        self.children = None


@contextmanager
def warm_hosts() -> Iterator[WarmHosts]:
    """From now on jobs and pages are begun so."""
    hosts, places = WarmHosts(), (architectures, control, limited, serving, visiting, server)
    for place in places:
        place.subprocess = hosts.module  # type: ignore[attr-defined]
    yield hosts
    for place in places:
        place.subprocess = subprocess  # type: ignore[attr-defined]
    hosts.close()
