"""Attack: another site, a stranger or a greedy program uses the HTTP API; a visitor of the demo looks for it."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from tests.patience import PATIENCE, until
from tests.serving import Page
from tests.test_overview import at_work
from tests.written_run import write_run
from workbench.api.app import ROOT
from workbench.api.key import api_token_of
from workbench.api.open_requests import MOST
from workbench.workspace import Workspace, write_json

STREAMS = 100
SITES = (
    {"origin": "https://evil.example"},
    {"sec-fetch-site": "cross-site", "sec-fetch-mode": "no-cors", "sec-fetch-dest": "image"},
    {"sec-fetch-site": "same-site", "sec-fetch-mode": "cors"},
    {"sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"},
)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    served = Page(tmp_path_factory.mktemp("page") / "workspace")
    yield served
    served.close()


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
