"""Attack: requests that no browser sends, thousands of them, at the guard, the login and the API. Never a 500.

In the test's own process, over the servers' own middleware; what the application does not expect fails the test with
its traceback. The seed is fixed, so that a failure comes again.
"""

from __future__ import annotations

import asyncio
import json
import logging
import random
import socket
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import ASGIApp, Message

from tests.dataset_builder.small import write_dataset
from tests.patience import PATIENCE
from tests.written_run import write_run
from workbench.api.app import ROOT, api
from workbench.runs.settings import TrainSettings
from workbench.sampler.settings import SampleSettings
from workbench.ui.server import bodies, calls, connections
from workbench.ui.server.guard import Guard, Rules
from workbench.ui.server.login import Access, Login, cookie_name
from workbench.workspace import Workspace, write_json

SEED = 20261126
REQUESTS = 1500
PORT = 7860
Headers = list[tuple[bytes, bytes]]

BYTES = [
    b"", b"http://[", b"http://]", b"http://[::1", b"null", b"//", b"\xff\xfe", b"\xed\xa0\x80", b"\x00", b"a" * 9000,
]  # fmt: skip
BYTES += [
    b"http://127.0.0.1:99999999", b"http://127.0.0.1:x", b"[", b"]", b"[::1]", b"[::1", b":", b"127.0.0.1:7860:7860",
]  # fmt: skip
BYTES += [b"-1", b"1e308", b"9" * 5000, b"+5", b"0x10", b" 7 ", "\u0663".encode(), b"\xb2", b"1,2", b"bytes=9-1"]
BYTES += [
    b"bytes=0-0,1-1", b"bytes=-", b"bytes=" + b"9" * 500 + b"-", b"bytes=a-b", b"=;=;;=", b"workbench-7860=;",
    b"a=\xff",
]  # fmt: skip
BYTES += [
    b"%", b"%zz", b"%ed%a0%80", b"%00", b"..%2f..%2fetc%2fpasswd", b"\\..\\..", b"multipart/form-data",
    b"text/html;q=nan",
]  # fmt: skip
BYTES += [
    b"gzip;q=1e999,br;q=-1", b"*", b"Bearer \xff", b"Bearer", b"application/json; charset=utf-9000",
    b"http://\xe2\x80\xae",
]  # fmt: skip
HEADERS = [b"host", b"origin", b"cookie", b"content-length", b"content-type", b"range", b"if-range", b"authorization"]
HEADERS += [b"accept", b"accept-encoding", b"sec-fetch-site", b"sec-fetch-mode", b"sec-fetch-dest", b"x-forwarded-for"]
HEADERS += [b"x-forwarded-host", b"x-forwarded-proto", b"forwarded", b"transfer-encoding", b"if-none-match", b"expect"]
VALUES: list[Any] = [
    None, True, -1, 0, 10**6, 10**30, 10**400, 1e308, -1e308, float("nan"), float("inf"), 0.5, "", " ", "x", "\0",
]  # fmt: skip
VALUES += [
    "\ud800", "a\udfffb", "../../x", "/etc/passwd", "~root", "x" * 70_000, "\x1b[2J", "=cmd|x", "1e308x1x1",
    "-1x-1x-1",
]  # fmt: skip
VALUES += [
    "9" * 5000 + "x9x9", "49x480x720", "0x0x0", "999999x999999x999999", "cats=" + "9" * 400, "cats@nan",
    "cats=1@1e999",
]  # fmt: skip
VALUES += [
    "nan", "inf", "1e999", "\u0663", [], {}, [[]], [None], ["\ud800"], {"\ud800": 1}, [1e308], ["x"] * 3,
    {"a": {"b": []}},
]  # fmt: skip
PATHS = [
    "/", "/login", "/logout", "/config", "/gradio_api/file=x", "/gradio_api/queue/join", "/api/v1", "/nothing",
    "/gradio_api/upload",
]  # fmt: skip
CALLS = """
status datasets datasets/{} datasets/{}/export removed-datasets removed-datasets/{}/restore runs runs/{} runs/{}/{}
runs/{}/events runs/{}/lora samples samples/{} samples/{}/{} samples/{}/video samples/export samples/batch docs
openapi.json
"""


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    """A dataset, a run and a sample, and no process that is really started."""
    monkeypatch.setattr("workbench.jobs.control._spawn", lambda *_: None)
    monkeypatch.setattr("workbench.jobs.queue.keep_going", lambda *_: None)
    made = Workspace.open(tmp_path / "workspace")
    write_dataset(made.dataset("cats"), captions=["a cat", "a dog"])
    write_run(made, "dogs", 20)
    odd = {"settings": {"prompt": "x"}, "seconds": float("nan"), "fps": float("inf"), "note": "\ud800"}
    folder = made.samples / "2026-01-01"
    write_json(folder / "20260101-000000-000000-abcd.json", {"settings": {"prompt": "x"}})
    (folder / "20260101-000000-000000-abcd.json").write_text(json.dumps(odd))
    (folder / "20260101-000000-000000-abcd.mp4").write_bytes(b"video")
    return made


class Server:
    """The page's own stack of middleware around the API. person: brings a cookie to every request"""

    def __init__(self, workspace: Workspace) -> None:
        self.access = Access.made(workspace.root)
        app: ASGIApp = Starlette(routes=[Mount(ROOT, bodies.Mounted(api(workspace)))])
        app = bodies.Bodies(app, uploads=10**6, bodies=10**6, check=calls.check)
        self.app = Guard(Login(app, self.access), Rules())

    def ask(
        self, method: str, path: str, headers: Headers, body: bytes = b"", query: bytes = b"", person: bool = False
    ) -> tuple[int, bytes]:
        """The status and the body of an answer."""
        given = [(b"host", b"127.0.0.1")] if b"host" not in dict(headers) else []
        if person:
            given.append((b"cookie", f"{cookie_name(PORT)}={self.access.cookie()}".encode()))
        scope = {
            "type": "http", "http_version": "1.1", "method": method, "path": path,
            "raw_path": path.encode("utf-8", "replace"), "query_string": query, "headers": [*given, *headers],
            "scheme": "http", "root_path": "", "client": ("127.0.0.1", 1), "server": ("127.0.0.1", PORT),
            "asgi": {"version": "3.0"},
        }  # fmt: skip
        pieces: list[Message] = []
        sent = False

        async def receive() -> Message:
            nonlocal sent
            if sent:
                return {"type": "http.disconnect"}
            sent = True
            return {"type": "http.request", "body": body, "more_body": False}

        async def send(message: Message) -> None:
            pieces.append(message)

        asyncio.run(asyncio.wait_for(self.app(scope, receive, send), 20))
        return pieces[0]["status"], b"".join(one.get("body", b"") for one in pieces[1:])


def some_headers(chance: random.Random, names: Iterable[bytes]) -> Headers:
    return [(name, chance.choice(BYTES)) for name in names if chance.random() < 0.25]


def test_no_stranger_gets_a_500_or_a_line_into_the_log(workspace: Workspace, caplog: pytest.LogCaptureFixture) -> None:
    server, chance = Server(workspace), random.Random(SEED)
    for number in range(REQUESTS):
        path = chance.choice([*PATHS, f"{ROOT}/{chance.choice(CALLS.split())}", f"/{chance.choice(VALUES)}"])
        method = chance.choice(["GET", "POST", "HEAD", "OPTIONS", "PUT", "DELETE", "PATCH", "TRACE", "X" * 40])
        headers = some_headers(chance, HEADERS)
        query = chance.choice([b"", chance.choice(BYTES), b"token=" + chance.choice(BYTES), b"a=1&" * 5000])
        status, answer = server.ask(method, path, headers, chance.choice(BYTES), query)
        assert 200 <= status < 500, (number, method, path, headers, query)
        assert status != 200 or b"<form" in answer or method == "HEAD", (number, method, path, answer[:200])
    assert not caplog.records


@pytest.mark.parametrize(
    "origin", ["http://[", "http://]", "http://[::1", "https://[v1.x]", "http://a@[", "//[", "\x00"]
)
def test_an_origin_that_is_no_address_is_another_page(workspace: Workspace, origin: str) -> None:
    server = Server(workspace)
    for person in (False, True):
        assert server.ask("GET", "/", [(b"origin", origin.encode())], person=person)[0] == 403


def test_the_api_answers_every_value_in_words(workspace: Workspace) -> None:
    server, chance = Server(workspace), random.Random(SEED)
    json_type = (b"content-type", b"application/json")
    names = ["cats", "dogs", "20260101-000000-000000-abcd", *(str(value)[:300] for value in VALUES)]
    fields = [*TrainSettings.model_fields, *SampleSettings.model_fields, "each_line", "videos", "scenes"]
    for number in range(REQUESTS):
        path = chance.choice(CALLS.split())
        while "{}" in path:
            path = path.replace("{}", chance.choice([*names, "start", "stop", "star", "remove", "restore"]), 1)
        method = chance.choice(["GET", "POST", "POST", "PATCH", "DELETE"])
        if method == "DELETE" and "cats" in path:
            method = "GET"
        settings = {chance.choice(fields): chance.choice(VALUES) for _ in range(chance.randrange(4))}
        settings |= {"dataset": "cats"} if "runs" in path else {"prompt": "a cat"}
        body: Any = chance.choice([settings, {"settings": settings, "start": False, "name": chance.choice(VALUES)}])
        body = {"settings": settings, "start": False} if path == "runs" and chance.random() < 0.7 else body
        if path.startswith("datasets/"):
            body = {chance.choice(["title", "notes", "group", "\ud800"]): chance.choice(VALUES)}
        data = chance.choice([json.dumps(body), json.dumps(body, ensure_ascii=False), chance.choice(VALUES)])
        content = data.encode("utf-8", "surrogatepass") if isinstance(data, str) else json.dumps(data).encode()
        query = chance.choice([b"", b"limit=", b"search=", b"since=", b"wait=", b"id=", b"layout="])
        query += chance.choice(BYTES) if query else b""
        headers = [json_type, *some_headers(chance, [b"range", b"if-range", b"accept", b"accept-encoding"])]
        status, answer = server.ask(method, f"{ROOT}/{path}", headers, content, query, person=True)
        assert status < 500, (number, method, path, content[:300], query, answer[:500])


@pytest.mark.parametrize("text", ["\ud800", "a\udfff", "\ude00\ud83d"])
def test_half_a_character_is_refused_and_a_whole_one_is_not(workspace: Workspace, text: str) -> None:
    server, kind = Server(workspace), [(b"content-type", b"application/json")]
    for notes, status in ((text, 400), ("\U0001f600", 200), ("\\ud800", 200)):
        for raw in (
            json.dumps({"notes": notes}).encode(),
            json.dumps({"notes": notes}, ensure_ascii=False).encode("utf-8", "surrogatepass"),
        ):
            assert server.ask("PATCH", f"{ROOT}/datasets/cats", kind, raw, person=True)[0] == status, raw


def test_what_files_hold_is_answered_as_json(workspace: Workspace) -> None:
    status, answer = Server(workspace).ask("GET", f"{ROOT}/samples", [], person=True)
    record = json.loads(answer)[0]["record"]
    assert status == 200
    assert (record.get("seconds"), record.get("fps"), record["note"]) == (None, None, "\ufffd")


@pytest.mark.parametrize("value", ["NaN", "Infinity", "-Infinity", "1e999", "1e308", "9" * 400, "-" + "9" * 30])
def test_the_page_takes_no_number_that_is_none(value: str) -> None:
    with pytest.raises(bodies.Refusal, match="not a number that this page accepts"):
        calls._object(f'{{"data": [{value}]}}'.encode())


def test_a_server_takes_any_bytes_and_writes_a_line_a_second_at_most() -> None:
    lines: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    for name in ("uvicorn.error", "asyncio"):
        logging.getLogger(name).addHandler(handler)
    # The level is set here: another test's server may have left this process's logger at "error".
    app = Guard(Starlette())
    config = uvicorn.Config(app, log_config=None, log_level="warning", http=connections.Timed, lifespan="off")
    server, listening = uvicorn.Server(config), socket.create_server(("127.0.0.1", 0))
    connections.log_sparingly()
    thread = threading.Thread(target=server.run, args=([listening],), daemon=True)
    thread.start()
    began = time.monotonic()
    try:
        for target in (b"/\xff", b"/?a=\xff", b"/\xed\xa0\x80", b"http://[", b"*", b"/%ff%00%zz", b"\x00", b"/ HTTP/9"):
            for _ in range(5):
                with socket.create_connection(listening.getsockname(), PATIENCE) as client:
                    client.sendall(b"GET " + target + b" HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n")
                    assert client.recv(12) in (b"HTTP/1.1 400", b"HTTP/1.1 404"), target
    finally:
        server.should_exit = True
        thread.join(PATIENCE)
        for name in connections.LOGGERS:
            logging.getLogger(name).filters.clear()
            logging.getLogger(name).removeHandler(handler)
    bad = [line for line in lines if "Invalid" in line or "Fatal" in line]
    assert 1 <= len(bad) <= 2 + time.monotonic() - began
    assert not [line for line in bad if "Fatal" in line]
