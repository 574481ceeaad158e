"""The notebooks about sampling and about families, from their first cells to their last, with fewer steps."""

from __future__ import annotations

import html
import time
from pathlib import Path

import pytest

from tests.families import documented
from tests.notebook_outputs import executed, read, said, shown_pages
from workbench import Run, Samples, Workspace
from workbench.jobs import State
from workbench.notebook import colab
from workbench.runs.settings import TrainSettings


@pytest.mark.long
@pytest.mark.release  # tests/notebook, tests/compare and test_quickstart.py show its panels and grids at every change
def test_the_sampling_notebook_runs_from_top_to_bottom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fewer = {"STEPS = 60": "STEPS = 8", "steps=10": "steps=2", "steps=6, seed=3": "steps=2, seed=3"}
    fewer |= {'steps=("6",)': 'steps=("2",)', "steps=6, seed=4": "steps=2, seed=4"}
    workspace, outputs = executed("4_sample.ipynb", tmp_path, monkeypatch, fewer)
    printed, pages = said(outputs), shown_pages(outputs)
    assert [page.count("<video") for page in pages[:2]] == [2, 4]
    grids = [output.data["text/html"] for output in outputs if "srcdoc" in output.get("data", {}).get("text/html", "")]
    assert html.unescape(grids[0]).count('type="text/plain"') == 6, "the grid plays where there is no kernel, too"
    stacks = [len(sample.settings.loras) for sample in Samples(workspace).history()]
    assert sorted(stacks) == [0, 0, 1, 1, 1, 1, 2]
    assert "2 by 3, complete: True" in printed
    assert "loras/mixed" in printed
    assert "model repository you/stripes (private)" in printed
    assert "the newest of 2 samples is the one from here: True" in printed
    assert "No run is training" in printed


@pytest.mark.release  # what it does is what tests/families/test_new_family.py does
def test_the_notebook_about_families_adds_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace, outputs = executed("5_add_a_family.ipynb", tmp_path, monkeypatch)
    printed = said(outputs)
    assert "'skyreels'" in printed
    assert [run.status.state for run in Run.all(workspace)] == [State.FINISHED]
    assert "'lora.safetensors'" in printed
    assert "The contract is kept." in printed


def test_the_notebook_about_families_writes_the_documented_one() -> None:
    notebook = read("5_add_a_family.ipynb")
    written = [cell.source for cell in notebook.cells if cell.source.count("MODULE = r'''") == 1]
    assert written[0].partition("r'''")[2].partition("'''")[0] == documented.text()


def test_in_colab_a_workspace_is_on_drive_and_runs_end_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = TrainSettings(dataset="cats", time_limit=5000.0)
    assert colab.minutes_left() is None
    assert colab.in_time(settings) == settings
    monkeypatch.delenv("WORKBENCH_HOME", raising=False)
    assert colab.open_workspace(tmp_path).root == tmp_path / "workspace"
    monkeypatch.setattr(colab, "in_colab", lambda: True)
    monkeypatch.setattr(colab, "DRIVE", tmp_path / "drive")
    monkeypatch.setattr(colab, "LOCAL", tmp_path / "local")
    assert colab.open_workspace(tmp_path).root == tmp_path / "local"
    assert "mount Drive" in capsys.readouterr().out
    (tmp_path / "drive").mkdir()
    assert colab.open_workspace(tmp_path).root == tmp_path / "drive" / "workbench"
    first = type("First", (), {"create_time": lambda _: time.time() - 3600})
    monkeypatch.setattr(colab.psutil, "Process", lambda _: first())
    monkeypatch.setenv(colab.HOURS, "3")
    assert colab.in_time(settings).time_limit == pytest.approx(110, abs=1)
    assert colab.in_time(settings.changed(time_limit=20.0)).time_limit == 20
    monkeypatch.setenv(colab.HOURS, "0.5")
    assert colab.minutes_left() == 1


def test_interrupted_runs_are_resumed(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After a lost machine the process belongs to another boot; a time limit leaves a run that stopped by itself."""
    states = {"died": State.DIED, "in time": State.STOPPED, "by hand": State.STOPPED, "done": State.FINISHED}
    started: list[str] = []

    class OneRun:
        def __init__(self, name: str) -> None:
            self.name = name
            late = colab.TIME_IS_UP if name == "in time" else "Stopped on request."
            self.result = {"message": late}

        @property
        def status(self) -> object:
            state = State.RUNNING if self.name in started else states[self.name]
            return type("Status", (), {"state": state})

        def start(self) -> None:
            started.append(self.name)

    monkeypatch.setattr(colab.Run, "all", lambda _: [OneRun(name) for name in states])
    assert [run.name for run in colab.resume(workspace)] == ["in time", "died"]
    assert started == ["in time", "died"]
    assert "died: resumed" in capsys.readouterr().out
