"""The training notebook from its first cell to its last, with fewer steps than it has."""

from __future__ import annotations

import time
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from tests.notebook_outputs import shown_pages
from workbench import Run, Workspace
from workbench.jobs import State

NOTEBOOK = Path(__file__).resolve().parent.parent.parent / "notebooks" / "3_train.ipynb"
AS_IT_STANDS, FEW = "STEPS = 120", "STEPS = 16"


@pytest.mark.long
def test_the_training_notebook_runs_from_top_to_bottom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBENCH_HOME", str(tmp_path / "workspace"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    # On a machine with other work, threads wait for one another.
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    assert sum(AS_IT_STANDS in cell.source for cell in notebook.cells) == 1
    for cell in notebook.cells:
        cell.source = cell.source.replace(AS_IT_STANDS, FEW)
    workspace = Workspace.open(tmp_path / "workspace")
    began = time.monotonic()
    try:
        NotebookClient(
            notebook, timeout=None, kernel_name="python3", resources={"metadata": {"path": str(NOTEBOOK.parent)}}
        ).execute()
    finally:
        for each in Run.all(workspace):
            each.stop(grace=20)
    print(f"training notebook: {time.monotonic() - began:.0f} s")

    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert not [output.text for output in outputs if output.get("name") == "stderr"]
    runs = {run.name: run for run in Run.all(workspace)}
    assert len(runs) == 4
    assert all(run.status.state is State.FINISHED for run in runs.values())
    first, fork = runs["demo-stripes"], runs["demo-stripes-2"]
    assert len((first.folder / "sessions.jsonl").read_text().splitlines()) == 2, "it was stopped and went on"
    assert fork.parent["run"] == first.name
    assert list(first.folder.glob("previews/step-*/*-scale-0.5.mp4"))
    rates = {run.settings.learning_rate for name, run in runs.items() if "learning_rate" in name}
    assert rates == {3e-4, 3e-3}
    said = "".join(output.text for output in outputs if output.output_type == "stream")
    assert "demo-stripes: stopped, checkpoints of step [" in said
    pages = shown_pages(outputs)
    assert 'download="report.html"' in pages[-1]
    assert not (NOTEBOOK.parent / "workspace").exists()
