"""The guard over HTTP: real requests to a real server with Gradio's own page behind it."""

from __future__ import annotations

import http.client
import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from gradio_client import Client

from tests.patience import PATIENCE
from tests.serving import serve
from tests.ui.guarded_page import CAP, NAME, PASSWORD
from workbench.ui.server import guard, spaces
from workbench.ui.server.guard import Guard
from workbench.ui.server.spaces import Owner


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a small page behind the guard, with a password and a folder that is served."""
    served = tmp_path_factory.mktemp("served")
    (served / "report.html").write_text("<script>alert(1)</script>")
    server, address = serve("tests.ui.guarded_page", served)
    yield address.rstrip("/")
    server.kill()
    server.communicate()


@pytest.fixture(scope="module")
def inside(page: str) -> Iterator[httpx.Client]:
    """Somebody who has logged in."""
    with httpx.Client(base_url=page, timeout=PATIENCE) as client:
        assert client.post("/login", data={"username": NAME, "password": PASSWORD}).status_code == 200
        yield client


def test_another_name_is_not_answered(inside: httpx.Client, page: str) -> None:
    for host in ("evil.example", "127.0.0.1.evil.example", "proxy.example", "localhost.", ""):
        assert inside.get("/config", headers={"host": host}).status_code in (400, 421), host
    port = urlsplit(page).port
    for host in (f"127.0.0.1:{port}", "LOCALHOST", "[::1]:7860", "lab.example", "one.proxy.example:8080"):
        assert inside.get("/config", headers={"host": host}).status_code == 200, host


def test_another_page_cannot_do_anything(inside: httpx.Client, page: str) -> None:
    port = urlsplit(page).port
    foreign = ("https://evil.example", "null", f"http://127.0.0.1:{port or 0 + 1}0", "http://127.0.0.1", "file://", "")
    paths = (
        "/gradio_api/queue/join", "/gradio_api/run/shout", "/gradio_api/upload", "/gradio_api/call/shout",
        "/gradio_api/reset", "/gradio_api/cancel", "/login",
    )  # fmt: skip
    for origin, path in itertools.product(foreign, paths):
        assert inside.post(path, headers={"origin": origin}, json={}).status_code == 403, (origin, path)
    for origin in foreign:
        assert inside.get("/config", headers={"origin": origin}).status_code == 403
    own = inside.post("/gradio_api/run/shout", headers={"origin": page}, json={"data": ["hey"]})
    assert own.json()["data"] == ["HEY"]
    # By a proxy that was allowed by hand, which says another Host than the browser's page has.
    assert inside.get("/config", headers={"origin": "https://one.proxy.example"}).status_code == 200


def test_a_preflight_of_another_page_gets_no_permission(page: str) -> None:
    asked = {"origin": "https://evil.example", "access-control-request-method": "POST", "host": "lab.example"}
    answer = httpx.options(f"{page}/gradio_api/queue/join", headers=asked, timeout=PATIENCE)
    assert answer.status_code == 403
    assert not [name for name in answer.headers if name.startswith("access-control")]


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_link_from_elsewhere_opens_the_page_and_nothing_behind_it(inside: httpx.Client, site: str) -> None:
    link = {"sec-fetch-site": site, "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
    assert inside.get("/", headers=link).status_code == 200
    assert inside.get("/config", headers=link).status_code == 403
    assert inside.get("/logout", headers=link).status_code == 403
    assert inside.get("/", headers={**link, "sec-fetch-mode": "no-cors"}).status_code == 403
    assert inside.get("/", headers={**link, "sec-fetch-dest": "iframe"}).status_code == 403
    assert inside.get("/config", headers={"sec-fetch-site": "same-origin"}).status_code == 200


def test_a_body_has_an_end(inside: httpx.Client, page: str) -> None:
    large = b"x" * (CAP + 1)
    assert inside.post("/gradio_api/run/shout", content=large).status_code == 413
    pieces = (large[i : i + 50_000] for i in range(0, len(large), 50_000))  # without a length
    assert inside.post("/gradio_api/run/shout", content=pieces).status_code == 413
    field = inside.post("/gradio_api/upload", data={"field": "x" * (2 * CAP)}, files={"files": ("a.txt", b"a")})
    assert field.status_code == 413
    assert inside.post("/gradio_api/upload", files={"files": ("a.txt", b"x" * CAP)}).status_code == 200
    assert _raw(page, "POST", "/gradio_api/run/shout", {"content-length": "-5"}) == 400
    assert _raw(page, "POST", "/gradio_api/run/shout", {"content-length": "5, 6"}) == 400


def test_nothing_is_fetched_for_anybody(inside: httpx.Client, page: str) -> None:
    for path in (
        "file=http://127.0.0.1:1/x",
        "file=https:/example.com",
        "file=FILE:///etc/passwd",
        "file/http://a.b",
        "file=ftp%3A//a.b/c",
    ):
        assert inside.get(f"/gradio_api/{path}").status_code == 403, path
    for path in (
        "/gradio_api/proxy=http://a.b", "/gradio_api/deep_link?session_hash=a", "/monitoring", "/openapi.json",
        "/gradio_api/process_recording", "/gradio_api/vibe-code/", "/gradio_api/dev/reload", "/docs",
        "/gradio_api/run-history/buckets", "/gradio_api/mcp/",
    ):  # fmt: skip
        assert inside.get(path).status_code == 404, path


def test_a_header_does_not_rename_the_page(inside: httpx.Client, page: str) -> None:
    forged = {"x-forwarded-host": "evil.example", "x-forwarded-port": "1", "forwarded": "host=evil.example"}
    assert inside.get("/config", headers=forged).json()["root"] == page
    assert "evil.example" not in inside.get("/", headers=forged).text


def test_answers_say_what_browsers_may_make_of_them(inside: httpx.Client, tmp_path_factory: Any) -> None:
    for path in ("/", "/config", "/gradio_api/info", "/nothing"):
        headers = inside.get(path).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "same-origin"
        policy = headers["content-security-policy"]
        assert policy.endswith("; frame-ancestors 'self'")
        assert "connect-src 'self' data: blob:;" in policy, "nothing is sent elsewhere"
        assert "img-src 'self' data: blob:;" in policy
    report = next(Path(tmp_path_factory.getbasetemp()).glob("served*/report.html"))
    headers = inside.get(f"/gradio_api/file={report}").headers
    policy = headers["content-security-policy"]
    assert policy.startswith("sandbox ")
    assert "allow-same-origin" not in policy
    assert "allow-scripts" not in policy
    assert headers["content-disposition"] == "attachment", "a browser saves it, and shows no page of a person's"
    assert headers["content-type"] == "application/octet-stream"


def test_the_usual_client_works(page: str) -> None:
    client = Client(page, auth=(NAME, PASSWORD), verbose=False)
    assert client.predict("hello", api_name="/shout") == "HELLO"
    client.close()


def test_a_machine_that_listens_knows_its_names() -> None:
    names = guard.own_names()
    assert {"localhost", "127.0.0.1"} < set(names)
    assert not any("%" in name or name == guard.ANY for name in names)


def test_on_a_space_its_proxy_names_the_page(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPACE_HOST", "me-workbench.hf.space")
    rules = spaces.rules()
    checked = Guard(lambda *_: None, rules)  # type: ignore[arg-type, return-value]
    base = {"type": "http", "path": "/gradio_api/queue/join", "method": "POST"}

    def allowed(**headers: str) -> bool:
        raw = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
        try:
            checked._checked({**base, "headers": raw})
        except guard.Refusal:
            return False
        return True

    inside = {"host": "10.0.0.7:7860", "x_forwarded_host": "me-workbench.hf.space", "sec_fetch_site": "same-origin"}
    assert allowed(**inside, origin="https://me-workbench.hf.space")
    assert allowed(host="10.0.0.7:7860")  # the platform asks whether it is well
    assert not allowed(**inside, origin="https://huggingface.co")
    assert not allowed(**inside, origin="https://another.hf.space")


@pytest.mark.parametrize(
    ("login", "owns"),
    [
        ({"userinfo": {"preferred_username": "Me"}, "expires_at": 4e9}, True),
        ({"userinfo": {"preferred_username": "me"}, "expires_at": 1}, False),
        ({"userinfo": {"preferred_username": "you"}, "expires_at": 4e9}, False),
        (
            {
                "userinfo": {"preferred_username": "you", "orgs": [{"preferred_username": "me", "roleInOrg": "write"}]},
                "expires_at": 4e9,
            },
            True,
        ),
        (
            {
                "userinfo": {"preferred_username": "you", "orgs": [{"preferred_username": "me", "roleInOrg": "read"}]},
                "expires_at": 4e9,
            },
            False,
        ),
        ({"userinfo": {"name": "me"}, "expires_at": 4e9}, False),
        ({}, False),
    ],
)
def test_only_the_owner_is_one(login: dict[str, Any], owns: bool, tmp_path: Path) -> None:
    assert Owner("me", tmp_path).owns(login) is owns


def test_nobody_is_the_owner_off_a_space(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    space = {"SYSTEM": "spaces", "SPACE_AUTHOR_NAME": "me", "SPACE_ID": "me/it", **dict.fromkeys(spaces.LOGIN, "a")}
    for name, value in space.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(spaces.importlib.util, "find_spec", lambda _: True)  # what a login needs is not installed here
    assert Owner.of_this_space(tmp_path)
    for name in ("SYSTEM", "SPACE_ID", *spaces.LOGIN):
        with monkeypatch.context() as without:
            without.delenv(name)
            assert Owner.of_this_space(tmp_path) is None


def _raw(page: str, method: str, path: str, headers: dict[str, str]) -> int:
    """A request that no well-behaved client would send."""
    connection = http.client.HTTPConnection(urlsplit(page).netloc, timeout=PATIENCE)
    connection.putrequest(method, path)
    for name, value in headers.items():
        connection.putheader(name, value)
    connection.endheaders()
    status = connection.getresponse().status
    connection.close()
    return status
