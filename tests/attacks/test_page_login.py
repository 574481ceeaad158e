"""Ways in to the page: without its token, with many tries at once, through a path prefix."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import stat
import threading
import time
from collections.abc import Iterator

import httpx
import pytest

from tests.patience import PATIENCE
from tests.serving import Page
from workbench.api.key import KEY_FILE
from workbench.ui.server.login import COOKIE, FREE, WAITING, Access, Throttle, TooMany

PREFIX = "/user/me/proxy/7860"
PARALLEL = 60
ENOUGH = PARALLEL - WAITING  # answers: the others wait for their turn


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """The real page, behind a path prefix."""
    served = Page(tmp_path_factory.mktemp("page") / "workspace", GRADIO_ROOT_PATH=PREFIX)
    yield served
    served.close()


def test_without_the_token_nothing_is_answered(page: Page) -> None:
    with httpx.Client(base_url=page.url, timeout=PATIENCE) as stranger:
        for path in (
            "/config", "/gradio_api/info", "/gradio_api/heartbeat/abc", "/trackio/", "/assets/index.js",
            f"/gradio_api/file={page.log}", f"{PREFIX}/config", "/gradio_api/queue/data",
        ):  # fmt: skip
            assert stranger.get(path).status_code == 401, path
        for path in ("/gradio_api/queue/join", "/gradio_api/upload", f"{PREFIX}/gradio_api/queue/join"):
            assert stranger.post(path, json={"session_hash": "a"}).status_code == 401, path
        shown = stranger.get("/?token=guessed")
        assert shown.status_code == 200
        assert "gradio" not in shown.text, "only a form that asks for the token"
        assert not shown.headers.get("set-cookie")
        assert stranger.post("/login", data={"username": "me", "password": "guessed"}).status_code == 400
        assert stranger.post("/login", data={"password": "x" * 20_000}).status_code == 413
        for body in (b"&" * 5000, b"\xff\xfe%ff=%", b'{"password": 1}'):
            assert stranger.post("/login", content=body).status_code == 400, body


def test_a_wrong_token_is_not_blamed_on_a_restart(page: Page) -> None:
    answer = httpx.get(f"{page.url}/?token=nonsense", timeout=PATIENCE)
    assert "This token is not valid. The page makes a new one each time it starts." in answer.text


def test_the_printed_address_opens_the_page_and_leaves_no_token_in_it(page: Page) -> None:
    with httpx.Client(base_url=page.url, timeout=PATIENCE) as client:
        answer = client.get(page.opened)
        assert (answer.status_code, answer.headers["location"]) == (303, "./")
        cookie = answer.headers["set-cookie"]
        assert all(word in cookie for word in ("HttpOnly", "SameSite=Lax", f"Path={PREFIX};"))
        value = cookie.split(";")[0].partition("=")[2]
        assert client.get("/config", headers={"cookie": f"{COOKIE}-{page.port}={value}"}).status_code == 200
    token = page.opened.partition("token=")[2]
    form = {"username": "me", "password": token}
    answer = httpx.post(f"{page.url}/login", data=form, timeout=PATIENCE)
    assert answer.json() == {"success": True}, "as gradio_client logs in"
    key = page.workspace / KEY_FILE
    assert stat.S_IMODE(key.stat().st_mode) == 0o600
    assert token.encode() not in key.read_bytes()
    assert token not in page.log.read_text()


def test_odd_cookies_are_none(page: Page) -> None:
    access = Access.made(page.workspace)
    good = access.cookie()
    until, _, signature = good.partition(".")
    odd = [
        "", ".", "é.ü", f"{until}.", f"{until}.ü{signature}", f"²{until}.{signature}", f"{'9' * 5000}.{signature}",
        f"{int(until) + 1}.{signature}", "\x00", good[:-1], f"{good}0",
    ]  # fmt: skip
    for value in odd:
        assert not access.is_cookie(value), value
        with socket.create_connection(("127.0.0.1", page.port), timeout=PATIENCE) as raw:
            head = (
                f"GET /config HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nCookie: {COOKIE}-{page.port}={value}"
            )
            raw.sendall(head.encode("latin-1", "replace") + b"; \xff\xfe=\xff\r\n\r\n")
            assert raw.recv(100).split()[1] in (b"401", b"400"), value
    assert access.is_cookie(good), "and one of before a restart stays good"
    assert not Access.made(page.workspace, "a password").is_cookie(good), "but not for a page with a password"


def test_a_prefix_of_the_path_changes_no_rule(page: Page) -> None:
    """What the guard knows by its path it knows behind a proxy's prefix as well."""
    imported = page.workspace / "datasets" / "cats" / "clips"
    imported.mkdir(parents=True)
    for name in ("evil.html", "evil.svg", "evil.xhtml", "evil.xml", "evil.mp4.htm", "evil.pdf", "evil.js"):
        (imported / name).write_text("<svg xmlns='http://www.w3.org/2000/svg'><script>alert(1)</script></svg>")
    (imported / "note.txt").write_text("plain")
    with page.client() as client:
        for prefix in ("", PREFIX):
            for path in (
                "gradio_api/deep_link?session_hash=a", "openapi.json", "gradio_api/openapi.json", "docs",
                "gradio_api/run-history/buckets", "gradio_api/dev/reload", "monitoring/summary",
            ):  # fmt: skip
                assert client.get(f"{prefix}/{path}").status_code == 404, (prefix, path)
            assert client.get(f"{prefix}/gradio_api/file=http://127.0.0.1:1/x").status_code == 403
            for file in imported.glob("evil*"):
                answer = client.get(f"{prefix}/gradio_api/file={file}")
                assert answer.status_code == 200
                assert answer.headers["content-disposition"] == "attachment", file
                assert answer.headers["content-type"] == "application/octet-stream", file
                assert answer.headers["content-security-policy"].startswith("sandbox "), file
            assert client.get(f"{prefix}/gradio_api/file={imported}/note.txt").text == "plain"
        assert client.get(f"{PREFIX}/config").json()["root"].endswith(PREFIX)


def held_back(port: int, number: int, go: threading.Event, answers: list[int]) -> None:
    """A login whose body comes later, after many others have come as far as this; notes the status of its answer."""
    body = b"username=me&password=wrong"
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=PATIENCE) as raw:
        head = (
            "POST /login HTTP/1.1", "Host: localhost", f"Content-Length: {len(body)}",
            f"X-Forwarded-For: 10.0.0.{number}", "", "",
        )  # fmt: skip
        raw.sendall("\r\n".join(head).encode())
        go.wait(PATIENCE)
        raw.sendall(body)
        raw.settimeout(0.5)
        while len(answers) < ENOUGH:
            with contextlib.suppress(TimeoutError):
                answers.append(int(raw.recv(1000).split()[1]))
                return


def test_many_tries_at_once_are_no_faster_whatever_address_they_claim(page: Page) -> None:
    """Last of those with the page: the next login would have to wait."""
    go, answers = threading.Event(), list[int]()
    tries = [threading.Thread(target=held_back, args=(page.port, n, go, answers)) for n in range(PARALLEL)]
    for one in tries:
        one.start()
    go.set()
    for one in tries:
        one.join()
    assert set(answers) == {400, 429}
    assert answers.count(400) <= FREE + 1 + WAITING
    with page.client() as owner:
        assert owner.get("/config").status_code == 200, "and whoever has the address is not kept out"


def test_delays_grow_to_a_limit_and_a_right_try_clears_them() -> None:
    async def tried() -> list[float]:
        throttle, times = Throttle(longest=0.05), []
        for right in [False] * (FREE + 5) + [True]:
            began = time.monotonic()
            assert await throttle.check("127.0.0.1", lambda: right) is right  # noqa: B023
            times.append(time.monotonic() - began)
        assert throttle._tries("127.0.0.9") is throttle._tries("::1"), "all of this machine's addresses are one"
        assert throttle._tries("2001:db8::1") is throttle._tries("2001:db8::2"), "and all of one network's"
        assert throttle._tries("127.0.0.1").wrong == 0
        return times

    times = asyncio.run(tried())
    assert sum(times[FREE + 1 :]) >= 5 * 0.05 * 0.9, "each waits for the delay of the one before"


def test_what_waits_is_bounded() -> None:
    async def tried() -> None:
        throttle = Throttle()
        throttle._tries("10.0.0.1").free_at = time.monotonic() + PATIENCE
        waiting = [asyncio.create_task(throttle.check("10.0.0.1", lambda: True)) for _ in range(WAITING)]
        await asyncio.sleep(0)
        with pytest.raises(TooMany):
            await throttle.check("10.0.0.1", lambda: True)
        assert await throttle.check("10.0.0.2", lambda: True), "another address does not wait"
        for task in waiting:
            task.cancel()
        for number in range(10_000):
            throttle._tries(f"10.{number // 250}.0.{number % 250}")
        assert len(throttle._by_network) < 5000, "nor does what it remembers grow"

    asyncio.run(tried())
