"""The notebook's dataset panels at work: their buttons pressed, on real tasks."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.patience import PATIENCE, until
from tests.studio import CLIPS, Studio
from workbench import Dataset
from workbench.clips import media
from workbench.dataset_builder.cuts.splitting import SplitTask
from workbench.jobs import State
from workbench.notebook import (
    caption_panel,
    check_panel,
    cut_panel,
    dataset_panel,
    export_panel,
    model_view_panel,
    split_panel,
)

pytestmark = pytest.mark.long


def test_clips_are_shown_captioned_and_planned(studio: Studio) -> None:
    panel = dataset_panel(studio.workspace, "rings", studio.settings)
    dataset = Dataset.open(studio.workspace, "rings")
    assert len(panel.cards.grid.children) == 5
    assert panel.results.value.count("taken") == 5
    assert "5 clips" in panel.summary.value
    picture, caption, plan, mark, take_out = panel.cards.grid.children[0].children
    assert not mark.value
    assert "<video" in picture.value
    assert "16x16" in plan.value
    caption.value = " a ring, seen <b>here</b> "
    assert dataset.clips[0].text == "a ring, seen <b>here</b>"
    panel.trigger.value = "r1ng"
    assert dataset.info.trigger_word == "r1ng"
    assert "trigger word r1ng" in panel.undo_button.description
    panel.undo_button.click()
    assert panel.trigger.value == dataset.info.trigger_word == ""
    assert not panel.redo_button.layout.display
    panel.redo_button.click()
    assert panel.trigger.value == dataset.info.trigger_word == "r1ng"
    panel.tools.find.value, panel.tools.put.value = "ring", "<hoop>"
    panel.tools.preview_button.click()
    assert "a &lt;hoop&gt;, seen" in panel.tools.would.value
    panel.tools.replace_button.click()
    assert "1 captions changed" in panel.tools.said.value
    assert "<hoop>" in panel.cards.grid.children[0].children[1].value
    take_out = panel.cards.grid.children[0].children[-1]
    take_out.click()
    assert len(dataset.clips) == len(panel.cards.grid.children) == 4
    panel.undo_button.click()
    assert len(dataset.clips) == len(panel.cards.grid.children) == 5
    panel.close()
    assert not panel.ticker.running


def test_single_clips_are_marked_changed_and_brought_back(studio: Studio) -> None:
    panel = dataset_panel(studio.workspace, "rings", studio.settings)
    dataset = Dataset.open(studio.workspace, "rings")
    before = dataset.clips
    assert panel.cards.selection.layout.display == "none"
    panel.cards.buttons["Tag"].click()
    assert "no clip is marked" in panel.cards.said.value
    for card in panel.cards.grid.children[1:3]:
        card.children[-2].value = True
    assert "2 clips are marked" in panel.cards.count.value
    panel.cards.tag_field.value = "night"
    panel.cards.buttons["Tag"].click()
    panel.tools.text.value = "film of"
    panel.tools.edit_buttons["Put in front"].click()
    assert [clip.tags for clip in dataset.clips[:4]] == [(), ("night",), ("night",), ()]
    assert [clip.text.startswith("film of") for clip in dataset.clips[:4]] == [False, True, True, False]
    panel.cards.buttons["Take out"].click()
    assert len(dataset.clips) == len(panel.cards.grid.children) == 3
    assert panel.cards.selection.layout.display == "none"
    panel.past.removed.value = [before[2].file_name]
    panel.past.restore_button.click()
    assert len(dataset.clips) == 4
    while dataset.clips != before:
        panel.past.change.value = panel.past.change.options[0][1]
        panel.past.undo_button.click()
        assert "Undone" in panel.past.said.value
    panel.close()


def test_what_another_face_does_shows_up_by_itself(studio: Studio) -> None:
    dataset = Dataset.open(studio.workspace, "rings")
    clip = dataset.clips[0]
    panel = dataset_panel(studio.workspace, "rings", studio.settings)
    writer = caption_panel(studio.workspace, "rings")
    cutter = split_panel(studio.workspace, "rings")
    table = cut_panel(studio.workspace, "rings", clip.id)
    dataset.set_caption(clip.id, "written in a browser")
    dataset.set_trigger_word("els3where")
    until(lambda: "written in a browser" in panel.cards.grid.children[0].children[1].value)
    until(lambda: panel.trigger.value == "els3where")
    until(lambda: "written in a browser" in writer.clips.options[0][0])
    part = dataset.trim(clip.id, 0, 1)
    until(lambda: part.file_name in [value for _, value in table.clip.options])
    dataset.task("split").start(SplitTask(preview=True))  # in the shell, say
    until(lambda: "would be cut into" in cutter.line.said.value)
    for _ in range(3):
        dataset.undo()
    assert dataset.clips[0] == clip
    until(lambda: panel.trigger.value == dataset.info.trigger_word)
    writer.some_button.click()
    assert "no clip is chosen" in writer.said.value
    for each in (panel, writer, cutter, table):
        each.close()
        assert not each.ticker.running


def test_chosen_files_are_imported_and_what_is_no_video_is_refused(studio: Studio) -> None:
    panel = dataset_panel(studio.workspace)
    panel.import_button.click()
    assert "no videos are named" in panel.said.value
    panel.paths.value = "/nowhere/clips"
    panel.import_button.click()
    assert "there is no &#x27;/nowhere/clips&#x27;" in panel.said.value
    panel.paths.value, panel.name.value = "", "Chosen"
    good = min(CLIPS.glob("*.mp4")).read_bytes()
    files = [("../up.mp4", good), ("<i>bad</i>.mp4", b"no video")]
    panel.upload.value = [
        {"name": name, "type": "video/mp4", "size": len(data), "content": memoryview(data), "last_modified": _now()}
        for name, data in files
    ]
    panel.import_button.click()
    panel.wait(PATIENCE)
    assert panel.dataset is not None
    assert panel.dataset.name == "chosen"
    assert [result.usable for result in panel.dataset.import_results] in ([True, False], [False, True])
    assert "refused" in panel.results.value
    assert "<i>" not in panel.results.value
    panel.close()


def test_a_look_comes_before_an_import_and_an_import_as_the_fields_say(studio: Studio) -> None:
    panel = dataset_panel(studio.workspace)
    panel.paths.value = str(CLIPS)
    panel.look_button.click()
    assert "A .txt file beside each video" in panel.found.value
    panel.layout.value = "labels"
    panel.look_button.click()
    assert "nothing here has the layout" in panel.said.value
    panel.layout.value, panel.longest.value, panel.name.value = "auto", "wide", "Small"
    panel.paths.value = str(min(CLIPS.glob("*.mp4")))
    panel.import_button.click()
    assert "longest_side is &quot;wide&quot;" in panel.said.value
    panel.longest.value = "64"
    panel.import_button.click()
    assert panel.wait(PATIENCE).state is State.FINISHED
    assert panel.dataset is not None
    assert [clip.width for clip in panel.dataset.clips] == [64]
    assert "The import is done." in panel.line.said.value
    panel.close()


@pytest.fixture(scope="module")
def footage(studio: Studio, tmp_path_factory: pytest.TempPathFactory) -> Dataset:
    """A source video of two shots, one of them seen again, and a picture with bars."""
    folder = tmp_path_factory.mktemp("footage")
    one, two = (
        np.stack([picture for _, picture in media.decode(path)]) for path in sorted(CLIPS.glob("*.mp4"))[2:10:6]
    )
    media.encode(np.concatenate([one, one[::-1], two, two[::-1]]), folder / "recording.mp4", 8)
    media.encode(np.pad(two, ((0, 0), (24, 24), (0, 0), (0, 0))), folder / "bars.mp4", 8)
    dataset = Dataset.create(studio.workspace, "footage")
    dataset.import_files([folder])
    return dataset


def test_clips_are_cut_by_hand_and_all_at_once(studio: Studio, footage: Dataset) -> None:
    long = next(clip for clip in footage.clips if clip.source == "recording.mp4")
    table = cut_panel(studio.workspace, footage.name, long.id)
    assert table.span.value == (0.0, 4.5)
    table.buttons["Find the cuts"].click()
    assert table.marks == [18]
    assert 'left:50.00%"' in table.strip.value
    table.span.value = (0.5, 2.0)
    table.buttons["Keep this part"].click()
    assert footage.clip(table.clip.value).seconds == 1.5
    table.box_field.value = "16, 16, 96"
    table.buttons["Crop"].click()
    assert "must be four whole numbers" in table.said.value
    table.box_field.value = "16, 16, 96, 96"
    table.buttons["Crop"].click()
    assert footage.clip(table.clip.value).width == 96
    table.buttons["Undo"].click()
    assert footage.clip(table.clip.value).width == 160
    table.fps_field.value = "fast"
    table.buttons["Leave frames out"].click()
    assert "must be a number such as 12" in table.said.value
    table.fps_field.value = "4"
    table.buttons["Leave frames out"].click()
    assert (footage.clip(table.clip.value).fps, footage.clip(table.clip.value).seconds) == (4, 1.5)
    table.fps_field.value = ""
    table.buttons["Leave frames out"].click()
    assert footage.clip(table.clip.value).fps == 8
    table.buttons["Reset the cut"].click()
    assert table.clip.value == long.file_name
    table.close()

    cutter = split_panel(studio.workspace, footage.name, clips=[long.id], threshold=200.0)
    cutter.start_button.click()
    assert "threshold is 200" in cutter.said.value
    cutter.form.set({"threshold": None})
    cutter.look_button.click()
    until(lambda: "1 clip would be cut into 2." in cutter.line.said.value and "2 pieces" in cutter.would.value)
    assert len([clip for clip in footage.clips if clip.source == "recording.mp4"]) == 1
    assert cutter.look() == ["recording.mp4: 2 pieces"]
    cutter.start_button.click()
    assert cutter.wait(PATIENCE).state is State.FINISHED
    assert "1 clip was cut into 2." in cutter.line.said.value
    assert [clip.frames for clip in footage.clips if clip.source == "recording.mp4"] == [18, 18]
    cutter.close()


def test_findings_have_pictures_and_buttons_that_fix(studio: Studio, footage: Dataset) -> None:
    bars = "bars.mp4 has black bars"
    checker = check_panel(studio.workspace, footage.name, captions=False)
    checker.start_button.click()
    assert checker.wait(PATIENCE).state is State.FINISHED
    assert footage.report is not None
    assert "letterbox" in [finding.kind for finding in footage.report.findings]
    text, crop, *_ = next(row.children for row in checker.found.children[1:] if bars in row.children[0].value)
    assert "<img" in text.value
    assert crop.description == "Crop the bars"
    crop.click()
    assert checker.wait_fix(PATIENCE).state is State.FINISHED
    assert "Cropped the bars of 1 clip" in checker.fixing.said.value
    assert [clip.height for clip in footage.clips if clip.source == "bars.mp4"] == [160]
    assert not [row for row in checker.found.children[1:] if bars in row.children[0].value]
    checker.close()


def test_the_model_s_frames_and_what_its_vae_gives_back_are_played(studio: Studio) -> None:
    sees = model_view_panel(studio.workspace, "rings", studio.settings.model)
    sees.play_button.click()
    assert "Exactly what the model sees" in sees.seen.value
    assert "<video" in sees.seen.value
    sees.frames.value = "10"
    assert "frames" in sees.said.value
    sees.frames.value = ""
    assert sees.said.value == ""
    sees.back_button.click()
    found = sees.wait(PATIENCE)
    assert found.psnr is not None
    assert f"{found.psnr:.1f} dB" in sees.vae.value
    assert "5 of 5 clips are used" in sees.plans.value
    assert "of the footage is kept" in sees.buckets.value
    sees.close()


def test_an_export_says_where_it_is_and_refuses_what_is_there(studio: Studio, tmp_path: Path) -> None:
    panel = export_panel(studio.workspace, "rings", layout="lists")
    panel.start_button.click()
    assert "one of them, not both" in panel.said.value
    panel.form.set({"target": str(tmp_path / "out")})
    panel.start_button.click()
    assert panel.wait(PATIENCE).state is State.FINISHED
    assert str(tmp_path / "out") in panel.line.said.value
    panel.start_button.click()
    assert panel.wait(PATIENCE).state is State.FAILED
    assert "which is there already" in panel.line.said.value
    panel.close()


def test_captions_come_from_a_job_whose_failure_is_a_sentence(studio: Studio) -> None:
    panel = caption_panel(studio.workspace, "rings", captioner="endpoint", which="all", endpoint_model="eye", retries=0)
    panel.start_button.click()
    assert "base_url is not set" in panel.said.value
    assert panel.task.status.state is State.NEW
    panel.form.set({"base_url": "http://localhost:9/v1"})
    panel.start_button.click()
    assert panel.wait(PATIENCE).state is State.FAILED
    assert "cannot be reached" in panel.line.said.value
    assert not panel.line.go_on_button.layout.display
    panel.close()


def _now() -> object:
    from datetime import UTC, datetime

    return datetime.now(UTC)
