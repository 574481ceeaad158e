"""Operations behind the dataset pages and Home: pages of clips, one clip, uploads, checks, open tasks."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.dataset_builder.small import write_dataset
from tests.operations.conftest import Call
from tests.patience import PATIENCE
from tests.written_run import write_run
from workbench import demo, jobs
from workbench.dataset_builder import Dataset
from workbench.dataset_builder.tasks import Name as TaskName
from workbench.errors import ConfigError, DataError, Unknown
from workbench.workspace import Workspace, named_paths


@pytest.fixture
def small(workspace: Workspace) -> Dataset:
    return Dataset(write_dataset(workspace.datasets / "small", ("a red square", "", "a blue square", "", "a cat")))


def finished(dataset: Dataset, task: TaskName) -> None:
    assert dataset.task(task).wait(PATIENCE).state is jobs.State.FINISHED


def test_clips_come_in_pages_with_what_filters_find(call: Call, small: Dataset) -> None:
    page = call("clips/cards", name="small", most=2)
    assert (len(page["clips"]), page["found"], page["all"], page["missing"]) == (2, 5, 5, 3)
    assert page["filters"]["missing"] == {"title": "Without a caption", "clips": 2}
    assert Path(page["clips"][0]["file"]).exists()
    found = call("clips/cards", name="small", search="SQUARE", order="caption", ids=True)
    assert [one["caption"] for one in found["clips"]] == ["a red square", "a blue square"]
    assert found["ids"] == [one["id"] for one in found["clips"]]
    assert call("clips/cards", name="small", most=2, first=99)["first"] == 4  # the last page


def test_a_clip_knows_its_neighbors_and_what_a_model_gets(call: Call, small: Dataset) -> None:
    ids = [clip.id for clip in small.clips]
    seen = call("clips/view", name="small", clip=ids[1], model="tiny-cogvideox")
    places = [seen[name] for name in ("number", "of", "previous", "next", "missing")]
    assert places == [2, 5, ids[0], ids[2], ids[3]]
    assert seen["plan"]
    with pytest.raises(Unknown):
        call("clips/view", name="small", clip="nothing")


def test_a_clip_is_cut_from_its_source_and_found_by_its_former_id(call: Call, small: Dataset) -> None:
    clip = small.clips[4]
    source = call("clips/source", name="small", clip=clip.id)
    assert (source["frames"], source["start"], source["end"], source["crop"]) == (6, 0, 6, None)
    assert Path(source["strip"]).exists()
    made = call("clips/recut", name="small", clip=clip.id, start=1, end=5, crop=[0, 0, 16, 32])
    assert (made["frames"], made["width"], made["height"]) == (4, 16, 32)
    assert call("clips/view", name="small", clip=clip.id)["id"] == made["id"]
    assert call("clips/source", name="small", clip=made["id"])["start"] == 1
    assert call("clips/recut", name="small", clip=made["id"], start=1, end=5, crop=[0, 0, 16, 32])["id"] == made["id"]
    assert [one["undoable"] for one in call("datasets/history", name="small")] == [True]
    assert call("clips/find-cuts", name="small", clip=made["id"])["seconds"] == []


def test_uploads_are_imported_kept_and_taken_back(
    call: Call, workspace: Workspace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploads = tmp_path / "uploads"
    uploads.mkdir()
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(uploads))
    film = next((demo.DEMO_CLIPS / demo.concept()).glob("*.mp4"))
    shutil.copy(film, uploads / "walk.mp4")
    (uploads / "walk.txt").write_text("it walks")
    (uploads / "notes.pdf").write_text("no video")
    with pytest.raises(ConfigError, match="leads outside"):
        call("datasets/take", name="", files=[str(film)])
    with pytest.raises(DataError, match="captions without videos"):
        call("datasets/take", name="", files=[str(uploads / "walk.txt")])
    assert call("datasets/cards") == []
    task = call("datasets/take", name="", title="Walks", files=[str(one) for one in sorted(uploads.iterdir())])
    dataset = Dataset.open(workspace, task["dataset"])
    finished(dataset, "import")
    about = call("datasets/about", name="walks")
    (done,) = about["tasks"]
    assert (done["counts"], done["new"]) == ({"taken": 1, "refused": 1}, 1)
    assert (about["cover"], about["width"]) == (str(dataset.path_of(dataset.clips[0])), 160)
    assert not (uploads / "walk.mp4").exists()  # kept by the dataset
    assert call("datasets/undo-import", name="walks")["undoable"] is False
    assert dataset.clips == []
    with pytest.raises(ConfigError, match="nothing to undo"):
        call("datasets/undo-import", name="walks")
    dataset.undo()
    assert len(dataset.clips) == 1


def test_checks_say_what_each_fix_would_do(call: Call, small: Dataset) -> None:
    assert call("datasets/checks", name="small")["new_clips"] == 5
    call("datasets/check", name="small", pictures=False)
    finished(small, "check")
    seen = call("datasets/checks", name="small")
    kind = next(one for one in seen["kinds"] if one["kind"] == "no_caption")
    assert (seen["new_clips"], kind["count"], len(kind["findings"])) == (0, 2, 2)
    assert {"fix": "remove", "label": "Remove", "does": "Remove 2 clips.", "seconds": 0.0} in kind["fixes"]
    assert call("datasets/dismiss", name="small", task="check")["sentence"] == ""


def test_a_dataset_is_made_and_written_to_be_downloaded(call: Call, small: Dataset) -> None:
    assert call("datasets/create", title="Night walks")["name"] == "night-walks"
    assert {one["name"] for one in call("datasets/cards")} == {"small", "night-walks"}
    call("datasets/download", name="small")
    finished(small, "export")
    about = call("datasets/about", name="small", model="tiny-cogvideox", frames=9)
    assert Path(about["download"]).stat().st_size == about["download_bytes"]
    assert (about["left_out"], about["problem"]) == (5, "")
    assert "frames" in call("datasets/about", name="small", model="tiny-cogvideox", frames=6)["problem"]
    assert {one["id"] for one in call("clips/list-captioners")} == {"vision_language", "endpoint"}


def test_folders_of_this_machine_can_be_looked_through(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "open" / "films").mkdir(parents=True)
    (tmp_path / "open" / "a.mp4").touch()
    (tmp_path / "open" / ".hidden").touch()
    monkeypatch.setattr(named_paths, "_roots", [tmp_path / "open"])
    seen = call("datasets/browse")
    assert seen == {"path": f"{tmp_path}/open", "parent": "", "folders": ["films"], "files": ["a.mp4"], "more": 0}
    assert call("datasets/browse", folder=str(tmp_path / "open" / "films"))["parent"] == str(tmp_path / "open")
    with pytest.raises(ConfigError):
        call("datasets/browse", folder=str(tmp_path))


def test_what_waits_for_somebody_has_one_thing_to_do(call: Call, workspace: Workspace, small: Dataset) -> None:
    write_run(workspace, "cats")
    lines = {one["name"]: one for one in call("home/now")["entries"]}
    assert (lines["cats"]["label"], lines["cats"]["address"]) == ("Sample it", ["sample"])
    assert lines["small"]["label"] == "Write captions"
    assert lines["small"]["address"] == ["dataset", "small", "clip", small.clips[1].id]


def test_a_first_visit_sees_a_run_that_happened(call: Call) -> None:
    assert call("home/now") == {"entries": [], "samples": [], "first": True}
    example = call("home/example")
    assert example["previews"][0][0] == 0
    assert all(Path(one).exists() for one in (example["clip"], *(file for _, file in example["previews"])))
    seen = call("home/demo")
    assert (seen["clips"], seen["run"], seen["seconds"] > 10) == (88, "", True)
