"""Pages served by a process of their own, since Gradio leaves event loops and sockets open."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

import httpx

from tests.patience import PATIENCE

ROOT = Path(__file__).resolve().parent.parent
CHECKOUT = (sys.executable, str(ROOT / "webui.py"))


def serve(module: str, folder: Path) -> tuple[subprocess.Popen[str], str]:
    """Start `python -m MODULE FOLDER`, which prints its address; the process, and the address."""
    with (folder / "server.log").open("a") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", module, str(folder)], stdout=subprocess.PIPE, stderr=log, text=True, cwd=ROOT
        )
    address = server.stdout.readline().strip()
    assert address, (folder / "server.log").read_text()
    return server, address


class Page:
    """`python webui.py` over a workspace. `opened` is the address as it was printed, `url` the same without a token.

    program: what else serves the page, such as an installed `workbench webui`
    """

    def __init__(
        self,
        workspace: Path,
        *arguments: str,
        cwd: Path = ROOT,
        program: Sequence[str] = CHECKOUT,
        **environment: str,
    ) -> None:
        workspace.mkdir(parents=True, exist_ok=True)
        self.workspace, self.log = workspace, workspace / "server.log"
        command = [*program, "--workspace", str(workspace), *arguments]
        with self.log.open("a") as log:
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=cwd, env={**os.environ, **environment}
            )
        line = self.process.stdout.readline()
        assert "http" in line, self.log.read_text()
        self.opened = line.split(": ", 1)[1].split()[0]
        self.port = urlsplit(self.opened).port or 0
        self.url = f"http://127.0.0.1:{self.port}"

    def client(self) -> httpx.Client:
        """Somebody who has opened the printed address."""
        answer = httpx.get(self.opened, timeout=PATIENCE)
        assert answer.status_code == 303, answer.text
        cookie = answer.headers["set-cookie"].split(";")[0]  # whatever the path it is for
        return httpx.Client(base_url=self.url, timeout=PATIENCE, headers={"cookie": cookie})

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()
