"""What datasets and workspaces show of themselves in a notebook; tasks' results are in tests/notebook."""

from __future__ import annotations

from workbench import Dataset, Run, Samples, Workspace
from workbench.clips.records import Clip, write_clips


def test_statistics_are_charts_with_the_words_as_they_are(workspace: Workspace) -> None:
    dataset = Dataset.create(workspace, "numbers")
    assert "There are no clips yet" in dataset.statistics._repr_html_()
    texts = ("x$1 & <b>blue$ ring", "\u732b plays", "")
    write_clips(
        dataset.folder,
        [
            Clip(file_name=f"clips/{number}.mp4", text=text, fps=8, frames=9 + number, width=160, height=90)
            for number, text in enumerate(texts)
        ],
    )
    shown = dataset.statistics._repr_html_()
    for words in ("Duration", "160x90", "16:9", "x$1", "\u732b", "Motion is known after a check"):
        assert words in shown
    assert "<b>blue" not in shown


def test_a_dataset_shows_its_clips_and_its_history(workspace: Workspace) -> None:
    dataset = Dataset.create(workspace, "Cats & dogs", "c4t")
    write_clips(dataset.folder, [Clip(file_name="clips/a.mp4", text="<i>a</i> cat", source="cat.mov")])
    shown = dataset._repr_html_()
    assert "Cats &amp; dogs" in shown
    assert "trigger word c4t" in shown
    assert "&lt;i&gt;a&lt;/i&gt; cat" in shown
    assert "Nothing was changed yet" in dataset.history._repr_html_()
    dataset.set_caption("a", "a dog")
    assert "caption of cat.mov" in dataset.history._repr_html_()


def test_a_workspace_shows_what_is_in_it(workspace: Workspace) -> None:
    Dataset.create(workspace, "cats")
    (workspace.runs / ".hidden").mkdir()
    shown = workspace._repr_html_()
    assert str(workspace.root) in shown
    assert "cats" in shown
    assert ".hidden" not in shown
    assert Run.all(workspace) == []
    assert "no samples yet" in Samples(workspace)._repr_html_()
