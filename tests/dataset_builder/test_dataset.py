"""The dataset as its three faces use it, and what it shows of itself in a notebook."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from workbench import Run, Samples
from workbench.clips import media
from workbench.clips.frame_plan import Shape
from workbench.clips.records import Clip, write_clips
from workbench.dataset_builder import Dataset
from workbench.errors import ConfigError, DataError
from workbench.workspace import Workspace

SHAPE = Shape(frames=9, height=32, width=48, fps=4)


def test_what_a_dataset_says_of_itself(workspace: Workspace, dataset: Dataset) -> None:
    assert [found.name for found in Dataset.all(workspace)] == ["squares"]
    assert dataset.info.title == "Squares"
    assert [clip.source for clip in dataset.clips] == [f"{number}.mp4" for number in range(6)]
    assert list(dataset.captions.values())[0] == "zwx a red square moving right, 0"
    assert dataset.summary.sentence == "6 clips, 13.0 s, 64x64"
    assert (dataset.summary.sizes, dataset.summary.fps) == ({"64x64": 6}, {8.0: 6})
    assert not dataset.task("import").status.state.alive


def test_captions_and_trigger_word_are_on_disk_at_once(workspace: Workspace, dataset: Dataset) -> None:
    clip = dataset.clips[2]
    dataset.set_caption(Path(clip.file_name).stem, "  a Zwx\nball ")
    dataset.set_trigger_word("zwx2")
    again = Dataset.open(workspace, "squares")
    assert again.clip(clip.file_name).text == "a Zwx ball"
    assert again.captions[clip.file_name] == "zwx2 a Zwx ball"
    with pytest.raises(ConfigError, match="there is no clip 'clips/nothing.mp4'"):
        dataset.set_caption("clips/nothing.mp4", "")


def test_removed_clips_can_be_brought_back(dataset: Dataset) -> None:
    clip = dataset.clips[0]
    dataset.remove(clip.file_name)
    assert clip not in dataset.clips
    assert dataset.removed == [clip]
    assert not dataset.path_of(clip).exists()
    dataset.restore(clip.file_name)
    assert clip in dataset.clips
    assert dataset.removed == []
    assert dataset.path_of(clip).exists()
    assert (dataset.folder / "thumbs" / f"{Path(clip.file_name).stem}.jpg").exists()


def test_names(workspace: Workspace, dataset: Dataset) -> None:
    assert Dataset.create(workspace, "Squares").name == "squares-2"
    assert Dataset.ensure(workspace, "Squares").folder == dataset.folder
    assert Dataset.ensure(workspace, "Été!").name == "ete"
    with pytest.raises(ConfigError, match="there is no dataset 'cats': choose one of ete, squares, squares-2"):
        Dataset.open(workspace, "cats")
    with pytest.raises(ConfigError, match="cannot be used"):
        Dataset.open(workspace, "../squares")


def test_preview_shows_exactly_what_the_model_sees(dataset: Dataset, tmp_path: Path) -> None:
    clip = dataset.clips[0]
    _, plan = dataset.planned_video(clip, SHAPE, tmp_path / "plan.mp4")
    assert plan == dataset.plans(SHAPE)[0]
    assert plan.sentence == "frames 0 to 16: 9 at 4 fps (2.2 s), 48x32, cut from 48x48"
    shown = media.read_frames(tmp_path / "plan.mp4", range(9))
    seen = media.read_frames(dataset.path_of(clip), plan.indices, plan.resize, plan.crop)
    assert shown.shape == seen.shape == (9, 32, 48, 3)
    assert np.abs(shown.astype(int) - seen).mean() < 5
    assert media.probe(tmp_path / "plan.mp4").fps == 4
    with pytest.raises(DataError, match="is left out: too short"):
        dataset.planned_video(clip, Shape(49, 32, 48, 8), tmp_path / "plan.mp4")


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
