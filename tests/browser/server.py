"""`python webui.py` as a process that can be killed and started again, and a browser that needs no screen.

The address changes with each start, since the token in it does: ask for it when it is opened.
"""

from __future__ import annotations

import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Playwright

ROOT = Path(__file__).resolve().parent.parent.parent
ARGUMENTS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def launch(playwright: Playwright, path: str) -> Browser:
    """The browser at a path, which talks to nobody but the page."""
    return playwright.chromium.launch(executable_path=path, args=ARGUMENTS)


class Server:
    """`python webui.py`, which can be killed and started again on the same port."""

    def __init__(self, workspace: Path) -> None:
        self.workspace = workspace
        self.url = ""
        self._process: subprocess.Popen[str] | None = None

    def start(self) -> float:
        """Start it and return the seconds until it answered."""
        began = time.monotonic()
        port = ["--port", str(urlsplit(self.url).port)] if self.url else []
        with (self.workspace / "server.log").open("a") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(ROOT / "webui.py"), "--workspace", str(self.workspace), *port],
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self._process.stdout is not None
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
