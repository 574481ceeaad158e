"""A small page of the tests, served by a process of its own, since Gradio leaves event loops and sockets open."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def serve(module: str, folder: Path) -> tuple[subprocess.Popen[str], str]:
    """Start `python -m MODULE FOLDER`, which prints its address; the process, and the address."""
    with (folder / "server.log").open("a") as log:
        server = subprocess.Popen(
            [sys.executable, "-m", module, str(folder)], stdout=subprocess.PIPE, stderr=log, text=True, cwd=ROOT
        )
    assert server.stdout is not None
    address = server.stdout.readline().strip()
    assert address, (folder / "server.log").read_text()
    return server, address
