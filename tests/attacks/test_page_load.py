"""Bringing the page down: bodies, sessions, half a request, values of wrong kinds, markup in its messages."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import uvicorn

from tests.patience import PATIENCE
from tests.serving import Page
from workbench.ui.server import bodies, connections
from workbench.ui.server.bodies import Bodies, too_deep

pytestmark = pytest.mark.long

MARKUP = "<img src=//evil.example/x>"
SESSIONS = 250  # each used to keep 1.5 MB
LARGE = 60_000_000
MOST = 150e6  # bytes that the server may have grown by; what it kept of these was twice as much and more


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    served = Page(tmp_path_factory.mktemp("page") / "workspace")
    yield served
    served.close()


@pytest.fixture(scope="module")
def client(page: Page) -> Iterator[httpx.Client]:
    with page.client() as inside:
        yield inside


def until(condition: Callable[[], Any]) -> None:
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def call(number: Any = 0, data: Any = None, session: Any = "abc", **more: Any) -> dict[str, Any]:
    return {"fn_index": number, "data": data or [], "session_hash": session, **more}


def test_what_strangers_and_unknown_calls_ask_for_costs_no_memory(page: Page, client: httpx.Client) -> None:
    server = psutil.Process(page.process.pid)
    client.get("/config")
    before = server.memory_info().rss
    with httpx.Client(base_url=page.url, timeout=PATIENCE) as stranger:
        for number in range(SESSIONS):
            assert stranger.post("/gradio_api/queue/join", json=call(0, session=f"a{number}")).status_code == 401
            unknown = client.post("/gradio_api/run/nothing", json=call(0, session=f"b{number}"))
            assert unknown.status_code == 404
        deaf = []
        for path in ("/gradio_api/queue/join", "/gradio_api/upload", "/login", "/nothing"):
            try:
                deaf.append(stranger.post(path, content=b"x" * LARGE).status_code)
            except httpx.TransportError:  # it answers and hangs up in the middle of it
                deaf.append(0)
    assert set(deaf) <= {401, 413, 0}
    assert server.memory_info().rss - before < MOST
    assert client.get("/config").status_code == 200


def test_calls_that_no_page_makes_are_refused_and_never_a_fault(client: httpx.Client) -> None:
    """Gradio's own routes are there, though the page calls none of them but for uploads."""
    right = call(0, [None])
    for session in (None, 3, "", "a b", "é", "x" * 65, "../a", {}, [], "a/b"):
        assert client.post("/gradio_api/queue/join", json={**right, "session_hash": session}).status_code == 400
    for number in (None, -1, 0, 10**9, "0", 1.5, {}, []):
        assert client.post("/gradio_api/queue/join", json={**right, "fn_index": number}).status_code == 404
    for body in (b"", b"{", b"[]", b"null", b'"a"', b"\xff\xfe", b'{"a": NaN', b"[" * 100_000, b'{"a":' * 5000):
        for path in ("queue/join", "run/a", "call/a", "component_server", "cancel"):
            assert client.post(f"/gradio_api/{path}", content=body).status_code == 400, (path, body[:10])
    for value in (None, "a", -1, 1, {}, [MARKUP]):
        asked = {"session_hash": "abc", "component_id": value, "fn_name": "save_caption", "data": value}
        assert client.post("/gradio_api/component_server", json=asked).status_code == 404
    large = b'{"data": "' + b"x" * 17_000_000 + b'"}'
    assert client.post("/gradio_api/queue/join", content=large).status_code == 413


def test_an_upload_that_is_broken_off_leaves_nothing(page: Page, client: httpx.Client) -> None:
    folder = page.workspace / "cache" / "page"

    def files() -> list[Path]:
        return [path for path in folder.rglob("*") if path.is_file()]

    there = files()
    head = (
        "POST /gradio_api/upload HTTP/1.1", "Host: localhost", f"Cookie: {client.headers['cookie']}",
        "Content-Length: 9000000", "Content-Type: multipart/form-data; boundary=b", "", "",
    )  # fmt: skip
    part = b'--b\r\nContent-Disposition: form-data; name="files"; filename="a.mp4"\r\n\r\n' + b"x" * 500_000
    with socket.create_connection(("127.0.0.1", page.port), timeout=PATIENCE) as raw:
        raw.sendall("\r\n".join(head).encode() + part)
        until(lambda: len(files()) > len(there))
    until(lambda: files() == there)
    for content in (b"--b\r\n", part, b"--b\r\n\r\nx"):
        answer = client.post(
            "/gradio_api/upload", content=content, headers={"content-type": "multipart/form-data; boundary=b"}
        )
        assert answer.status_code < 500, content[:20]


# ---- time limits, with shorter ones than the page's


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The port of a server that waits for nobody for long."""
    monkeypatch.setattr(connections, "HEAD_SECONDS", 0.3)
    monkeypatch.setattr(bodies, "PIECE_SECONDS", 0.3)
    monkeypatch.setattr(bodies, "WHOLE_SECONDS", 0.3)

    async def app(scope: Any, receive: Any, send: Any) -> None:
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"ok"})

    listening = socket.create_server(("127.0.0.1", 0))
    guarded = Bodies(app, uploads=1000, bodies=1000)
    config = uvicorn.Config(guarded, log_level="error", http=connections.Timed, lifespan="off", timeout_keep_alive=1)
    server = uvicorn.Server(config)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve([listening])))
    thread.start()
    yield listening.getsockname()[1]
    server.should_exit = True
    thread.join()
    listening.close()


@pytest.mark.parametrize(
    ("sent", "status"),
    [
        (b"", b""),
        (b"GET / HT", b""),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf", b"408"),
        (b"POST /gradio_api/upload HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nhalf", b"408"),
        (b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\n\r\nhalf", b"200"),
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET / HT", b"200"),
    ],
)
def test_half_a_request_is_not_waited_for(slow: int, sent: bytes, status: bytes) -> None:
    with socket.create_connection(("127.0.0.1", slow), timeout=PATIENCE) as raw:
        raw.sendall(sent)
        answer = b""
        while piece := raw.recv(1000):  # to the end: the server hangs up
            answer += piece
    assert answer[9:12] == status


def test_how_deep_is_too_deep() -> None:
    assert too_deep(b"[" * 65)
    assert not too_deep(b"[" * 64 + b"]" * 64)
    assert not too_deep(b'{"a": "' + b"[" * 1000 + b'\\"{"}')
    assert not too_deep(b"[]" * 100_000)
    began = time.process_time()
    assert not too_deep(b'"' + b"\\a" * 2_000_000)
    assert not too_deep(b'"' * 2_000_001)
    assert time.process_time() - began < 60, "no text takes more than its length"
