"""Task panels at work, on real tasks; datasets, checks and plans as they show themselves."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.patience import PATIENCE
from tests.studio import CLIPS, Studio
from workbench import Dataset
from workbench.clips import media
from workbench.errors import ConfigError
from workbench.jobs import State
from workbench.notebook import clip_cards, preview_table, sample_panel, side_by_side, task_panel, train_panel
from workbench.sampler import vae_reconstruction

pytestmark = pytest.mark.long


def test_files_are_imported_and_what_is_no_video_is_refused(studio: Studio, tmp_path: Path) -> None:
    dataset = Dataset.create(studio.workspace, "Chosen")
    panel = task_panel(studio.workspace, dataset.name, "import")
    panel.start()
    failed = panel.wait(PATIENCE)
    assert (failed.state, panel.lines) == (State.FAILED, [])
    assert "no videos" in failed.message
    (tmp_path / "<i>bad.mp4").write_bytes(b"no video")
    (tmp_path / "good.mp4").write_bytes(min(CLIPS.glob("*.mp4")).read_bytes())
    panel.set(sources=[str(tmp_path)], longest_side=64)
    panel.start()
    assert panel.wait(PATIENCE).state is State.FINISHED
    assert [clip.width for clip in dataset.clips] == [64]
    assert any("1 file refused" in line for line in panel.lines)
    shown = clip_cards(studio.workspace, dataset.name).html()
    assert "1 file was refused" in shown
    assert "<i>" not in shown
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
    with pytest.raises(ConfigError, match="threshold is 200"):
        panel.start()
    panel.set(threshold=None, preview=True)
    panel.start()
    assert panel.wait(PATIENCE).state is State.FINISHED
    assert panel.lines[0] == "1 clip would be cut into 2."
    assert panel.lines[1].startswith("recording.mp4: 2 pieces: 0.00 to ")
    assert len([clip for clip in footage.clips if clip.source == "recording.mp4"]) == 1
    panel.set(preview=False)
    panel.start()
    assert panel.wait(PATIENCE).state is State.FINISHED
    assert panel.lines[0] == "1 clip was cut into 2."
    assert [clip.frames for clip in footage.clips if clip.source == "recording.mp4"] == [18, 18]


def test_a_check_returns_its_findings_which_show_themselves(studio: Studio, footage: Dataset) -> None:
    report = footage.check(captions=False)
    assert "letterbox" in [finding.kind for finding in report.findings]
    shown = report._repr_html_()
    assert "bars.mp4 has black bars" in shown
    assert "Crop the bars" in shown
    lines = task_panel(studio.workspace, footage.name, "check").lines
    assert any("clips checked" in line for line in lines), "a panel made afterwards has the result"
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
    with pytest.raises(ConfigError, match="one of them, not both"):
        panel.start()
    panel.set(target=str(tmp_path / "out"))
    panel.start()
    assert panel.wait(PATIENCE).state is State.FINISHED
    assert str(tmp_path / "out") in panel.lines[0]
    panel.start()
    failed = panel.wait(PATIENCE)
    assert failed.state is State.FAILED
    assert "which is there already" in failed.message


def test_captions_come_from_a_task_whose_failure_is_a_sentence(studio: Studio) -> None:
    panel = task_panel(
        studio.workspace, "rings", "caption", captioner="endpoint", which="all", endpoint_model="eye", retries=0
    )
    with pytest.raises(ConfigError, match="base_url is not set"):
        panel.start()
    assert panel.task.status.state is State.NEW
    panel.set(base_url="http://localhost:9/v1")
    panel.start()
    failed = panel.wait(PATIENCE)
    assert failed.state is State.FAILED
    assert "cannot be reached" in failed.message


def test_a_run_to_its_end_and_its_lora_beside_the_base_model(studio: Studio) -> None:
    panel = train_panel(studio.workspace, studio.settings)
    run = panel.start()
    assert panel.wait(PATIENCE).state is State.FINISHED
    shown = re.findall(r"id=&quot;previews/step-\d+/(?:control-)?\d\.mp4", preview_table(run).data)
    assert len(shown) == 4, "the base model and the end, of the prompt and of a control"

    samples = sample_panel(studio.workspace, model=studio.settings.model, prompt="a ring", steps=2, loras=[run.name])
    samples.generate_with_and_without()
    base, tuned = samples.wait(PATIENCE)
    assert base.settings.loras == ()
    assert tuned.settings.loras == (run.name,)
    assert base.settings.seed == tuned.settings.seed
    assert side_by_side([base, tuned]).data.count("<video") == 2

    samples.set(steps=1000, loras=[])
    samples.generate()
    again = sample_panel(studio.workspace)
    assert again.ids == samples.ids, "a panel made after a restart knows what is under way"
    again.cancel()
    assert samples.wait(PATIENCE) == []
