"""What the elements ask: any operation by its name, and one stream for all that a tab shows."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.serving import Page
from tests.written_run import write_run
from workbench.api.watching import MOST_WATCHED, Watching
from workbench.errors import ConfigError
from workbench.operations.registry import operations
from workbench.workspace import Workspace


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


def test_what_several_show_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watching = Watching(Workspace.open(tmp_path))
    read: list[str] = []
    listed = next(one for one in operations("targets") if one.verb == "list")
    monkeypatch.setattr(type(listed), "call", lambda one, workspace, inputs: read.append(one.verb) or [])
    shown = [watching.open('[[1, "targets/list", {}]]')[1] for _ in range(50)]
    assert {one.text() for one in shown} == {'"value":[]'}
    assert read == ["list"]
    asyncio.run(watching.call("runs/remove", {"names": ["none"]}))
    assert {one.text() for one in shown} == {'"value":[]'}
    assert read == ["list", "remove", "list"], "a change is seen at once"


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
