"""The training notebook from its first cell to its last, with fewer steps."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.notebook_outputs import executed, said, shown_pages
from workbench import Run
from workbench.jobs import State


@pytest.mark.long
@pytest.mark.release  # four runs; tests/notebook/test_panels.py and test_quickstart.py show its panels at every change
def test_the_training_notebook_runs_from_top_to_bottom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prompts = "preview_prompts=settings.preview_prompts[:2]"
    changed = {"STEPS = 120": "STEPS = 16", prompts: f"{prompts}, preview_steps=2", "STEPS // 8": "STEPS // 2"}
    workspace, outputs = executed("3_train.ipynb", tmp_path, monkeypatch, changed)
    runs = {run.name: run for run in Run.all(workspace)}
    assert len(runs) == 4
    assert all(run.status.state is State.FINISHED for run in runs.values())
    first, fork = runs["demo-stripes"], runs["demo-stripes-2"]
    assert len((first.folder / "sessions.jsonl").read_text().splitlines()) == 2, "it was stopped and went on"
    assert fork.parent["run"] == first.name
    assert list(first.folder.glob("previews/step-*/*-scale-0.5.mp4"))
    rates = {run.settings.learning_rate for name, run in runs.items() if "learning_rate" in name}
    assert rates == {3e-4, 3e-3}
    assert "demo-stripes: stopped, checkpoints of step [" in said(outputs)
    pages = shown_pages(outputs)
    assert 'download="report.html"' in pages[-1]
