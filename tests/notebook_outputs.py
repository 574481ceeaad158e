"""A notebook of ours run from its first cell to its last, and what it shows then."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from workbench import Run, Workspace
from workbench.sampler import queue

if TYPE_CHECKING:
    from nbformat import NotebookNode

WIDGET = "application/vnd.jupyter.widget-view+json"
NOTEBOOKS = Path(__file__).resolve().parent.parent / "notebooks"


def read(name: str) -> NotebookNode:
    """The notebook as it is committed."""
    import nbformat  # imported only where a notebook is read: three seconds

    return nbformat.read(NOTEBOOKS / name, as_version=4)


def executed(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, changed: Mapping[str, str] | None = None
) -> tuple[Workspace, list[NotebookNode]]:
    """Run a notebook on a workspace in the folder; return the workspace and the outputs of its code cells.

    The kernel starts in notebooks/, as in Jupyter.

    Args:
        changed: Replacements in the cells' source, old text -> new text.
    """
    from nbclient import NotebookClient

    monkeypatch.setenv("WORKBENCH_HOME", str(folder / "workspace"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(folder / "runtime"))
    monkeypatch.setenv("TMPDIR", str(folder))
    workspace, notebook = Workspace.open(folder / "workspace"), read(name)
    for piece, other in (changed or {}).items():
        assert sum(piece in cell.source for cell in notebook.cells) == 1
        for cell in notebook.cells:
            cell.source = cell.source.replace(piece, other)
    began = time.monotonic()
    try:
        NotebookClient(
            notebook,
            timeout=None,
            kernel_name="python3",
            store_widget_state=True,  # so that what they showed can be looked at
            resources={"metadata": {"path": str(NOTEBOOKS)}},
        ).execute()
    finally:
        for run in Run.all(workspace):
            run.stop(grace=20)
        queue.stop_worker(workspace, grace=20)
    print(f"{name}: {time.monotonic() - began:.0f} s")
    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert not [output.text for output in outputs if output.get("name") == "stderr"]
    assert not (NOTEBOOKS / "workspace").exists()
    return workspace, outputs


def said(outputs: Iterable[NotebookNode]) -> str:
    """What was printed."""
    return "".join(output.text for output in outputs if output.output_type == "stream")


def shown_pages(outputs: Iterable[NotebookNode]) -> list[str]:
    """The HTML of the outputs that are no widgets, without the script of the charts."""
    shown = [output.data for output in outputs if "data" in output and WIDGET not in output.data]
    found = [data["text/html"] for data in shown if "text/html" in data]
    return [page for page in found if not page.startswith("<script>")]
