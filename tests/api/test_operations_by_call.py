"""Operations that the shell writes by hand are called as programs and agents call them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from tests.fake_hub import FakeHub, login
from tests.loras.making import put_export
from tests.written_run import write_run
from workbench import jobs
from workbench.api.app import api
from workbench.compare import Grid
from workbench.dataset_builder import Dataset
from workbench.workspace import Workspace


@pytest.fixture
def client(workspace: Workspace) -> Iterator[TestClient]:
    with TestClient(api(workspace)) as opened:
        yield opened


def test_fit_answers_for_the_settings_that_it_is_given(client: TestClient, dataset: Dataset) -> None:
    asked: dict[str, Any] = {"dataset": dataset.name, "model": "cogvideox-5b", "gpu_memory": "24"}
    plain, fitted = (client.get("/fit", params={**asked, "fit_to_gpu": fit}).json() for fit in ("false", "true"))
    assert (plain["fits"], fitted["fits"]) == (False, True)
    assert fitted["settings"]["gradient_checkpointing"] != "none"
    hopeless = client.get("/fit", params={**asked, "gpu_memory": "1", "fit_to_gpu": "true"})
    assert (hopeless.status_code, "fit" in hopeless.json()["error"]) == (400, True)


def test_a_target_is_added_listed_and_removed_even_when_it_is_damaged(client: TestClient, workspace: Workspace) -> None:
    added = client.post("/targets/box/add", json={"kind": "ssh", "settings": {"host": "box"}}).json()
    assert client.get("/targets").json() == [added]
    assert client.post("/targets/box/add", json={"kind": "ftp", "settings": {}}).status_code == 400
    (workspace.root / "targets" / "box.json").write_text("{")
    assert client.post("/targets/box/remove").json()["problem"]
    assert client.get("/targets").json() == []
    assert client.post("/targets/box/remove").status_code == 404


def test_a_grid_is_made_extended_and_stopped(
    client: TestClient, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Grid, "generate", lambda grid, keys=None: 0)  # the worker has tests of its own
    made = client.post("/grids", json={"grid": {"prompts": ["a cat"], "seeds": ["1"]}, "sample": {"steps": 2}}).json()
    name = made["grid"]
    assert (len(made["cells"]), len(made["cells"][0])) == (1, 1)
    assert Grid.open(workspace, name).base.steps == 2
    more = client.post(f"/grids/{name}/extend", json={"guidance": ["1", "3"]}).json()
    assert [one["name"] for one in more["columns"]] == ["guidance 1", "guidance 3"]
    assert client.post(f"/grids/{name}/stop").json()["progress"]["going"] == 0


def test_a_lora_is_planned_and_pushed(
    client: TestClient, workspace: Workspace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    write_run(workspace, "cats", 20)
    put_export(workspace, "cats", rank=4, alpha=4.0, step=20)
    wanted = {"name": "runs/cats", "repo_id": "me/cats"}
    plan = client.get("/publishing/plan-lora", params=wanted).json()
    assert "README.md" in plan["sizes"]
    with FakeHub().serving() as hub:
        login(monkeypatch, hub, tmp_path / "login")
        assert client.get("/publishing/account").json()["name"]
        push = client.post("/publishing/lora", json=wanted).json()
        jobs.wait(Path(push["folder"]))
        ended = client.get("/publishing/job", params={"id": push["id"]}).json()
    assert (ended["state"], ended["repo_id"], ended["changed"]) == ("finished", "me/cats", True), ended
