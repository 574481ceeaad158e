"""A message when a run ends, whatever ended it, and none unless it was requested."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.patience import until
from tests.written_run import ended, write_run
from workbench import jobs
from workbench.jobs import processes
from workbench.runs import webhook
from workbench.workspace import Workspace, write_json

# A run's process: it starts the watcher and waits to be ended.
RUN = """
import sys
from pathlib import Path
from workbench.runs import webhook
webhook.watch(Path(sys.argv[1]))
print("watched", flush=True)
sys.stdin.read()
"""


class Receiver(ThreadingHTTPServer):
    """Keeps what is posted to it; answers with the statuses of `answers`, then with 200."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.got: list[Any] = []
        self.answers: list[int] = []
        self.address = f"http://127.0.0.1:{self.server_port}/hook?key=swordfish"
        threading.Thread(target=self.serve_forever, daemon=True).start()


class _Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_GET(self) -> None:
        self.server.got.append("GET")
        self.send_response(200)
        self.end_headers()

    def do_POST(self) -> None:
        self.server.got.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
        self.send_response(self.server.answers.pop(0) if self.server.answers else 200)
        self.send_header("location", "/elsewhere")
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    made = Receiver()
    yield made
    made.shutdown()
    made.server_close()


def begin(folder: Path) -> subprocess.Popen[str]:
    """The run's process, as jobs know it."""
    process = subprocess.Popen(
        [sys.executable, "-c", RUN, str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    (folder / jobs.RESULT).unlink(missing_ok=True)
    write_json(folder / jobs.PROCESS, {**processes.identity(process.pid), "started_at": 1.0})
    assert process.stdout.readline() == "watched\n"
    return process


def test_a_run_that_fails_or_is_killed_sends_one_message(
    workspace: Workspace, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(webhook.VARIABLE, receiver.address)
    run = write_run(workspace, "cats", 20)
    process = begin(run.folder)
    ended(run.folder, "failed", 65, f"{run.folder}/clips/a.mp4 cannot be read: import it again")
    process.communicate("")
    until(lambda: receiver.got)
    (message,) = receiver.got
    assert (message["run"], message["state"], message["steps"]) == ("cats", "failed", 20)
    assert message["message"] == "a.mp4 cannot be read: import it again"
    assert str(workspace.root) not in json.dumps(message)
    receiver.got.clear()
    process = begin(run.folder)
    process.kill()
    process.communicate()
    until(lambda: receiver.got)
    assert [one["state"] for one in receiver.got] == ["died"]


def test_a_server_that_fails_is_tried_again_and_one_that_refuses_is_not(
    receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhook, "WAITS", (0.0, 0.0, 0.0))
    receiver.answers = [500, 503]
    assert webhook.send(receiver.address, {}) == ""
    assert len(receiver.got) == 3
    receiver.answers = [404]
    assert webhook.send(receiver.address, {}) == "it answered 404"
    assert len(receiver.got) == 4
    assert webhook.send("http://127.0.0.1:9/swordfish", {}) == "ConnectError"


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_a_redirect_is_a_failure_and_is_not_followed(receiver: Receiver, status: int) -> None:
    receiver.answers = [status]
    assert f"it answered {status}, a redirect" in webhook.send(receiver.address, {"run": "cats"})
    assert receiver.got == [{"run": "cats"}]


@pytest.mark.parametrize("shape", ["{} x", "{}\n/x", "{}\tx", "{}\x1b[2J", "{}\u202e", "http://me:swordfish@h/x"])
def test_an_address_that_cannot_be_used_is_never_repeated(
    receiver: Receiver, tmp_path: Path, shape: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    address = shape.format(receiver.address)
    monkeypatch.setenv(webhook.VARIABLE, address)
    monkeypatch.setattr(sys, "argv", ["webhook", str(tmp_path), json.dumps(processes.identity(2**22))])
    assert webhook.main() == 0
    printed = "".join(capfd.readouterr())
    assert "no message was sent" in printed
    assert "swordfish" not in printed


def test_the_address_leaves_the_runs_own_environment(
    receiver: Receiver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[dict[str, str]] = []
    monkeypatch.setattr(subprocess, "Popen", lambda *_, env, **__: given.append(env))
    monkeypatch.setenv(webhook.VARIABLE, receiver.address)
    webhook.watch(tmp_path)
    assert given[0][webhook.VARIABLE] == receiver.address
    assert webhook.VARIABLE not in os.environ


@pytest.mark.parametrize(
    ("said", "sent"),
    [
        ("{w}/clips/a.mp4 cannot be read: import it again", "a.mp4 cannot be read: import it again"),
        ("'/home/Jane Doe/My old films/a b.mp4' is missing", "'a b.mp4' is missing"),
        ("model:/srv/jane/wan is missing", "model:wan is missing"),
        ("see file:///home/jane/x.txt", "see x.txt"),
        ("C:\\Users\\Jane Doe\\x.mp4, \\\\nas\\jane\\y.mp4", "x.mp4, y.mp4"),
        ("~jane/x and ../../jane/y and ~/z", "x and y and z"),
        ("path=/home/jane/x", "path=x"),
        ("{w} is full", "workspace is full"),
        (
            "loss 1/2 and/or 3 of runs/cats: https://example.org/a/b",
            "loss 1/2 and/or 3 of runs/cats: https://example.org/a/b",
        ),
    ],
)
def test_no_folder_of_this_machine_is_sent(workspace: Workspace, said: str, sent: str) -> None:
    run = write_run(workspace, "cats", 20)
    ended(run.folder, "failed", 65, said.format(w=workspace.root))
    assert webhook.message(run.folder)["message"] == sent


@pytest.mark.parametrize("address", ["file:///etc/passwd", "ftp://a/b", "nothing", "http://", "https://[a", " "])
def test_only_web_addresses_are_used_and_none_is_repeated(address: str) -> None:
    assert "not an http or https address" in webhook.send(address, {})


def test_nothing_is_started_where_nobody_asked_and_in_the_demo(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[object] = []
    monkeypatch.setattr(subprocess, "Popen", lambda *given, **_: started.append(given))
    monkeypatch.delenv(webhook.VARIABLE, raising=False)
    webhook.watch(tmp_path)
    monkeypatch.setenv(webhook.VARIABLE, "https://example.com")
    assert webhook.VARIABLE not in processes.environment(account=False, module="workbench.trainer")
    assert not started
    webhook.watch(tmp_path)
    assert len(started) == 1
