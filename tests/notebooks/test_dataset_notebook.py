"""The dataset notebook from its first cell to its last, as it stands."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.notebook_outputs import executed, said
from workbench import Dataset

# What the clips made for it come to: six given, three shots of the source video, one without its bars.
CLIPS = 10


@pytest.mark.long
def test_the_dataset_notebook_runs_from_top_to_bottom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    workspace, outputs = executed("2_dataset.ipynb", tmp_path, monkeypatch)
    dataset, again = (Dataset.open(workspace, name) for name in ("footage-tour", "footage-tour-again"))
    assert len(dataset.clips) == CLIPS
    assert all(clip.text.endswith("flat colors") for clip in dataset.clips)
    assert sum(not result.usable for result in dataset.import_results) == 1
    shots = [clip for clip in dataset.clips if clip.source == "recording.mp4"]
    spans = [(0.0, 2.125), (2.125, 4.25), (4.25, 6.375)]
    assert [(clip.span, clip.frames, clip.crop) for clip in shots] == [(span, 17, None) for span in spans]
    assert again.content_hash == dataset.content_hash
    printed = said(outputs)
    assert "recording.mp4: 3 pieces" in printed
    assert "1.5 s, 120x120" in printed
    assert "left out: too short" in printed
    assert "Cropped the bars of 1 clip" in printed
    assert "with a better copy" in printed
    pages = [output.data["text/html"] for output in outputs if "text/html" in output.get("data", {})]
    assert any(f"{CLIPS + 1} clips checked" in page for page in pages), "the copy is still there"
    assert [page.count("<video") for page in pages if "Model input: frames" in page] == [1]
    assert any("Aspect ratios" in page for page in pages)
