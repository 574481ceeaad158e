"""The server starts without the heavy packages, only for this machine, and leaves when it cannot have its port."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx

from tests.patience import PATIENCE

ROOT = Path(__file__).resolve().parent.parent.parent
HEAVY = ("torch", "diffusers", "transformers", "peft", "accelerate", "decord")


def server(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, str(ROOT / "webui.py"), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **environment},
    )


def test_building_the_page_loads_nothing_heavy(tmp_path: Path) -> None:
    script = (
        "import sys; from workbench.workspace import Workspace; from workbench.ui.app import build; "
        f"build(Workspace.open({str(tmp_path)!r})); print(*[m for m in {HEAVY} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == ""


def test_the_server_comes_up_and_says_where(tmp_path: Path) -> None:
    began = time.monotonic()
    process = server("--workspace", str(tmp_path), GRADIO_SHARE="true", GRADIO_SERVER_NAME="0.0.0.0")
    try:
        assert process.stdout is not None
        line = next(line for line in process.stdout if "http" in line)
        print(f"ready after {time.monotonic() - began:.1f} s")
        url = line.split(": ", 1)[1].split()[0]
        assert url.startswith("http://127.0.0.1:")
        with httpx.Client(follow_redirects=True, timeout=PATIENCE) as client:
            assert "Video LoRA Workbench" in client.get(url).text
            for outside in ("/etc/passwd", str(ROOT / "webui.py")):
                assert client.get(url.split("?")[0] + f"gradio_api/file={outside}").status_code == 403
    finally:
        process.kill()
        process.communicate()


def test_a_taken_port_is_named(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        process = server("--workspace", str(tmp_path), "--port", str(port))
        said = process.communicate(timeout=PATIENCE)[0]
    assert process.returncode == 1
    assert f"port {port} is taken" in said


def test_other_machines_need_a_password(tmp_path: Path) -> None:
    process = server("--workspace", str(tmp_path), "--listen")
    said = process.communicate(timeout=PATIENCE)[0]
    assert process.returncode == 2
    assert "WORKBENCH_PASSWORD" in said
