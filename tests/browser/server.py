"""`python webui.py` as a process that can be killed and started again, and a browser that needs no screen.

The address changes with each start, since the token in it does: ask for it when it is opened.
"""

from __future__ import annotations

import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Playwright

ROOT = Path(__file__).resolve().parent.parent.parent
ARGUMENTS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip


def launch(playwright: Playwright, path: str) -> Browser:
    """The browser at a path, which talks to nobody but the page."""
    return playwright.chromium.launch(executable_path=path, args=ARGUMENTS)


def own_port() -> int:
    """A free port that nothing else takes while a killed server is away.

    It lies outside the range in which `webui.py` looks for one by itself, and outside the one from which the
    system gives ports to connections.
    """
    while True:
        port = 20_000 + secrets.randbelow(10_000)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port


def frames(page: Page, count: int) -> None:
    """Wait until the page was painted so many times: what the browser itself does about a change is done then."""
    frame = "await new Promise((go) => requestAnimationFrame(() => setTimeout(go)));"
    page.evaluate(f"async () => {{ for (let at = 0; at < {count}; at++) {frame} }}")


class Server:
    """`python webui.py`, which can be killed and started again on the same port."""

    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace
        self.url = ""
        self._port = own_port()
        self._process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        """The id of its process, once it was started."""
        return self._process.pid

    def start(self) -> float:
        """Start it and return the seconds until it answered."""
        began = time.monotonic()
        with (self.workspace / "server.log").open("a") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(ROOT / "webui.py"), "--workspace", str(self.workspace), "--port", str(self._port)],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        line = self._process.stdout.readline()
        assert "http" in line, (self.workspace / "server.log").read_text()
        self.url = line.split(": ", 1)[1].split()[0]
        urllib.request.urlopen(self.url).close()
        return time.monotonic() - began

    def kill(self) -> None:
        """As a crash would: at once, and without a word to anyone."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.communicate()
            self._process = None
