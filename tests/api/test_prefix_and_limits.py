"""The HTTP API behind a proxy that strips its prefix, what it takes at once, and what elements watch."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from fastapi import FastAPI
from starlette.middleware import Middleware
from starlette.routing import Mount
from starlette.testclient import TestClient

from tests.serving import Page
from tests.shell import Shell
from tests.written_run import write_run
from workbench import jobs
from workbench.api.app import ROOT, api
from workbench.api.watching import MOST_WATCHED, Watching
from workbench.errors import ConfigError
from workbench.jobs.queue import REQUESTS
from workbench.sampler import queue
from workbench.sampler.queue import RequestState, worker_folder
from workbench.sampler.settings import MOST_AT_ONCE, BatchSettings, SampleSettings, expand
from workbench.ui.server.bodies import MOST_MARKS, Bodies, Mounted
from workbench.workspace import Workspace, write_json

PREFIX = "/user/me/proxy/7860"


@pytest.fixture
def client(workspace: Workspace) -> Iterator[TestClient]:
    app = FastAPI(routes=[Mount(ROOT, Mounted(api(workspace)))], middleware=[Middleware(Bodies, 10**9, 16 * 2**20)])
    with TestClient(app, root_path=PREFIX) as opened:
        yield opened


def test_every_call_works_with_and_without_the_proxys_prefix(client: TestClient) -> None:
    for before in ("", PREFIX):
        assert client.get(f"{before}/api/v1/status").json()["active"] == []
        assert client.get(f"{before}/api/v1/datasets").json() == []
        missing = client.get(f"{before}/api/v1/datasets/cats")
        assert (missing.status_code, "no dataset 'cats'" in missing.json()["error"]) == (404, True)
        assert f"{PREFIX}/api/v1/docs" in client.get(f"{before}/api/v1/nothing").json()["error"]
        shown = client.get(f"{before}/api/v1/docs").text
        assert f"GET {PREFIX}/api/v1/status" in shown
        assert client.get(f"{before}/api/v1/openapi.json").json()["servers"] == [{"url": f"{PREFIX}/api/v1"}]


def test_json_of_millions_of_values_is_refused_before_it_is_parsed(client: TestClient) -> None:
    for body in (b"[" + b"1," * 7_500_000 + b"1]", b'{"a":[' + b'"",' * 5_000_000 + b"1]}", b"[" + b'"' * 15_000_000):
        began = time.process_time()
        answer = client.post("/api/v1/samples", content=body, headers={"content-type": "application/json"})
        assert (answer.status_code, f"{MOST_MARKS:,}" in answer.text) == (413, True)
        assert time.process_time() - began < 2, "parsing it takes longer"
    for body in (json.dumps({}).encode("utf-16-be"), b"\xef\xbb\xbf{}", b"\xff\xfe{\0}\0"):
        assert client.post("/api/v1/samples", content=body).status_code == 400


def test_a_line_requests_no_more_videos_than_can_be_looked_at(client: TestClient, workspace: Workspace) -> None:
    many = {"prompt": "\n".join(f"cat {n}" for n in range(200)), "each_line": True, "videos": 100}
    answer = client.post("/api/v1/samples/batch", json=many)
    assert answer.status_code == 400
    assert answer.json()["error"] == "20,000 videos are requested at once, at most 1,000 are allowed: request fewer"
    fits = expand(SampleSettings(prompt="a\nb"), BatchSettings(each_line=True, videos=MOST_AT_ONCE // 20))
    assert len(fits) == MOST_AT_ONCE // 10
    assert queue.pending(workspace) == []


def test_all_waiting_samples_are_cancelled_at_once_and_those_of_grids_stay(
    client: TestClient, workspace: Workspace, shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = worker_folder(workspace)

    def wait(count: int) -> list[str]:
        ids = [f"20260101-000000-{number:06d}-aaaa" for number in range(count)]
        for number, name in enumerate(ids):
            settings = SampleSettings(prompt="a cat").model_dump(mode="json")
            into = "grids/first/cells/abc" if number == 0 else ""
            write_json(folder / REQUESTS / f"{name}.json", {"settings": settings, "into": into, "bulk": False})
        return ids

    of_grid, *own = wait(4)
    assert client.post("/api/v1/samples/cancel").json()[0]["id"] == own[0]
    assert {queue.progress(workspace, name).state for name in own} == {RequestState.CANCELLED}
    assert queue.pending(workspace) == [of_grid]

    for name in own:
        (folder / "failed" / f"{name}.json").unlink()
    wait(4)
    assert "cancelled" in shell("samples", "cancel", own[0]).out
    assert len(json.loads(shell("samples", "cancel-all", "--json").out)) == 2
    assert shell("samples", "cancel-all").out == "no samples are waiting\n"
    assert shell("samples", "cancel").code == 2
    assert queue.pending(workspace) == [of_grid]

    monkeypatch.setattr(queue, "MOST_WAITING", 3)
    monkeypatch.setattr(jobs, "start", lambda *_, **__: None)
    with pytest.raises(ConfigError, match="4 videos would wait, at most 3 are allowed: .*samples cancel-all"):
        queue.submit_all(workspace, [SampleSettings(prompt="a")] * 3)


# ---- watching


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    served = Page(tmp_path_factory.mktemp("watching") / "workspace")
    yield served
    served.close()


def events(client: httpx.Client, *asked: tuple[int, str, dict[str, Any]]) -> Iterator[dict[str, Any]]:
    with client.stream("GET", f"/api/v1/watch?what={quote(json.dumps(asked))}") as stream:
        for line in stream.iter_lines():
            if line.startswith("data: "):
                yield json.loads(line.removeprefix("data: "))


def test_any_operation_is_called_by_its_name_with_its_own_errors(page: Page) -> None:
    with page.client() as client:
        assert client.post("/api/v1/call/overview/overview", json={}).json()["counts"]["runs"] == 0
        long = client.post("/api/v1/call/settings/show", json={"form": "sample"})
        assert long.headers["content-encoding"] == "gzip"
        assert "prompt" in {one["name"] for one in long.json()}
        missing = client.post("/api/v1/call/datasets/show", json={"name": "none"})
        assert (missing.status_code, "no dataset 'none'" in missing.json()["error"]) == (404, True)
        wrong = client.post("/api/v1/call/runs/list", json={"sort": "sideways"})
        assert (wrong.status_code, list(wrong.json()["problems"])) == (400, ["sort"])
        assert client.post("/api/v1/call/runs/explode", json={}).status_code == 400
        assert client.post("/api/v1/call/runs/list", content=b"[1]").status_code == 400


def test_a_stream_tells_at_once_and_after_each_change(page: Page) -> None:
    workspace = Workspace.open(page.workspace)
    with page.client() as client, page.client() as other:
        stream = events(client, (1, "runs/list", {}), (2, "runs/show", {"name": "cats"}))
        assert next(stream) == {"number": 1, "value": []}
        assert "no run 'cats'" in next(stream)["problem"]
        write_run(workspace, "cats")
        told = {one["number"]: one for one in (next(stream), next(stream))}
        assert told[1]["value"][0]["name"] == told[2]["value"]["name"] == "cats"
        other.post("/api/v1/call/runs/note", json={"name": "cats", "text": "what I saw"}).raise_for_status()
        assert "what I saw" in json.dumps(next(stream))


@pytest.mark.parametrize(
    "what",
    [
        *('[[1, "runs/show"]]', '[[1, "runs/stop", {}]]', '[[1, "no/such", {}]]', "[" * 9999),
        json.dumps([[number, "runs/list", {}] for number in range(MOST_WATCHED + 1)]),
    ],
)
def test_what_cannot_be_watched_is_refused(what: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError):
        Watching(Workspace.open(tmp_path)).open(what)
