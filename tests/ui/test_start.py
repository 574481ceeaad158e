"""The server starts without the heavy packages, only for this machine, and leaves when it cannot have its port."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import httpx
import pytest

import webui
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


def test_threads_of_the_server_parse_no_source(tmp_path: Path) -> None:
    """Two that parse at once end the process on Python 3.11: SystemError, AST constructor recursion depth mismatch."""
    script = (
        "import ast; from workbench.workspace import Workspace; from workbench.ui import app; "
        "from workbench.ui.server import serving; from workbench.operations.registry import operations; "
        f"workspace = Workspace.open({str(tmp_path)!r}); app.build(workspace); app.launch_options(workspace); "
        "parse, parsed = ast.parse, []; ast.parse = lambda *a, **k: parsed.append(a) or parse(*a, **k); "
        "serving._sweep(workspace); serving.prepare(workspace); list(operations()); print(len(parsed))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "0"


def test_the_server_comes_up_and_says_where(tmp_path: Path) -> None:
    began = time.monotonic()
    process = server("--workspace", str(tmp_path), GRADIO_SHARE="true", GRADIO_SERVER_NAME="0.0.0.0")
    try:
        assert process.stdout is not None
        said: list[str] = []
        line = next((line for line in process.stdout if said.append(line) or "http" in line), "")
        assert line, f"the server ended: {''.join(said)}"
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


def test_the_password_may_stand_in_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    secret = tmp_path / "password"
    secret.write_text("correct horse\n", encoding="utf-8")
    monkeypatch.setenv("WORKBENCH_PASSWORD_FILE", str(secret))
    assert webui.options(["--listen"]).password == "correct horse"
    monkeypatch.setenv("WORKBENCH_PASSWORD", "the other")
    assert webui.options(["--listen"]).password == "the other"


@pytest.mark.parametrize(("text", "said"), [("\n", "which is empty"), (None, "cannot be read")])
def test_a_file_without_a_password_opens_nothing(
    text: str | None, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    secret = tmp_path / "password"
    if text is not None:
        secret.write_text(text, encoding="utf-8")
    monkeypatch.setenv("WORKBENCH_PASSWORD_FILE", str(secret))
    with pytest.raises(SystemExit):
        webui.options([])
    assert said in capsys.readouterr().err


def test_gradio_sums_up_no_statistics_that_nobody_reads() -> None:
    script = (  # in a process of its own: it leaves event loops open
        "import workbench.ui, gradio; queue = gradio.Blocks().queue()._queue; queue.events_recorded = 10_000; "
        "records = [{'function': 'f', 'status': 'success', 'process_time': 1.0}] * 10_000; "
        "print(queue.compute_analytics_summary(records))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=True)
    assert done.stdout.strip() == "{'functions': {}}"
