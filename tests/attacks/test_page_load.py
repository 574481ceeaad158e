"""Bringing the page down and using its API from elsewhere: bodies, sessions, half a request, streams."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest
import uvicorn

from tests.patience import PATIENCE, until
from tests.serving import Page
from tests.test_overview import at_work
from tests.written_run import write_run
from workbench.api.app import ROOT
from workbench.api.key import api_token_of
from workbench.api.open_requests import MOST
from workbench.ui.server import bodies, connections
from workbench.ui.server.bodies import Bodies, too_deep
from workbench.workspace import Workspace, write_json

pytestmark = pytest.mark.long

MARKUP = "<img src=//evil.example/x>"
SESSIONS = 250  # each used to keep 1.5 MB
LARGE = 60_000_000
MOST_GROWTH = 150e6  # bytes that the server may have grown by; what it kept of these was twice as much and more


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    served = Page(tmp_path_factory.mktemp("page") / "workspace")
    yield served
    served.close()


@pytest.fixture(scope="module")
def client(page: Page) -> Iterator[httpx.Client]:
    with page.client() as inside:
        yield inside


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
    assert server.memory_info().rss - before < MOST_GROWTH
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


# ---- the HTTP API


STREAMS = 100
SITES = (
    {"origin": "https://evil.example"},
    {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"},
    {"sec-fetch-site": "same-site", "sec-fetch-mode": "cors"},
    {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"},
)


def program(page: Page, **more: Any) -> httpx.Client:
    bearer = {"authorization": f"Bearer {api_token_of(page.workspace)}"}
    return httpx.Client(base_url=f"{page.url}{ROOT}", headers=bearer, timeout=PATIENCE, **more)


def test_another_site_cannot_use_a_cookie_nor_a_stranger_anything(page: Page) -> None:
    with page.client() as person, httpx.Client(base_url=page.url, timeout=PATIENCE) as stranger:
        assert person.get(f"{ROOT}/status").status_code == 200
        for site in SITES:
            assert person.get(f"{ROOT}/status", headers=site).status_code == 403, site
            posted = person.post(f"{ROOT}/runs", headers=site, json={"settings": {"dataset": "a"}})
            assert posted.status_code == 403, site
        assert person.get(f"{ROOT}/status", headers={"host": "evil.example"}).status_code == 421
        for method in ("GET", "POST", "OPTIONS", "DELETE"):
            for path in ("/status", "/runs", "/openapi.json", "/docs", "/runs/a/events", "//runs", "/../v1/runs"):
                assert stranger.request(method, f"{ROOT}{path}").status_code == 401, (method, path)


def test_names_are_no_paths_and_values_of_any_kind_are_refused(page: Page) -> None:
    workspace = Workspace.open(page.workspace)
    secret = workspace.root / "secret"
    write_json(secret / "config.json", {"dataset": "hidden"})
    names = (
        "..%2Fsecret", "%2e%2e%2fsecret", "..%2F..%2Fetc", ".%00", "a%0d%0ab", "x" * 3000, "%F0%9F%98%80", "*", "~",
    )  # fmt: skip
    with program(page) as client:
        for name in names:
            paths = ("runs/{}", "runs/{}/events", "runs/{}/lora", "datasets/{}", "samples/{}", "samples/{}/video")
            for path in (*paths, "datasets/{}/export", "samples/export?id={}"):
                answer = client.get(path.format(name))
                assert answer.status_code in (400, 404, 405), (path, name, answer.text)
                assert "hidden" not in answer.text
        for wait in ("1e9", "-1", "nan", "inf", "601", "x", "", "1" * 400):
            assert client.get("samples/a", params={"wait": wait}).status_code == 400, wait
        for limit in ("0", "-1", "1001", "1.5", "9" * 400):
            assert client.get("samples", params={"limit": limit}).status_code == 400, limit
        for body in (
            b"", b"null", b"[]", b"3", b'"a"', b"{", b"\xff", b'{"settings": 3}', b'{"settings": {"steps": NaN}}',
        ):  # fmt: skip
            for path in ("runs", "samples"):
                answer = client.post(path, content=body, headers={"content-type": "application/json"})
                assert answer.status_code == 400, (path, body, answer.text)
                assert answer.json()["error"]
        assert client.post("runs", json={"settings": {"dataset": "a"}, "name": "../secret"}).status_code == 400
    assert not list(workspace.runs.glob("*secret*"))


def test_many_open_streams_leave_the_page_alone(page: Page) -> None:
    """A living run is followed a hundred times: most are refused, the page answers, and places are free again."""
    workspace = Workspace.open(page.workspace)
    run = write_run(workspace, "alive", 20)
    at_work(run, step_seconds=4)
    statuses: list[int] = []
    go = threading.Event()

    def follow() -> None:
        with program(page) as client, client.stream("GET", "runs/alive/events") as answer:
            statuses.append(answer.status_code)
            go.wait(PATIENCE)

    many = [threading.Thread(target=follow, daemon=True) for _ in range(STREAMS)]
    for one in many:
        one.start()
    try:
        until(lambda: len(statuses) == STREAMS, lambda: f"{len(statuses)} answers")
        assert sorted(statuses) == [200] * MOST + [429] * (STREAMS - MOST)
        with page.client() as person:
            assert person.get("/").status_code == 200
            assert person.get("/config").status_code == 200
        with program(page) as client:
            assert client.get("status").status_code == 200
    finally:
        go.set()
    for one in many:
        one.join()

    def free() -> bool:
        with program(page) as client, client.stream("GET", "runs/alive/events") as answer:
            return answer.status_code == 200

    until(free, lambda: "no place is free after all have gone", every=0.2)
