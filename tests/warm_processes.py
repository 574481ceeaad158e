"""Jobs and pages of the tests, begun by a process that has imported what is large (tests.warm_host says why)."""

from __future__ import annotations

import importlib.util
import os
import secrets
import select
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

from tests import serving, visiting, warm_client
from tests.browser import server
from tests.warm_host import ROOM
from workbench.families import facts
from workbench.jobs import control, limited, processes
from workbench.paths import ASSETS, CODE

PAGE = str(CODE / "webui.py")
WITH_TORCH = importlib.util.find_spec("torch") is not None  # not in every environment of `make versions`


class WarmHost:
    """Starts processes of one kind. Its own process begins with the first of them."""

    def __init__(self, kind: str, environment: Mapping[str, str], name: str = "") -> None:
        """name: of a host that another process has"""
        self.kind, self.environment = kind, dict(environment)
        self._process: subprocess.Popen[bytes] | None = None
        self._life: socket.socket | None = None
        self.name = name or self._listen()

    def fits(self, environment: Mapping[str, str], few: bool = False) -> bool:
        """Whether it imports as a process with that environment does, or with a few of its variables."""
        return warm_client.fits(self.kind, self.environment, environment, few)

    def _listen(self) -> str:
        """Wait in a thread for whoever asks first, who waits until the host has imported. Returns its name."""
        name = f"tests-{self.kind}-{os.getpid()}-{secrets.token_hex(4)}"
        asked = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        asked.bind(f"\0{name}")
        asked.listen()
        self._life, life = socket.socketpair()
        self._waits = threading.Thread(target=self._begin, args=(asked, life), daemon=True)
        self._waits.start()
        return name

    def _begin(self, asked: socket.socket, life: socket.socket) -> None:
        with asked, life:
            if life in select.select([asked, life], [], [])[0]:
                return
            numbers = [asked.fileno(), life.fileno()]
            command = [sys.executable, "-m", "tests.warm_host", self.kind, *map(str, numbers), "-" * ROOM]
            if self.kind != "page":
                command.insert(1, "-P")
            self._process = subprocess.Popen(
                command, cwd=CODE, env=self.environment, stdin=subprocess.DEVNULL, pass_fds=numbers
            )

    def close(self) -> None:
        if self._life is not None:
            self._life.close()
            self._waits.join()
            self._life = None
        if self._process is not None:
            self._process.wait()


class WarmHosts:
    """Takes the place of `subprocess` where jobs, children with limits and pages are started.

    `on`: whether it starts any itself.
    """

    def __init__(self, told: Mapping[str, tuple[str, Mapping[str, str]]] | None = None) -> None:
        """told: what `names` says in the process that has the hosts; None makes them"""
        self.on = True
        environments = {"job": processes.environment(), "page": os.environ, "child": limited.environment()}
        told = told or {kind: ("", environment) for kind, environment in environments.items()}
        hosts = {kind: WarmHost(kind, environment, name) for kind, (name, environment) in told.items()}
        self.jobs, self.pages, self.children = hosts["job"], hosts["page"], hosts["child"]
        names = {name: getattr(subprocess, name) for name in ("DEVNULL", "PIPE", "STDOUT", "SubprocessError")}
        self.module = SimpleNamespace(Popen=self.popen, run=self.run, **names)

    def run(self, command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        """As subprocess.run of what only computes, with a bare environment: a child, or a script of assets."""
        host = self._host(command)
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
        host = self._host(command)
        if host is None or not host.fits(environment):
            return subprocess.Popen(command, **options)
        return self._started(host, command, {**options, "env": environment})

    def _started(self, host: WarmHost, command: list[str], options: Mapping[str, Any]) -> warm_client.WarmProcess:
        # What is started may ask for others in turn.
        names = {one.kind: one.name for one in (self.jobs, self.children) if WITH_TORCH or one is not self.jobs}
        return warm_client.started(warm_client.connected(host.name)[0], names, command, options)

    def _host(self, command: list[str]) -> WarmHost | None:
        if not self.on:
            return None
        if "-m" in command:
            module = command[command.index("-m") + 1]
            if module in warm_client.CHILDREN:
                return self.children
            if module.startswith("workbench."):
                return self.jobs if WITH_TORCH else None
            return self.pages if module.startswith("tests.") and module.endswith("_page") else None
        if command[1].startswith(str(ASSETS)):
            return self.jobs
        return self.pages if PAGE in command[1:2] else None

    def names(self) -> dict[str, tuple[str, dict[str, str]]]:
        """Name and environment of each host, by kind: for other processes that start tests."""
        return {host.kind: (host.name, host.environment) for host in (self.jobs, self.pages, self.children)}

    def close(self) -> None:
        for host in (self.jobs, self.pages, self.children):
            host.close()


@contextmanager
def warm_hosts(hosts: WarmHosts) -> Iterator[WarmHosts]:
    """From now on jobs and pages are begun so."""
    places = (facts, control, limited, serving, visiting, server)
    for place in places:
        place.subprocess = hosts.module  # type: ignore[attr-defined]
    yield hosts
    for place in places:
        place.subprocess = subprocess  # type: ignore[attr-defined]
    hosts.close()
