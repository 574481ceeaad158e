"""What is kept of the page and its files: made once for all who may see it, anew when what it depends on differs."""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import brotli
import httpx
import pytest
import uvicorn

from tests.patience import PATIENCE
from tests.serving import serve
from tests.ui.guarded_page import NAME, PASSWORD
from workbench.ui.server.login import Access, Login
from workbench.ui.server.page_cache import Answer, PageCache
from workbench.ui.server.serving import make_page

BODY = b"<p>" + 500 * b"the page " + b"</p>"


class Application:
    """Counts how often it is asked, and answers with the same headers each time."""

    def __init__(self, status: int = 200, **headers: str) -> None:
        self.asked: list[str] = []
        self.status, self.body = status, BODY
        self.headers = {"content-type": "text/html"} | {name.replace("_", "-"): one for name, one in headers.items()}
        self.blocks = SimpleNamespace(config={})
        self.cache = PageCache(self.answer, kept_bytes=30_000, head="<script>1</script>")

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        await self.cache({**scope, "app": self}, receive, send)

    async def answer(self, scope: Any, receive: Any, send: Any) -> None:
        self.asked.append(scope["path"])
        await asyncio.sleep(0)
        headers = [(name.encode(), value.encode()) for name, value in self.headers.items()]
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        await send({"type": "http.response.body", "body": self.body[:100], "more_body": True})
        await send({"type": "http.response.body", "body": self.body[100:]})

    def client(self) -> httpx.AsyncClient:
        return httpx.AsyncClient(transport=httpx.ASGITransport(self), base_url="http://here")


def test_many_who_open_the_page_at_once_have_it_made_once() -> None:
    async def opened(application: Application) -> None:
        async with application.client() as client:
            answers = await asyncio.gather(*(client.get("/", params={"tab": "train"}) for _ in range(20)))
            assert {answer.content for answer in answers} == {BODY}
            assert {answer.headers["content-encoding"] for answer in answers} <= {"br", "gzip"}
            plain = await client.get("/", headers={"accept-encoding": "identity"})
            assert plain.content == BODY
            assert "content-encoding" not in plain.headers
            assert len(application.asked) == 1
            tag = plain.headers["etag"]
            again = await client.get("/", headers={"accept-encoding": "identity", "if-none-match": tag})
            assert (again.status_code, again.content) == (304, b"")
            application.blocks.config = {}  # built anew
            assert (await client.get("/")).content == BODY
            assert len(application.asked) == 2

    asyncio.run(opened(Application()))


def test_the_page_is_made_before_anybody_opens_it(tmp_path: Path) -> None:
    application, access = Application(), Access.made(tmp_path)
    server = uvicorn.Server(uvicorn.Config(Login(application, access), port=0, log_level="error"))
    serving = threading.Thread(target=server.run)
    serving.start()
    end = time.monotonic() + PATIENCE
    while not server.started and time.monotonic() < end:
        time.sleep(0.01)
    try:
        port = server.servers[0].sockets[0].getsockname()[1]
        url = f"http://127.0.0.1:{port}/"
        make_page(url, access)
        assert application.asked == ["/"]
        with httpx.Client(follow_redirects=True, timeout=PATIENCE) as visitor:
            assert visitor.get(access.address(url)).content == BODY
        assert application.asked == ["/"], "the visitor got what was kept"
        make_page(f"http://127.0.0.1:{port}/", Access.made(tmp_path / "other"))  # not let in: nothing is made
        assert application.asked == ["/"]
    finally:
        server.should_exit = True
        serving.join(PATIENCE)


def test_the_script_that_runs_before_gradio_ends_the_head_of_the_page_alone() -> None:
    async def asked(path: str, **headers: str) -> bytes:
        application = Application(**headers)
        application.body = b"<head><title>the page</title></head>" + BODY
        async with application.client() as client:
            return (await client.get(path)).content

    for path in ("/", "/?unknown=1"):  # which is never kept
        assert asyncio.run(asked(path)) == b"<head><title>the page</title><script>1</script></head>" + BODY
    assert b"script" not in asyncio.run(asked("/assets/a.js", content_type="text/javascript"))


def test_what_the_page_depends_on_keeps_it_apart() -> None:
    different: list[dict[str, Any]] = [
        {},
        {"headers": {"host": "another"}},
        {"headers": {"x-forwarded-host": "another"}},
        {"headers": {"x-forwarded-proto": "https"}},
        {"headers": {"x-gradio-server": "http://evil.example"}},
    ]

    async def asked(application: Application) -> None:
        async with application.client() as client:
            for _ in range(2):
                for more in different:
                    await client.get("/", **more)
            assert len(application.asked) == len(different)
            passed = ["/?deep_link=abc", "/?page=x", "/?all_endpoints=1", "/config", "/gradio_api/file=/a.css"]
            for path in passed * 2:
                await client.get(path)
            for _ in range(2):
                await client.head("/")
                await client.get("/assets/a.js", headers={"range": "bytes=0-5"})
            assert len(application.asked) == len(different) + 2 * len(passed) + 4

    asyncio.run(asked(Application()))


@pytest.mark.parametrize("given", [{"status": 500}, {"status": 404}, {"set_cookie": "a=b"}])
def test_errors_and_answers_with_cookies_are_not_kept(given: dict[str, Any]) -> None:
    async def asked(application: Application) -> None:
        async with application.client() as client:
            for count in (1, 2):
                answer = await client.get("/")
                assert (answer.status_code, answer.content) == (application.status, BODY)
                assert len(application.asked) == count
                assert "etag" not in answer.headers

    asyncio.run(asked(Application(**given)))


def test_what_is_kept_has_an_end() -> None:
    async def asked(application: Application) -> None:
        async with application.client() as client:
            for number in range(10):
                await client.get(f"/assets/{number}.js")
            assert 1 < len(application.cache._kept) < 8
            await client.get("/assets/9.js")
            assert len(application.asked) == 10
            await client.get("/assets/0.js")
            assert len(application.asked) == 11

    asyncio.run(asked(Application()))


def test_a_kind_that_is_compressed_already_is_left_as_it_is() -> None:
    async def form(kind: str) -> tuple[str, bytes]:
        return await Answer(kind, BODY, None).form("gzip;q=0.5, br")

    assert asyncio.run(form("font/woff2")) == ("", BODY)
    assert asyncio.run(form("text/css; charset=utf-8"))[0] == "br"


def test_the_page_is_compressed_better_once_nobody_waits() -> None:
    async def forms() -> tuple[bytes, bytes]:
        text = json.dumps([hashlib.sha256(bytes([n % 256])).hexdigest()[: n % 40] for n in range(5000)]).encode()
        answer = Answer("text/html; charset=utf-8", text, None)
        _, first = await answer.form("br")
        assert answer.improving
        await answer.improving
        _, later = await answer.form("br")
        assert brotli.decompress(first) == brotli.decompress(later) == text
        return first, later

    first, later = asyncio.run(forms())
    assert len(later) < len(first)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a small page of Gradio's behind guard, login and cache."""
    server, address = serve("tests.ui.guarded_page", Path(tmp_path_factory.mktemp("served")))
    yield address.rstrip("/")
    server.kill()
    server.communicate()


def test_the_second_opening_differs_in_nothing_and_a_stranger_gets_nothing_of_it(page: str) -> None:
    with httpx.Client(base_url=page, timeout=PATIENCE) as inside:
        assert inside.post("/login", data={"username": NAME, "password": PASSWORD}).status_code == 200
        first, second = inside.get("/"), inside.get("/?tab=home")
        made_anew = inside.get("/?unknown=1")  # never kept
        assert first.text == second.text == made_anew.text
        assert "gradio_config" in first.text
        assert "etag" not in made_anew.headers
        assert first.headers["cache-control"] == "private, no-cache"
        for name in ("content-security-policy", "x-content-type-options", "content-type"):
            assert first.headers[name] == second.headers[name] == made_anew.headers[name]
        other = inside.get("/", headers={"host": "lab.example"})
        assert "lab.example" in other.text
        assert "lab.example" not in inside.get("/").text
        assert "evil.example" in inside.get("/", headers={"x-gradio-server": "http://evil.example"}).text
        assert "evil.example" not in inside.get("/").text
        script = next(part for part in first.text.split('"') if part.startswith("./assets/index-")).lstrip(".")
        kept = inside.get(script)
        assert kept.headers["content-encoding"] in ("br", "gzip")
        assert "immutable" in kept.headers["cache-control"]
        assert kept.content == inside.get(script).content
        assert inside.get("/theme.css").headers["cache-control"] == "private, no-cache"
    for path in ("/", "/?tab=home", script, "/theme.css"):
        stranger = httpx.get(f"{page}{path}", headers={"if-none-match": first.headers["etag"]}, timeout=PATIENCE)
        assert stranger.status_code == (401 if path in (script, "/theme.css") else 200)
        assert "gradio" not in stranger.text
        assert "etag" not in stranger.headers
