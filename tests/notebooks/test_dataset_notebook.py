"""The dataset notebook from its first cell to its last, as it stands."""

from __future__ import annotations

import time
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from workbench import Dataset, Workspace

NOTEBOOK = Path(__file__).resolve().parent.parent.parent / "notebooks" / "2_dataset.ipynb"
# What the clips made for it come to: six given, three shots of the source video, one without its bars.
CLIPS = 10


@pytest.mark.long
def test_the_dataset_notebook_runs_from_top_to_bottom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORKBENCH_HOME", str(tmp_path / "workspace"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "runtime"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    # On a machine with other work, threads wait for one another.
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    # Neither a download nor a push can go unnoticed.
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    began = time.monotonic()
    NotebookClient(
        notebook, timeout=None, kernel_name="python3", resources={"metadata": {"path": str(NOTEBOOK.parent)}}
    ).execute()
    print(f"dataset notebook: {time.monotonic() - began:.0f} s")

    outputs = [output for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert not [output.text for output in outputs if output.get("name") == "stderr"]
    workspace = Workspace.open(tmp_path / "workspace")
    dataset, again = (Dataset.open(workspace, name) for name in ("footage-tour", "footage-tour-again"))
    assert len(dataset.clips) == CLIPS
    assert all(clip.text.endswith("flat colours") for clip in dataset.clips)
    assert sum(not result.usable for result in dataset.import_results) == 1
    shots = [clip for clip in dataset.clips if clip.source == "recording.mp4"]
    spans = [(0.0, 2.125), (2.125, 4.25), (4.25, 6.375)]
    assert [(clip.span, clip.frames, clip.crop) for clip in shots] == [(span, 17, None) for span in spans]
    assert again.content_hash == dataset.content_hash
    said = "".join(output.text for output in outputs if output.output_type == "stream")
    assert "recording.mp4: 3 pieces" in said
    assert "1.5 s, 120x120" in said
    assert "left out: too short" in said
    assert "Cropped the bars of 1 clip" in said
    assert "copy a better one" in said
    pages = [output.data["text/html"] for output in outputs if "text/html" in output.get("data", {})]
    assert any(f"{CLIPS + 1} clips checked" in page for page in pages), "the copy is still there"
    assert [page.count("<video") for page in pages if "What the model gets: frames" in page] == [1]
    assert any("Aspect ratios" in page for page in pages)
    assert not (NOTEBOOK.parent / "workspace").exists()
