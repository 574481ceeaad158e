"""Attack: one visitor of the public demo takes what is there for all: places, bytes, processes, memory."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests import small_job
from tests.patience import PATIENCE, until
from tests.platforms import limited_visitors
from tests.visiting import HTML, Demo, Visitor
from workbench import jobs
from workbench.dataset_builder.sources.archives import ArchiveTree
from workbench.demo_space.limits import Limits
from workbench.demo_space.proxy import COOKIE, UPLOAD, SessionProxy
from workbench.demo_space.sessions import DemoSession, DemoSessions
from workbench.errors import ConfigError
from workbench.jobs import processes, quota
from workbench.ui.server.spaces import Owner
from workbench.workspace import write_json

pytestmark = pytest.mark.long

SMALL = Limits(sessions=4, per_address=2, spare=0, size=10_000, upload=4_000, uploads=8)


@pytest.fixture
def sessions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[DemoSessions]:
    """DemoSessions whose pages only wait."""

    def stand_in(session: DemoSession, environment: dict[str, str]) -> None:
        session.process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)

    monkeypatch.setattr("workbench.demo_space.sessions._start", stand_in)
    made = DemoSessions(tmp_path / "sessions", SMALL)
    yield made
    made.close()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A visitor's folder, under whose rules this process stands; they may run the tests' small job."""
    folder = tmp_path / "sessions" / "one"
    (folder / "workspace").mkdir(parents=True)
    for name, value in Limits().variables(folder).items():
        monkeypatch.setenv(name, value.replace('"workbench.compare"', '"tests.small_job"'))
    return folder


# ---- places


def test_one_address_does_not_take_all_sessions(sessions: DemoSessions) -> None:
    statuses = asyncio.run(
        _come_in(SessionProxy(sessions), ["9.9.9.9"] * 5 + ["8.8.8.8", "6.6.6.6, 8.8.8.8, 10.0.0.7"])
    )
    assert statuses == [503] * 7  # the pages start, or there is no free session
    taken = [session.address for session in sessions._open.values()]
    assert sorted(taken) == ["8.8.8.8", "8.8.8.8", "9.9.9.9", "9.9.9.9"], "what a visitor writes before it is not read"


async def _come_in(proxy: SessionProxy, addresses: list[str]) -> list[int]:
    """Each gets a cookie, and opens the page with it."""
    statuses = []
    for address in addresses:
        given = {**HTML, "x-forwarded-for": address}
        async with httpx.AsyncClient(transport=httpx.ASGITransport(proxy), base_url="http://demo") as client:
            await client.get("/", headers=given)
            opened = await client.get("/", headers=given)
            statuses.append(503 if "All sessions" in opened.text or "Preparing" in opened.text else opened.status_code)
    return statuses


# ---- bytes


class _Page(BaseHTTPRequestHandler):
    """A session's page that takes an upload in and answers when all have come."""

    together = threading.Event()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["content-length"]))
        self.together.wait(PATIENCE)
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


def test_parallel_uploads_stay_within_the_quota(sessions: DemoSessions) -> None:
    page = ThreadingHTTPServer(("127.0.0.1", 0), _Page)
    threading.Thread(target=page.serve_forever, daemon=True).start()
    try:
        statuses = asyncio.run(_upload_at_once(sessions, page.server_port))
    finally:
        page.shutdown()
        page.server_close()
    assert sorted(statuses) == [200, 200, *[413] * 6], "two of 4,000 bytes fit into 10,000"
    assert [session.uploading for session in sessions._open.values()] == [[]], "what was reserved is free again"


async def _upload_at_once(sessions: DemoSessions, port: int) -> list[int]:
    proxy = SessionProxy(sessions)
    async with httpx.AsyncClient(transport=httpx.ASGITransport(proxy), base_url="http://demo", timeout=PATIENCE) as one:
        await one.get("/", headers=HTML)
        await one.get("/", headers=HTML)
        (session,) = sessions._open.values()
        write_json(session.folder / "address.json", {"port": port})
        uploads = [asyncio.ensure_future(one.post(UPLOAD, content=b"x" * 4000)) for _ in range(8)]
        refused = 0
        while refused < 6:  # those that are turned away answer at once
            await asyncio.wait(uploads, return_when=asyncio.FIRST_COMPLETED, timeout=1)
            refused = sum(upload.done() for upload in uploads)
        _Page.together.set()
        return [answer.status_code for answer in await asyncio.gather(*uploads)]


def test_an_archive_unpacks_no_more_than_one_may_have(home: Path) -> None:
    packed = home / "captions.zip"
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("big.mp4", b"\0" * 15_000_000)
        for number in range(6):
            archive.writestr(f"{number}.txt", b"a word " * 500_000)  # 3.5 MB each, hundreds of times what is packed
        for number in range(quota.Quota.entries):
            archive.writestr(f"{number}.mp4", b"")
    tree = ArchiveTree(packed)
    assert sum(map(len, tree._texts.values())) <= quota.Quota.text
    assert "too much text for captions" in tree.refused.values()
    assert any("more than 4,000 entries" in reason for reason in tree.refused.values())


# ---- processes and memory


def test_jobs_that_are_started_at_once_are_counted_one_after_the_other(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(small_job.BEHAVIOR, "run")
    refused: list[ConfigError] = []

    def start(number: int) -> None:
        try:
            jobs.start(home / "workspace" / "datasets" / str(number) / ".task", "tests.small_job")
        except ConfigError as error:
            refused.append(error)

    threads = [threading.Thread(target=start, args=(number,)) for number in range(11)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    folders = [path.parent for path in home.rglob(jobs.PROCESS)]
    try:
        assert len(folders) == quota.Quota.at_once
        assert len(refused) == 11 - quota.Quota.at_once
        assert "the most this demo allows" in str(refused[0])
    finally:
        for folder in folders:
            jobs.kill(folder)


@limited_visitors
def test_a_visitors_process_and_its_children_have_so_much_memory(home: Path) -> None:
    inner = "import resource; print(resource.getrlimit(resource.RLIMIT_FSIZE)[0]); bytearray(4 * 1024**3)"
    code = (
        "import subprocess, sys; from workbench.jobs import quota; quota.limit_process();"
        f"sys.exit(subprocess.run([sys.executable, '-c', {inner!r}]).returncode)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert "MemoryError" in done.stderr
    assert int(done.stdout) == Limits().size


# ---- odd requests


def test_odd_cookies_and_values_are_no_fault_of_the_server(sessions: DemoSessions, tmp_path: Path) -> None:
    values = [
        b"\xff\xfe.\xe9", f"{COOKIE}=ä.ö".encode(), f"{COOKIE}=a.é".encode("latin-1"), b"=;;=", b"a\x01b=c",
        f'{COOKIE}="\\'.encode(), b"session=....; workbench-visitor=.000", b"\xf0\x9f\x98\x80=1",
    ]  # fmt: skip
    assert asyncio.run(_asked_with(SessionProxy(sessions), values)) == [401] * len(values)
    owner = Owner("me", tmp_path)
    for login in (
        {"expires_at": "soon", "userinfo": {"preferred_username": "me"}},
        {"expires_at": 4e9, "userinfo": []},
        {"expires_at": 4e9, "userinfo": {"orgs": 7, "preferred_username": ["me"]}},
        {"expires_at": []},
        {"expires_at": 4e9, "userinfo": {"orgs": [1, {"roleInOrg": "admin"}]}},
    ):
        assert not owner.owns(login)


async def _asked_with(proxy: SessionProxy, cookies: list[bytes]) -> list[int]:
    async with httpx.AsyncClient(transport=httpx.ASGITransport(proxy), base_url="http://demo") as client:
        return [(await client.get("/config", headers=[(b"cookie", one)])).status_code for one in cookies]


def test_which_cookies_a_session_gets(sessions: DemoSessions) -> None:
    from starlette.requests import Request

    from workbench.demo_space.proxy import _own_cookies

    cookie = f"{COOKIE}=a.b; theme=dark; session=s; x=".encode() + b"\xff; " + COOKIE.encode() + b" =c"
    seen = _own_cookies(Request({"type": "http", "headers": [(b"cookie", cookie)]}))
    assert seen == b"theme=dark; x=\xff"


# ---- the whole server


WRITING = """
import pathlib, subprocess, sys
if len(sys.argv) == 1:
    subprocess.Popen([sys.executable, __file__, "write"], start_new_session=True)
    input()
number = 0
while True:
    number += 1
    pathlib.Path("tmp").mkdir(exist_ok=True)
    pathlib.Path(f"tmp/{number % 100}").write_text("x")
"""


def test_what_a_page_has_started_does_not_write_a_removed_session_back(tmp_path: Path) -> None:
    made = DemoSessions(tmp_path / "sessions", SMALL)
    folder = made.root / ("a" * 32)
    folder.mkdir()
    (folder / "page.py").write_text(WRITING)
    session = DemoSession(folder)
    session.process = subprocess.Popen([sys.executable, folder / "page.py"], stdin=subprocess.PIPE, cwd=folder)
    until(lambda: (folder / "tmp" / "9").exists())
    (writer,) = psutil.Process(session.process.pid).children()
    identity = processes.identity(writer.pid)
    made._open["visitor"] = session
    made.close()
    until(lambda: not processes.alive(identity))
    assert not folder.exists()


def test_a_broken_upload_and_an_ended_server_leave_nothing_behind(tmp_path: Path) -> None:
    sessions = tmp_path / "sessions"
    killed = Demo(sessions, OMP_NUM_THREADS="1")
    until(lambda: list(sessions.glob("*/page.log")))
    killed._process.kill()
    killed._process.communicate(timeout=PATIENCE)
    left = list(sessions.glob("*/page.log"))
    assert left, "nobody could clean up"
    demo = Demo(sessions, OMP_NUM_THREADS="1")
    try:
        assert not [path for path in left if path.exists()], "the next server does"
        visitor = Visitor(demo)
        pages = [process for process in psutil.Process(demo._process.pid).children(recursive=True)]
        before = set(visitor.session.rglob("*"))
        with _half_an_upload(demo, visitor):
            until(lambda: _whole(visitor.session, before))
        until(lambda: not _whole(visitor.session, before))
        assert visitor.client.get("/config").status_code == 200
        visitor.client.close()
    finally:
        demo._process.send_signal(signal.SIGTERM)
        demo._process.communicate(timeout=PATIENCE)
    assert not list(sessions.glob("*")), "SIGTERM, too, removes what visitors left"
    until(lambda: not any(process.is_running() for process in pages))
    assert "Traceback" not in demo.log.read_text()


def _whole(session: Path, before: set[Path]) -> list[Path]:
    found = set(session.rglob("*")) - before
    return [path for path in found if path.is_file() and path.stat().st_size > 100_000]


@contextlib.contextmanager
def _half_an_upload(demo: Demo, visitor: Visitor) -> Iterator[None]:
    """A million bytes of two; on leaving, the connection breaks."""
    host, port = demo.url.removeprefix("http://").split(":")
    cookies = "; ".join(f"{name}={value}" for name, value in visitor.client.cookies.items())
    head = (
        f"POST {UPLOAD} HTTP/1.1\r\nHost: {host}:{port}\r\nCookie: {cookies}\r\nContent-Length: 2000000\r\n"
        "Content-Type: multipart/form-data; boundary=x\r\n\r\n"
        '--x\r\nContent-Disposition: form-data; name="files"; filename="a.mp4"\r\n\r\n'
    )
    with socket.create_connection((host, int(port))) as connection:
        connection.sendall(head.encode() + os.urandom(1_000_000))
        yield
