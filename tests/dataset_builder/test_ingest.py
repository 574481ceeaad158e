"""An import as a whole: one bad file costs only itself, what is done stays done, people's captions win."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from tests.dataset_builder.foreign import write_video
from tests.drawing import MakeClip, draw
from workbench import jobs
from workbench.clips import Clip
from workbench.dataset_builder import Dataset, ImportSettings, Verdict, ingest
from workbench.dataset_builder.verdicts import append_verdict, read_verdicts
from workbench.errors import CannotWrite, DataError, ExitCode
from workbench.workspace import Workspace


def texts(dataset: Dataset) -> dict[str, str]:
    return {clip.source: clip.text for clip in dataset.clips}


def test_a_file_that_brings_its_reader_down_costs_only_itself(
    workspace: Workspace, tmp_path: Path, make_clip: MakeClip, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = tmp_path / "given"
    for number, name in enumerate(("a", "crash", "spin", "sleep", "memory", "surprise", "slow", "z")):
        make_clip(given / f"{name}.mp4", 4 + number)
    monkeypatch.setattr(ingest, "WORKER", "tests.dataset_builder.fragile_worker")
    monkeypatch.setattr(ingest, "SECONDS_PER_FRAME", 2.0)
    monkeypatch.setattr(ingest, "WAITING", 6.0)
    dataset = Dataset.create(workspace, "Fragile")
    found = {Path(v.source).stem: v for v in dataset.import_files([given])}
    assert {name: verdict.outcome for name, verdict in found.items() if verdict.usable} == dict.fromkeys(
        ("a", "slow", "z"), "taken"
    )
    assert "brought the decoder down" in found["crash"].notes[0]
    assert "no frame came within 2 s" in found["spin"].notes[0]
    assert "no frame came within 2 s" in found["sleep"].notes[0]
    assert "more memory" in found["memory"].notes[0]
    assert "KeyError" in found["surprise"].notes[0]
    assert [clip.source for clip in dataset.clips] == ["a.mp4", "slow.mp4", "z.mp4"]


def test_importing_again_keeps_captions_and_adds_what_is_new(
    workspace: Workspace, tmp_path: Path, make_clip: MakeClip
) -> None:
    given = tmp_path / "given"
    for name, colour in (("a", "red"), ("b", "green"), ("c", "blue")):
        make_clip(given / f"{name}.mp4", 4, colour=colour)
    (given / "a.txt").write_text("a red square")
    dataset = Dataset.create(workspace, "Squares")
    dataset.import_files([given])
    assert texts(dataset) == {"a.mp4": "a red square", "b.mp4": "", "c.mp4": ""}
    dataset.set_caption(dataset.clips[0].file_name, "edited by hand")
    (given / "a.txt").write_text("another text")
    (given / "b.txt").write_text("a green square")
    make_clip(given / "d.mp4", 4, colour="yellow")
    (given / "e.mp4").write_bytes((given / "a.mp4").read_bytes())
    outcomes = [verdict.outcome for verdict in dataset.import_files([given])]
    assert outcomes == ["known", "known", "known", "taken", "known"]
    assert texts(dataset) == {"a.mp4": "edited by hand", "b.mp4": "a green square", "c.mp4": "", "d.mp4": ""}
    kept = {Path(verdict.source).name: verdict.outcome for verdict in dataset.verdicts}
    assert kept == {"a.mp4": "taken", "b.mp4": "taken", "c.mp4": "taken", "d.mp4": "taken", "e.mp4": "known"}


def test_nothing_usable_says_why(workspace: Workspace, tmp_path: Path) -> None:
    dataset = Dataset.create(workspace, "Nothing")
    (tmp_path / "page.mp4").write_text("<html>")
    with pytest.raises(DataError, match="none of the 1 files can be used: 'page.mp4': refused: looks like a web page"):
        dataset.import_files([tmp_path / "page.mp4"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no video files in .*empty: give mp4"):
        dataset.import_files([tmp_path / "empty"])
    with pytest.raises(DataError, match="No such file"):
        dataset.import_files([tmp_path / "missing.mp4"])


def test_full_disk_ends_the_import_with_its_reason(workspace: Workspace, tmp_path: Path, make_clip: MakeClip) -> None:
    dataset = Dataset.create(workspace, "Full")
    (dataset.folder / "clips").write_text("in the way")
    with pytest.raises(CannotWrite, match="cannot write"):
        dataset.import_files([make_clip(tmp_path / "a.mp4")])


def test_a_torn_last_line_is_passed_over(tmp_path: Path) -> None:
    append_verdict(tmp_path, Verdict(source="/a.mp4", outcome="taken"))
    with (tmp_path / "sources.jsonl").open("a") as file:
        file.write('{"source": "/b.m')
    append_verdict(tmp_path, Verdict(source="/c.mp4", outcome="refused", notes=("empty file",)))
    assert [verdict.source for verdict in read_verdicts(tmp_path)] == ["/a.mp4", "/c.mp4"]


def many(folder: Path, count: int) -> Path:
    """Clips that each take a moment to mend."""
    folder.mkdir()
    for number in range(count):
        write_video(folder / f"{number:02}.mkv", draw(8 + number, (160, 96)), options={"preset": "ultrafast"})
        (folder / f"{number:02}.txt").write_text(f"caption {number}")
    return folder


def wait_for_lines(dataset: Dataset, count: int) -> None:
    end = time.monotonic() + 120
    while len(dataset.verdicts) < count and time.monotonic() < end:
        time.sleep(0.02)


def test_import_job_killed_half_way_goes_on_where_it_was(workspace: Workspace, tmp_path: Path) -> None:
    dataset = Dataset.create(workspace, "Killed")
    status = dataset.start_import([many(tmp_path / "given", 12)])
    assert status.pid is not None
    wait_for_lines(dataset, 2)
    os.kill(status.pid, signal.SIGKILL)
    assert jobs.wait(dataset.import_folder, 20).state == jobs.State.DIED
    done = {verdict.source: verdict for verdict in dataset.verdicts}
    assert 2 <= len(done) < 12
    stamps = {name: dataset.path_of(Clip(file_name=v.file_name)).stat().st_mtime_ns for name, v in done.items()}

    dataset.continue_import()
    status = jobs.wait(dataset.import_folder, 120)
    assert (status.state, status.exit_code) == (jobs.State.FINISHED, 0)
    assert texts(dataset) == {f"{number:02}.mkv": f"caption {number}" for number in range(12)}
    counts = dataset.import_result["counts"]
    assert counts == {"taken": 0, "mended": 12 - len(done), "known": len(done), "refused": 0}
    for name, verdict in done.items():
        assert dataset.path_of(dataset.clip(verdict.file_name)).stat().st_mtime_ns == stamps[name]
    assert not list(dataset.folder.glob("clips/.*"))


def test_import_job_stops_when_asked_and_keeps_what_it_has(workspace: Workspace, tmp_path: Path) -> None:
    dataset = Dataset.create(workspace, "Stopped")
    dataset.start_import([many(tmp_path / "given", 8)])
    wait_for_lines(dataset, 1)
    jobs.stop(dataset.import_folder)
    status = jobs.wait(dataset.import_folder, 60)
    assert (status.state, status.exit_code) == (jobs.State.STOPPED, ExitCode.STOPPED)
    assert "start it again to go on" in status.message
    assert 1 <= len(dataset.clips) < 8


def test_import_job_with_nothing_usable_ends_as_bad_data(workspace: Workspace, tmp_path: Path) -> None:
    dataset = Dataset.create(workspace, "Bad")
    (tmp_path / "a.mp4").write_bytes(b"")
    dataset.start_import([tmp_path / "a.mp4"])
    status = jobs.wait(dataset.import_folder, 60)
    assert (status.state, status.exit_code) == (jobs.State.FAILED, ExitCode.BAD_DATA)
    assert "empty file" in status.message
    assert ImportSettings.load(dataset.import_folder / jobs.CONFIG).dataset == "bad"
