"""The Compare tab's HTML, and trackio's dashboard behind the page's door."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.drawing import MakeClip
from tests.written_run import add_preview, write_run
from workbench.runs.analysis.comparison import compare
from workbench.runs.run import Run
from workbench.ui.compare import curves
from workbench.ui.server.login import Access, Login
from workbench.ui.train import tracker_view
from workbench.workspace import Workspace

EVIL = "<img src=x onerror=alert(1)>"


def test_runs_stand_side_by_side(workspace: Workspace, make_clip: MakeClip, tmp_path: Path) -> None:
    runs = [write_run(workspace, "slow"), write_run(workspace, "fast", learning_rate=3e-4, targets=EVIL)]
    clip = make_clip(tmp_path / "0.mp4")
    for run in runs:
        add_preview(run, 0, clip, EVIL)
        add_preview(run, 200, clip, EVIL)
    shown = curves.comparison(compare(runs))
    assert shown.count('<figure class="chart"') == 5
    assert shown.count("<video") == 3  # the base model once
    assert "<th>slow</th><th>fast</th>" in shown
    assert "0.0003" in shown
    assert "<img" not in shown
    same = curves.comparison(compare([runs[0], write_run(workspace, "again")]))
    assert "The settings are all the same." in same


@pytest.mark.parametrize("tracker", ["none", "tensorboard", "wandb", "trackio", "comet_ml", "all"])
def test_every_tracker_says_where_it_is_seen(workspace: Workspace, tracker: str) -> None:
    run: Run = write_run(workspace, "cats", tracker=tracker, tracker_project="a & b")
    shown = tracker_view.dashboard(run)
    words = {"none": "no tracker", "tensorboard": f"--logdir {workspace.runs}", "wandb": f"wandb sync {run.folder}"}
    words |= {"comet_ml": f"comet upload {run.folder}"}
    assert words.get(tracker, '<iframe src="/trackio/?project=a%20%26%20b"') in shown


def test_trackios_dashboard_asks_for_the_pages_password(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    from starlette.applications import Starlette
    from starlette.testclient import TestClient

    monkeypatch.setenv("TRACKIO_DIR", str(workspace.root))  # put back afterwards
    access = Access.made(workspace.root, "secret")
    client = TestClient(Login(Starlette(routes=tracker_view.routes(workspace)), access))
    for path in ("/trackio/", "/trackio/api/get_all_projects", "/trackio/file"):
        assert client.get(path).status_code == 401
    assert client.post("/login", data={"username": "me", "password": "secret"}).status_code == 200
    assert "<html" in client.get("/trackio/?project=cats").text
    assert client.post("/trackio/api/delete_run", json={"project": "cats", "run": "a"}).status_code == 400
