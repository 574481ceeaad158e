"""The notebooks as they are committed, and the quickstart from its first cell to its last, with fewer steps.

`make demo` runs all steps of the same loop.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import types
from pathlib import Path

import pytest

from tests.notebook_outputs import NOTEBOOKS, executed, read, said, shown_pages
from workbench import Run, Samples, demo
from workbench.jobs import State

ROOT = Path(__file__).resolve().parent.parent.parent
AS_IT_STANDS = "settings = demo.prepare(workspace)"
FEW = f"{AS_IT_STANDS}.changed(steps=18, preview_every=6, evaluate_every=6, save_every=6, preview_steps=2)"
RECORD = "python scripts/write_notebooks.py records what a notebook shows"
ADDRESS = "https://colab.research.google.com/github/video-lora-workbench/video-lora-workbench/blob/main/notebooks"


MOST_BYTES = 1_500_000  # of a notebook with its pictures


def test_notebooks_are_committed_as_they_were_recorded() -> None:
    """With what they showed after a run from top to bottom (scripts/write_notebooks.py), in text and small pictures."""
    import nbformat

    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        text = path.read_text(encoding="utf-8")
        notebook = nbformat.reads(text, as_version=4)
        nbformat.validate(notebook)
        code = [cell for cell in notebook.cells if cell.cell_type == "code"]
        counts = [cell.execution_count for cell in code]
        assert counts == [*range(1, len(code) + 1)], f"{path.name}: {RECORD}"
        for cell in code:
            ast.parse(cell.source)
        outputs = [output for cell in code for output in cell.outputs]
        assert {output.output_type for output in outputs} <= {"stream", "display_data"}, path.name
        kinds = {kind for output in outputs for kind in output.get("data", {})}
        assert kinds <= {"image/png", "text/plain"}, f"{path.name}: {kinds} is not shown on GitHub. {RECORD}"
        assert not [output.text for output in outputs if output.get("name") == "stderr"]
        assert len(text) < MOST_BYTES, path.name
        assert str(ROOT) not in text, path.name
        assert "widgets" not in notebook.metadata, path.name
        assert json.dumps(json.loads(text), indent=1, ensure_ascii=False, sort_keys=True) == text.rstrip("\n")
        for link in (f"{ADDRESS}/{path.name}", "https://colab.research.google.com/assets/colab-badge.svg"):
            assert link in notebook.cells[0].source


@pytest.mark.long
def test_the_quickstart_runs_from_top_to_bottom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace, outputs = executed("1_quickstart.ipynb", tmp_path, monkeypatch, {AS_IT_STANDS: FEW})
    (run,) = Run.all(workspace)
    assert run.status.state is State.FINISHED
    base, tuned = sorted(Samples(workspace).history(), key=lambda sample: len(sample.settings.loras))
    assert base.settings.prompt == tuned.settings.prompt == demo.prompts()[3]
    assert tuned.settings.loras == (run.name,)
    assert base.path.read_bytes() != tuned.path.read_bytes()
    table, pair = shown_pages(outputs)[1:]  # after the workspace
    shown = re.findall(r"id=&quot;previews/step-\d+/(?:control-)?\d\.mp4", table)
    assert len(shown) == 8 + 2, "two prompts; base model and three steps; a control, before and after"
    assert pair.count("<video") == 2
    before, after = (float(said(outputs).split("held-out loss ")[1].split()[word]) for word in (0, 2))
    assert after < before


def install_cell() -> str:
    cells = read("1_quickstart.ipynb").cells
    return str(next(cell.source for cell in cells if cell.cell_type == "code"))


def test_the_workbench_is_found_from_wherever_the_notebook_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = install_cell()
    for folder in (ROOT, ROOT / "notebooks", ROOT / "notebooks" / "deeper"):
        monkeypatch.setattr(Path, "cwd", lambda folder=folder: folder)
        monkeypatch.setattr("sys.path", [])
        names: dict[str, object] = {}
        exec(cell, names)
        assert names["root"] == ROOT, folder


def test_without_the_workbench_the_first_cell_says_where_to_get_it(tmp_path: Path) -> None:
    # -S and -I: a Python without any installed package.
    done = subprocess.run(
        [sys.executable, "-S", "-I", "-c", install_cell()], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert "not installed here: see https://" in done.stderr


def test_colab_gets_the_workbench_and_keeps_its_own_widgets(monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []
    monkeypatch.setitem(sys.modules, "google.colab", types.ModuleType("google.colab"))
    monkeypatch.setattr(subprocess, "run", lambda command, check: commands.append(command))
    monkeypatch.setattr("sys.path", list(sys.path))
    exec(install_cell(), {})
    assert [command[0] for command in commands] == ["git", sys.executable]
    assert commands[1][-3].startswith("anywidget>=")
    assert commands[1][-2:] == ["-e", "/content/video-lora-workbench"]
    # Colab's page speaks ipywidgets 7 only: an installation that asks for more would take its widgets away.
    assert "ipywidgets" not in (ROOT / "requirements.txt").read_text()
