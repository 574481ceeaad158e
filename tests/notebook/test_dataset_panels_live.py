"""Clip cards and task panels at work: their buttons pressed, on real tasks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.patience import PATIENCE, until
from tests.studio import CLIPS, Studio
from workbench import Dataset
from workbench.clips import media
from workbench.dataset_builder.settings import SplitTask
from workbench.errors import ConfigError
from workbench.jobs import State
from workbench.notebook import clip_cards, task_panel
from workbench.sampler import vae_reconstruction

pytestmark = pytest.mark.long


def test_clips_are_shown_captioned_and_planned(studio: Studio) -> None:
    panel = clip_cards(studio.workspace, "rings", studio.settings)
    dataset = Dataset.open(studio.workspace, "rings")
    assert len(panel.grid.children) == 5
    assert "5 clips" in panel.summary.value
    shown, caption, plan, remove = panel.grid.children[0].children
    assert "<video" in shown.value
    assert "16x16" in plan.value
    caption.value = " a ring, seen <b>here</b> "
    assert dataset.clips[0].text == "a ring, seen <b>here</b>"
    assert "a ring, seen &lt;b&gt;here" in dataset._repr_html_()
    remove.click()
    assert len(dataset.clips) == len(panel.grid.children) == 4
    dataset.undo()
    until(lambda: len(panel.grid.children) == 5)
    panel.close()
    assert not panel.ticker.running


def test_what_another_face_does_shows_up_by_itself(studio: Studio) -> None:
    dataset = Dataset.open(studio.workspace, "rings")
    cards = clip_cards(studio.workspace, "rings", studio.settings)
    splitter = task_panel(studio.workspace, "rings", "split")
    dataset.set_caption(dataset.clips[0].id, "written in a browser")
    until(lambda: "written in a browser" in cards.grid.children[0].children[1].value)
    dataset.task("split").start(SplitTask(preview=True))  # in the shell, say
    until(lambda: "would be cut into" in splitter.result.value)
    dataset.undo()
    for each in (cards, splitter):
        each.close()
        assert not each.ticker.running


def test_files_are_imported_and_what_is_no_video_is_refused(studio: Studio, tmp_path: Path) -> None:
    dataset = Dataset.create(studio.workspace, "Chosen")
    panel = task_panel(studio.workspace, dataset.name, "import")
    panel.start_button.click()
    assert panel.wait(PATIENCE).state is State.FAILED
    assert "no videos" in panel.result.value
    (tmp_path / "<i>bad.mp4").write_bytes(b"no video")
    (tmp_path / "good.mp4").write_bytes(min(CLIPS.glob("*.mp4")).read_bytes())
    panel.form.set({"sources": [str(tmp_path)], "longest_side": 64})
    panel.start_button.click()
    assert panel.wait(PATIENCE).state is State.FINISHED
    assert [clip.width for clip in dataset.clips] == [64]
    assert "1 file refused" in panel.result.value
    assert "<i>" not in panel.result.value
    assert "1 file was refused" in dataset._repr_html_()
    panel.close()
    with pytest.raises(ConfigError, match="no panel for the task 'shave'"):
        task_panel(studio.workspace, dataset.name, "shave")  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def footage(studio: Studio, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """A source video of two shots, one of them seen again, and a clip with black bars."""
    folder = tmp_path_factory.mktemp("footage")
    one, two = (
        np.stack([picture for _, picture in media.decode(path)]) for path in sorted(CLIPS.glob("*.mp4"))[2:10:6]
    )
    media.encode(np.concatenate([one, one[::-1], two, two[::-1]]), folder / "recording.mp4", 8)
    media.encode(np.pad(two, ((0, 0), (24, 24), (0, 0), (0, 0))), folder / "bars.mp4", 8)
    dataset = Dataset.create(studio.workspace, "footage")
    dataset.import_files([folder])
    return dataset


def test_clips_are_split_after_a_preview(studio: Studio, footage: Dataset) -> None:
    recording = next(clip for clip in footage.clips if clip.source == "recording.mp4")
    panel = task_panel(studio.workspace, footage.name, "split", clips=[recording.id], threshold=200.0)
    panel.start_button.click()
    assert "threshold is 200" in panel.message.value
    panel.form.set({"threshold": None, "preview": True})
    panel.start_button.click()
    assert panel.wait(PATIENCE).state is State.FINISHED
    assert panel.lines[0] == "1 clip would be cut into 2."
    assert panel.lines[1].startswith("recording.mp4: 2 pieces: 0.00 to ")
    assert len([clip for clip in footage.clips if clip.source == "recording.mp4"]) == 1
    panel.form.set({"preview": False})
    panel.start_button.click()
    assert panel.wait(PATIENCE).state is State.FINISHED
    assert "1 clip was cut into 2." in panel.result.value
    assert [clip.frames for clip in footage.clips if clip.source == "recording.mp4"] == [18, 18]
    panel.close()


def test_a_check_returns_its_findings_which_show_themselves(studio: Studio, footage: Dataset) -> None:
    report = footage.check(captions=False)
    assert "letterbox" in [finding.kind for finding in report.findings]
    shown = report._repr_html_()
    assert "bars.mp4 has black bars" in shown
    assert "Crop the bars" in shown
    panel = task_panel(studio.workspace, footage.name, "check")
    assert "clips checked" in panel.result.value, "a panel made afterwards shows the result"
    panel.close()
    with pytest.raises(ConfigError, match="did you mean captions"):
        footage.check(captoins=False)


def test_a_clip_is_seen_as_a_model_gets_it_and_as_its_vae_gives_it_back(studio: Studio) -> None:
    dataset = Dataset.open(studio.workspace, "rings")
    clip, model = dataset.clips[0], studio.settings.model
    view = dataset.view_as_model(clip.id, model)
    assert "What the model gets: frames" in view._repr_html_()
    assert "<video" in view._repr_html_()
    with pytest.raises(ConfigError, match="frames"):
        dataset.view_as_model(clip.id, model, frames=10)
    table = dataset.plan_table(model)
    assert "5 of 5 clips are used" in table._repr_html_()
    assert "of the footage is kept" in table._repr_html_()
    found = vae_reconstruction.request(studio.workspace, dataset.folder, clip, model, table.shape).wait(PATIENCE)
    assert found.psnr is not None
    assert f"{found.psnr:.1f} dB" in found._repr_html_()


def test_an_export_names_its_target_and_refuses_an_existing_one(studio: Studio, tmp_path: Path) -> None:
    panel = task_panel(studio.workspace, "rings", "export", layout="lists")
    panel.start_button.click()
    assert "one of them, not both" in panel.message.value
    panel.form.set({"target": str(tmp_path / "out")})
    panel.start_button.click()
    assert panel.wait(PATIENCE).state is State.FINISHED
    assert str(tmp_path / "out") in panel.result.value
    panel.start_button.click()
    assert panel.wait(PATIENCE).state is State.FAILED
    assert "which is there already" in panel.result.value
    panel.close()


def test_captions_come_from_a_task_whose_failure_is_a_sentence(studio: Studio) -> None:
    panel = task_panel(
        studio.workspace, "rings", "caption", captioner="endpoint", which="all", endpoint_model="eye", retries=0
    )
    panel.start_button.click()
    assert "base_url is not set" in panel.message.value
    assert panel.task.status.state is State.NEW
    panel.form.set({"base_url": "http://localhost:9/v1"})
    panel.start_button.click()
    assert panel.wait(PATIENCE).state is State.FAILED
    assert "cannot be reached" in panel.result.value
    assert not panel.resume_button.layout.display
    panel.close()
