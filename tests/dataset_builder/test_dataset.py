"""A dataset: what it says of itself, its history, its place in the library, and its snapshot."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import numpy as np
import pytest

from tests.shell import Shell
from tests.sounds import pitch, tone
from tests.test_overview import at_work
from tests.written_run import ended, write_run
from workbench import jobs
from workbench.clips import media
from workbench.clips.frame_plan import Shape, shape_for
from workbench.clips.records import Clip, write_clips
from workbench.clips.sound import has_sound, read_sound, write_sound
from workbench.dataset_builder import Dataset
from workbench.dataset_builder import library as dataset_library
from workbench.dataset_builder.ingest import intake
from workbench.dataset_builder.settings import ImportSettings
from workbench.dataset_builder.snapshot import task_snapshot
from workbench.errors import ConfigError, DataError
from workbench.families import find_model
from workbench.jobs import processes
from workbench.runs.checks import check
from workbench.runs.data import load_data
from workbench.runs.settings import TrainSettings
from workbench.workspace import Workspace, write_json
from workbench.workspace.folders import MOST_NOTES

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


def test_preview_has_the_sound_of_its_frames(dataset: Dataset, tmp_path: Path) -> None:
    clip = dataset.clips[0]
    assert not has_sound(dataset.planned_video(clip, SHAPE, tmp_path / "silent.mp4").path)
    write_sound(dataset.path_of(clip), tone(500.0, clip.frames / clip.fps), 16000)
    path, plan = dataset.planned_video(clip, SHAPE, tmp_path / "plan.mp4")
    heard = read_sound(path)
    assert heard.shape[1] / 16000 == pytest.approx(len(plan.indices) / plan.fps, abs=0.06)
    assert pitch(heard[0, 2000:-2000], 16000) == pytest.approx(500, rel=0.02)


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
    for words in ("Duration", "160x90", "16:9", "x$1", "\u732b", "Run a check to measure motion"):
        assert words in shown
    assert "<b>blue" not in shown


def test_a_dataset_shows_its_clips_and_its_history(workspace: Workspace) -> None:
    dataset = Dataset.create(workspace, "Cats & dogs", "c4t")
    write_clips(dataset.folder, [Clip(file_name="clips/a.mp4", text="<i>a</i> cat", source="cat.mov")])
    shown = dataset._repr_html_()
    assert "Cats &amp; dogs" in shown
    assert "trigger word c4t" in shown
    assert "&lt;i&gt;a&lt;/i&gt; cat" in shown
    assert "No changes yet" in dataset.history._repr_html_()
    dataset.set_caption("a", "a dog")
    assert "caption of cat.mov" in dataset.history._repr_html_()


# ---- the library


def files(folder: Path) -> dict[str, bytes]:
    found = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    return {name: path.read_bytes() for name, path in found.items() if path.name != "lock"}


def names(workspace: Workspace) -> list[str]:
    return [one.name for one in Dataset.all(workspace)]


def test_a_renamed_dataset_is_found_by_its_former_names(workspace: Workspace, dataset: Dataset) -> None:
    settings = TrainSettings(dataset="squares", frames=9)
    before = load_data(workspace, settings).lock()
    first = dataset_library.rename(workspace, dataset, "Colored squares")
    again = dataset_library.rename(workspace, first, "Ésquares")
    assert (again.name, again.info.title) == ("esquares", "Ésquares")
    assert names(workspace) == ["esquares"]
    for former in ("squares", "colored-squares"):
        assert Dataset.open(workspace, former).name == "esquares"
    assert load_data(workspace, settings).lock() == before  # what a resumed run compares
    assert Dataset.create(workspace, "Squares").name == "squares-2"  # no run finds other clips under its dataset's name
    with pytest.raises(ConfigError, match="a dataset 'squares-2' already exists"):
        dataset_library.rename(workspace, again, "squares-2")
    with pytest.raises(ConfigError, match="the title is empty"):
        dataset_library.rename(workspace, again, " ")
    back = dataset_library.rename(workspace, again, "squares")
    assert (back.name, Dataset.open(workspace, "esquares").name) == ("squares", "squares")
    assert [one.what for one in back.history if one.kind == "note"][-1] == "renamed to squares"


def test_undoing_a_trigger_word_keeps_the_title(workspace: Workspace, dataset: Dataset) -> None:
    dataset.set_trigger_word("other")
    renamed = dataset_library.rename(workspace, dataset, "New")
    renamed.undo()
    assert (renamed.info.title, renamed.info.trigger_word) == ("New", "zwx")


def test_dropped_files_are_found_after_a_rename(workspace: Workspace, dataset: Dataset) -> None:
    """An import that was stopped can be resumed."""
    upload = dataset.folder / ".import" / "uploads" / "a.mp4"
    settings = ImportSettings(sources=(str(upload), "/elsewhere/b.mp4"), dataset=dataset.name)
    settings.save(dataset.folder / ".import" / jobs.CONFIG)
    renamed = dataset_library.rename(workspace, dataset, "New")
    kept = ImportSettings.load(renamed.folder / ".import" / jobs.CONFIG)
    assert kept.sources == (str(renamed.folder / ".import" / "uploads" / "a.mp4"), "/elsewhere/b.mp4")


def test_a_removed_dataset_comes_back_as_it_was(workspace: Workspace, dataset: Dataset) -> None:
    run = write_run(workspace, "cats", 20)
    run.settings.changed(dataset="squares").save(run.folder / jobs.CONFIG)
    before = files(dataset.folder)
    assert dataset_library.consequence(workspace, dataset).startswith("Trained on it: cats. Their results stay")
    done = dataset_library.remove(workspace, dataset)
    assert done.startswith("squares was removed. To restore it: workbench dataset restore squares. Trained")
    assert names(workspace) == []
    with pytest.raises(ConfigError, match="'squares', which was removed: workbench dataset restore squares"):
        check(workspace, TrainSettings(dataset="squares"))
    Dataset.create(workspace, "Squares")
    with pytest.raises(ConfigError, match="a dataset named 'squares' already exists: remove or rename"):
        dataset_library.restore(workspace, "squares")
    assert "restore squares-2." in dataset_library.remove(workspace, Dataset.open(workspace, "squares"))
    assert dataset_library.removed(workspace) == ["squares-2", "squares"]
    restored = dataset_library.restore(workspace, "squares")
    assert (restored.name, files(restored.folder)) == ("squares", before)
    with pytest.raises(ConfigError, match="no removed dataset 'dogs': choose one of squares-2"):
        dataset_library.restore(workspace, "dogs")


def test_what_is_used_is_neither_renamed_nor_removed(workspace: Workspace, dataset: Dataset) -> None:
    def refused(words: str) -> None:
        with pytest.raises(ConfigError, match=words):
            dataset_library.remove(workspace, dataset)
        with pytest.raises(ConfigError, match=words):
            dataset_library.rename(workspace, dataset, "Other")
        assert names(workspace) == ["squares"]

    task = dataset.folder / ".check"
    write_json(task / jobs.CONFIG, {})
    write_json(task / jobs.PROCESS, {**processes.identity(os.getpid()), "started_at": 1.0})
    refused("has a running task \\(check\\): wait for its end, or stop it")
    ended(task, "finished", 0)
    run = write_run(workspace, "cats", 20)
    run.settings.changed(dataset="none", more_datasets=("squares=2",)).save(run.folder / jobs.CONFIG)
    at_work(run)
    refused("the run cats uses squares: wait for its end, or workbench runs stop cats")
    ended(run.folder, "stopped", 0)
    encoding = workspace.cache / "encoding" / "key" / "host"
    write_json(encoding.parent / "work.json", {"settings": {"dataset": "none", "more_datasets": ["squares=2"]}})
    write_json(encoding / jobs.CONFIG, {})
    write_json(encoding / jobs.PROCESS, {**processes.identity(os.getpid()), "started_at": 1.0})
    refused("squares is being encoded: wait for its end, or create cache/encoding/key/host/control/stop")
    ended(encoding, "stopped", 0)
    with intake.import_lock(dataset.folder):  # by import_files, in a notebook
        refused("another import into squares is running")


def test_datasets_are_searched_by_name_title_trigger_word_and_notes(
    workspace: Workspace, dataset: Dataset, shell: Shell
) -> None:
    other = Dataset.create(workspace, "Dogs at night")
    other.write_notes("too dark\nask Ann")
    assert [one.name for one in dataset_library.search(workspace, "ann DARK")] == ["dogs-at-night"]
    assert [one.name for one in dataset_library.search(workspace, "zwx")] == ["squares"]
    assert len(dataset_library.search(workspace, "")) == 2
    assert "dogs-at-night" not in shell("dataset", "list", "--search", "zwx").out
    assert "no dataset matches" in shell("dataset", "list", "--search", "x y").out
    with pytest.raises(ConfigError, match="shorten them"):
        other.write_notes("x" * (MOST_NOTES + 1))
    seen = other.snapshot()
    assert seen.own_notes == "too dark\nask Ann"
    assert seen.created_at is not None
    assert seen.changed_at is not None
    assert seen.changed_at >= seen.created_at - 1


def test_datasets_of_a_group_stand_together(workspace: Workspace, dataset: Dataset, shell: Shell) -> None:
    cats, dogs = (Dataset.create(workspace, title) for title in ("Cats", "Dogs"))
    Dataset.create(workspace, "Ants")
    dogs.set_group("  for   the film ")
    assert json.loads(shell("dataset", "group", "squares", "art", "--json").out) == {"name": "squares", "group": "art"}
    assert [one.name for one in dataset_library.search(workspace)] == ["squares", "dogs", "ants", "cats"]
    assert [one.name for one in dataset_library.search(workspace, "FILM")] == ["dogs"]
    assert [one.name for one in dataset_library.search(workspace, group="")] == ["ants", "cats"]
    assert dataset_library.groups(Dataset.all(workspace)) == ["art", "for the film"]
    listed = json.loads(shell("dataset", "list", "--json").out)
    assert [one["name"] for one in listed] == ["squares", "dogs", "ants", "cats"]
    assert listed[1]["group"] == "for the film"
    assert json.loads(shell("dataset", "list", "--group", "art", "--json").out) == listed[:1]
    assert json.loads(shell("dataset", "list", "--group", "music", "--json").out) == []
    assert [one["name"] for one in json.loads(shell("dataset", "list", "--group", "", "--json").out)] == [
        "ants",
        "cats",
    ]
    assert dogs.snapshot().group == "for the film"
    assert cats.group == ""
    assert json.loads(shell("dataset", "group", "cats", "--json").out)["group"] == ""
    assert json.loads(shell("dataset", "group", "dogs", "", "--json").out)["group"] == ""
    before = cats.version
    with pytest.raises(ConfigError, match="at most 60 characters"):
        cats.set_group("x" * 61)
    assert cats.version == before


# ---- snapshots


def test_a_dataset_names_its_numbers_and_what_is_to_do(dataset: Dataset) -> None:
    dataset.set_caption(dataset.clips[0].file_name, "")
    found = dataset.snapshot(shape_for(find_model("tiny-cogvideox")[1]))
    assert (found.name, found.trigger_word, found.facts["clips"]) == ("squares", "zwx", "6")
    assert found.facts["without caption"] == "1"
    assert "left out by the model" in found.facts
    assert "left out by the model" not in dataset.snapshot().facts
    assert "1 clip has no caption" in found.next_steps[0]
    assert found.tasks == ()
    assert found.model_dump(mode="json")["summary"]["clips"] == 6


def test_a_task_says_how_it_ended_and_what_may_be_done(dataset: Dataset) -> None:
    task = dataset.task("split")
    assert (task_snapshot(task).sentence, task_snapshot(task).actions) == ("", ())
    write_json(task.folder / jobs.RESULT, {"status": "stopped", "message": "stopped after 2 of 6 clips"})
    stopped = task_snapshot(task)
    assert stopped.sentence == "The task split was stopped; finished work is kept. stopped after 2 of 6 clips"
    assert stopped.actions == ("resume", "dismiss")
    assert [one.name for one in dataset.snapshot().tasks] == ["split"]
    task.dismiss()
    assert (task_snapshot(task).sentence, dataset.snapshot().tasks) == ("", ())


def test_a_task_at_work_shows_one_count(dataset: Dataset) -> None:
    task = dataset.task("check")
    task.folder.mkdir(exist_ok=True)
    write_json(task.folder / jobs.PROCESS, {**processes.identity(os.getpid()), "started_at": time.time() - 60})
    beat = {"phase": "measuring pictures", "step": 30, "total": 90, "time": time.time()}
    write_json(task.folder / jobs.HEARTBEAT, {**beat, "message": "3 of 10 clips"})
    assert task_snapshot(task).activity == "measuring pictures · 3 of 10 clips"
    assert task_snapshot(task).share == pytest.approx(1 / 3)
    write_json(task.folder / jobs.HEARTBEAT, beat)
    assert task_snapshot(task).activity == "measuring pictures · 30 of 90"


def test_an_import_says_what_became_of_each_file_the_refused_first(dataset: Dataset) -> None:
    task = dataset.task("import")
    files = [
        {"name": "a.mp4", "outcome": "taken", "note": ""},
        {"name": "b.mov", "outcome": "converted", "note": "turned upright"},
        {"name": "c.mp4", "outcome": "refused", "note": "empty file"},
        {"name": "d.docx", "outcome": "skipped", "note": "unsupported file type"},
    ]
    counts = {"taken": 3, "converted": 1, "refused": 1, "skipped": 1}
    write_json(task.folder / jobs.RESULT, {"status": "finished", "counts": counts, "files": files})
    found = task_snapshot(task)
    assert found.sentence == "Imported: 3 taken, 1 converted, 1 refused, 1 skipped."
    assert [one.sentence for one in found.files] == [
        "'c.mp4': refused: empty file",
        "'d.docx': skipped: unsupported file type",
        "'b.mov': converted: turned upright",
        "'a.mp4': taken",
    ]
    assert found.details == ("2 more files are not listed here: see the dataset's history.",)


# ---- history


def files_below(dataset: Dataset) -> set[str]:
    return {path.name for path in (dataset.folder / "clips").iterdir()}


def test_undoing_goes_back_step_by_step(dataset: Dataset) -> None:
    before = dataset.clips
    dataset.set_caption(before[0].file_name, "first")
    dataset.remove(before[1].file_name, before[2].file_name)
    dataset.set_trigger_word("qqq")
    for _ in range(3):
        dataset.undo()
    assert dataset.clips == before
    assert dataset.info.trigger_word == "zwx"
    assert files_below(dataset) == {clip.file_name.split("/")[1] for clip in before}
    assert dataset.removed == []
    with pytest.raises(ConfigError, match="nothing to undo"):
        dataset.undo()


def test_a_later_change_is_not_overwritten(dataset: Dataset) -> None:
    clip = dataset.clips[0]
    dataset.set_caption(clip.file_name, "one")
    first = dataset.history[-1].number
    dataset.set_caption(clip.file_name, "two")
    with pytest.raises(ConfigError, match=r"0\.mp4 was changed again since: undo the later change first"):
        dataset.undo(first)
    dataset.undo()
    dataset.undo(first)
    assert dataset.clip(clip.file_name) == clip
    with pytest.raises(ConfigError, match="was already undone"):
        dataset.undo(first)


def test_after_a_new_change_nothing_is_left_to_redo(dataset: Dataset) -> None:
    first, second, *_ = dataset.clips
    dataset.set_caption(first.file_name, "one")
    dataset.undo()
    assert [entry.what for entry in dataset.redoable] == [f"caption of {first.name}"]
    dataset.set_caption(second.file_name, "two")
    assert dataset.redoable == []
    with pytest.raises(ConfigError, match="there is nothing to redo"):
        dataset.redo()
    dataset.undo()
    dataset.redo()
    assert dataset.clip(second.file_name).text == "two"


def test_a_clip_is_followed_through_cuts_and_undoing(dataset: Dataset) -> None:
    clip = dataset.clips[1]
    trimmed = dataset.trim(clip.file_name, 0, 1)
    parts = dataset.split(trimmed.file_name, [(0, 0.5), (0.5, 1)])
    assert dataset.successor(clip.file_name) == dataset.successor(trimmed.file_name) == parts[0]
    dataset.undo()
    assert [dataset.successor(part.file_name) for part in parts] == [trimmed, trimmed]
    dataset.undo()
    assert dataset.successor(parts[1].file_name) == clip
    dataset.redo()
    assert dataset.successor(clip.file_name) == trimmed
    dataset.remove(trimmed.file_name)
    assert dataset.successor(clip.file_name) is None
