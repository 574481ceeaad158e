"""The server starts without heavy packages, listens on this machine only, and exits if its port is taken."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

import webui
from tests import serving
from tests.patience import PATIENCE
from workbench.display import elements as display
from workbench.ui import elements

ROOT = Path(__file__).resolve().parent.parent.parent
HEAVY = ("torch", "diffusers", "transformers", "peft", "accelerate", "decord")
# Builds the page in a process that has imported nothing, and prints what was observed meanwhile.
BUILD = f"""
import ast, json, sys
from workbench.workspace import Workspace
from workbench.ui import app
workspace = Workspace.open(sys.argv[1])
app.build(workspace)
heavy = [name for name in {HEAVY} if name in sys.modules]

from workbench.operations.registry import operations
from workbench.ui.server import serving
app.launch_options(workspace)
parse, parsed = ast.parse, []
ast.parse = lambda *a, **k: parsed.append(a) or parse(*a, **k)
serving._sweep(workspace)
serving.prepare(workspace)
list(operations())

import gradio
queue = gradio.Blocks().queue()._queue
queue.events_recorded = 10_000
records = [{{"function": "f", "status": "success", "process_time": 1.0}}] * 10_000
print(json.dumps([heavy, len(parsed), queue.compute_analytics_summary(records)]))
"""


def server(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    """Start webui.py. With the environment of the tests it is forked from a warm process (tests/warm_host.py)."""
    return serving.subprocess.Popen(
        [sys.executable, str(ROOT / "webui.py"), *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **environment},
    )


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Build the page once; return the heavy modules loaded, the sources parsed, and Gradio's statistics."""
    command = [sys.executable, "-c", BUILD, str(tmp_path_factory.mktemp("built"))]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    found: list[Any] = json.loads(done.stdout)
    return found


def test_building_the_page_loads_nothing_heavy(built: list[Any]) -> None:
    assert built[0] == []


def test_threads_of_the_server_parse_no_source(built: list[Any]) -> None:
    """Two that parse at once end the process on Python 3.11: SystemError, AST constructor recursion depth mismatch."""
    assert built[1] == 0


def test_the_first_visitor_does_not_wait_for_the_best_compression(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elements, "_best", {})
    client = TestClient(Starlette(routes=elements.routes()))
    script = next(part for part in client.get("/").text.split('"') if part.endswith(".js")).removeprefix(".")
    answers = []
    for encoding in ("br", "gzip", "identity"):
        answers.append(client.get(script, headers={"accept-encoding": encoding}))
        assert answers[-1].headers.get("content-encoding", "identity") == encoding
    elements.prepare()
    answers.append(client.get(script, headers={"accept-encoding": "br"}))
    assert {answer.text for answer in answers} == {display.page_script()}
    quick, best = (int(answers[which].headers["content-length"]) for which in (0, -1))
    assert best < quick < 1.2 * best


def test_gradio_computes_no_statistics_that_nobody_reads(built: list[Any]) -> None:
    assert built[2] == {"functions": {}}


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


def test_other_machines_need_a_password(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.delenv("WORKBENCH_PASSWORD", raising=False)
    with pytest.raises(SystemExit) as refused:
        webui.options(["--listen"])
    assert refused.value.code == 2
    assert "WORKBENCH_PASSWORD" in capsys.readouterr().err


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
