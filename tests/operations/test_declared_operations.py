"""Operations: declared once, and every face says the same of them."""

from __future__ import annotations

import dataclasses
import io
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from tests.loras.making import layer, put_export, put_lora
from tests.shell import run_command
from workbench.api.app import api
from workbench.dataset_builder.settings import ImportSettings
from workbench.errors import ConfigError
from workbench.jobs import quota
from workbench.operations.clip_plans import SHAPE
from workbench.operations.registry import Operation, operations
from workbench.runs.settings import TrainSettings
from workbench.settings import specs
from workbench.snapshots import keys_of
from workbench.workspace import Workspace

QUERY = "transformer_blocks.0.attn1.to_q"
Capsys = pytest.CaptureFixture[str]


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Workspace:
    monkeypatch.setenv("WORKBENCH_HOME", str(tmp_path / "work"))
    workspace = Workspace.open()
    put_export(workspace, "ring", rank=4, alpha=2.0, step=30, checkpoints=(10, 20, 30))
    put_lora(workspace, "made", layer(QUERY, 2, 8, 8), alpha=1.0)
    return workspace


@pytest.fixture
def app(workspace: Workspace) -> FastAPI:
    return api(workspace)


def ask(app: FastAPI, method: str, path: str, **more: Any) -> httpx.Response:
    return TestClient(app).request(method, path, **more)


def named(name: str) -> Operation:
    return next(one for one in operations() if f"{one.noun} {one.verb}" == name)


def test_everything_that_a_face_shows_of_an_operation_is_described() -> None:
    for one in operations():
        assert one.help[0].isupper(), one.verb
        assert one.help.split("\n")[0].endswith("."), one.verb
        said = {**{spec.name: spec.help for spec in specs(one.inputs)}, **keys_of(one.snapshot)}
        assert not [name for name, text in said.items() if not text], one.verb
        assert set(one.snapshot.COLUMNS) <= set(one.snapshot.model_fields), one.verb


def test_shell_and_api_answer_the_same(app: FastAPI, workspace: Workspace, capsys: Capsys) -> None:
    looks = {"list": {"checkpoints": True}, "show": {"name": "runs/ring"}, "formats": {}, "jobs": {}, "bin": {}}
    for verb, query in looks.items():
        answer = ask(app, "GET", "/loras" if verb == "list" else f"/loras/{verb}", params=query)
        flags = [f"--{name}" if value is True else str(value) for name, value in query.items()]
        assert answer.json() == json.loads(run_command(capsys, "loras", verb, *flags, "--json").out), verb
        assert answer.json() == named(f"loras {verb}").plain(named(f"loras {verb}")(workspace, query)), verb


def test_bad_input_is_one_sentence_in_every_face(app: FastAPI, workspace: Workspace, capsys: Capsys) -> None:
    rank = "rank is 0, must be 1 to 4096"
    assert rank in run_command(capsys, "loras", "resize", "runs/ring", "--rank", "0").err
    answer = ask(app, "POST", "/loras/resize", json={"lora": "runs/ring", "rank": 0})
    assert (answer.status_code, answer.json()["problems"]) == (400, {"rank": rank})
    with pytest.raises(ConfigError, match=rank):
        named("loras resize")(workspace, {"lora": "runs/ring", "rank": 0})
    for query, sentence in (
        ({"checkpoints": "perhaps"}, "checkpoints is "),
        ({"checkpoint": "true"}, "checkpoint is not a setting: did you mean checkpoints?"),
    ):
        answer = ask(app, "GET", "/loras", params=query)
        assert (answer.status_code, sentence in answer.json()["error"]) == (400, True), answer.json()
    assert "name is not set" in ask(app, "GET", "/loras/show").json()["error"]
    for body in (b"{", b"[]"):
        assert ask(app, "POST", "/loras/star", content=body).status_code == 400


def test_a_name_that_is_not_there_is_404(app: FastAPI) -> None:
    for method, path, given in (
        ("GET", "/loras/show", {"params": {"name": "runs/none"}}),
        ("GET", "/loras/job", {"params": {"id": "20260101-000000-merge"}}),
        ("GET", "/loras/to-remove", {"params": {"names": ["runs/none"]}}),
        ("POST", "/loras/star", {"json": {"name": "loras/none"}}),
        ("POST", "/loras/restore", {"json": {"id": "none"}}),
    ):
        assert ask(app, method, path, **given).status_code == 404, path


def test_an_operation_asks_for_some_fields_of_settings(workspace: Workspace, capsys: Capsys) -> None:
    one = named("datasets import")
    assert one.command == "dataset import"
    assert set(one.inputs.model_fields) == {"name", *ImportSettings.model_fields} - {"dataset"}
    assert one.filled == {"dataset"}
    assert set(named("clips plan").inputs.model_fields) == {"name", "clips", "buckets", *SHAPE}
    declared = {spec.name: spec for spec in specs(ImportSettings)}
    assert all(spec == declared[spec.name] for spec in specs(one.inputs) if spec.name != "name")
    with pytest.raises(ConfigError, match="dataset is not a setting"):
        one(workspace, {"name": "cats", "dataset": "dogs"})
    with pytest.raises(ConfigError, match="longest_side is 1, must be 64 to 8192 pixels"):
        one(workspace, {"name": "cats", "longest_side": 1})
    assert "--config" in run_command(capsys, "loras", "merge", "--help").out
    assert "--config" not in run_command(capsys, "dataset", "fix", "--help").out


def test_what_removes_anything_asks_first(
    workspace: Workspace, capsys: Capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    unasked = run_command(capsys, "loras", "remove", "loras/made", "--json")
    assert (unasked.code, unasked.out, "--yes" in unasked.err) == (2, "", True)
    monkeypatch.setattr("sys.stdin", io.StringIO("n\ny\n"))
    asked = run_command(capsys, "loras", "remove", "loras/made")
    assert "loras/made" in asked.out
    assert "nothing was changed" in asked.out
    assert "loras/made" in run_command(capsys, "loras", "list").out
    assert "in the bin" in run_command(capsys, "loras", "remove", "loras/made").out
    assert "loras/made" not in run_command(capsys, "loras", "list").out


def test_a_visitor_may_call_what_is_marked_for_visitors(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(quota.VARIABLE, quota.Quota(str(workspace.root), ()).variables[quota.VARIABLE])
    show = named("loras show")
    assert show(workspace, {"name": "runs/ring"}).name == "runs/ring"
    with pytest.raises(ConfigError, match="is switched off in this demo"):
        dataclasses.replace(show, visitors="never")(workspace, {"name": "runs/ring"})


def test_an_agent_or_a_form_learns_what_to_set_and_whether_it_is_legal(app: FastAPI, workspace: Workspace) -> None:
    shown = {one["name"]: one for one in ask(app, "GET", "/settings/train").json()}
    assert set(shown) == {spec.name for spec in specs(TrainSettings)}
    assert shown["steps"]["rule"] == "1 to 1000000 steps"
    listed = ask(app, "GET", "/settings/sample/choices", params={"name": "loras"}).json()
    assert "runs/ring" in [one["value"] for one in listed]
    wrong = {"values": json.dumps({"steps": 0, "rnak": 4})}
    assert list(ask(app, "GET", "/settings/train/check", params=wrong).json()["problems"]) == ["steps", "rnak"]
    fifty = {"values": json.dumps({"model": "cogvideox-2b", "frames": 50})}
    assert ask(app, "GET", "/settings/train/check", params=fifty).json()["problems"] == {"frames": "use 41 or 49"}
