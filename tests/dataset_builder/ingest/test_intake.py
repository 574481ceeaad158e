"""The whole import: a bad file affects no other, finished work is kept, and the user's captions take precedence."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
import zipfile
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from tests.dataset_builder.foreign import write_video
from tests.drawing import MakeClip, draw
from tests.patience import PATIENCE
from workbench import jobs
from workbench.clips import media, records
from workbench.clips.records import Clip
from workbench.dataset_builder import Dataset, ImportResult
from workbench.dataset_builder.ingest import canonical, intake
from workbench.dataset_builder.ingest.intake import Turns
from workbench.dataset_builder.ingest.results import append_import_result, read_import_results
from workbench.dataset_builder.settings import ImportSettings
from workbench.dataset_builder.snapshot import task_snapshot
from workbench.dataset_builder.sources.files import keep_uploads
from workbench.dataset_builder.sources.tree import SourceFile
from workbench.errors import CannotWrite, ConfigError, DataError, ExitCode
from workbench.jobs.limited import ChildClosed
from workbench.workspace import Workspace


def texts(dataset: Dataset) -> dict[str, str]:
    return {clip.source: clip.text for clip in dataset.clips}


def test_a_file_that_crashes_the_reader_affects_no_other(
    workspace: Workspace, tmp_path: Path, make_clip: MakeClip, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = tmp_path / "given"
    for number, name in enumerate(("a", "crash", "spin", "sleep", "memory", "surprise", "slow", "z")):
        make_clip(given / f"{name}.mp4", 4 + number)
    monkeypatch.setattr(intake, "WORKER", "tests.dataset_builder.fragile_worker")
    monkeypatch.setattr(intake, "SECONDS_PER_FRAME", 2.0)
    monkeypatch.setattr(intake, "WAITING", 6.0)
    dataset = Dataset.create(workspace, "Fragile")
    found = {Path(v.source).stem: v for v in dataset.import_files([given])}
    assert {name: result.outcome for name, result in found.items() if result.usable} == dict.fromkeys(
        ("a", "slow", "z"), "taken"
    )
    assert "crashed the decoder" in found["crash"].notes[0]
    assert "no frame within 2 s" in found["spin"].notes[0]
    assert "no frame within 2 s" in found["sleep"].notes[0]
    assert "more memory" in found["memory"].notes[0]
    assert "KeyError" in found["surprise"].notes[0]
    assert [clip.source for clip in dataset.clips] == ["a.mp4", "slow.mp4", "z.mp4"]


def test_importing_again_keeps_captions_and_adds_what_is_new(
    workspace: Workspace, tmp_path: Path, make_clip: MakeClip
) -> None:
    given = tmp_path / "given"
    for name, color in (("a", "red"), ("b", "green"), ("c", "blue")):
        make_clip(given / f"{name}.mp4", 4, color=color)
    (given / "a.txt").write_text("a red square")
    dataset = Dataset.create(workspace, "Squares")
    dataset.import_files([given])
    assert texts(dataset) == {"a.mp4": "a red square", "b.mp4": "", "c.mp4": ""}
    dataset.set_caption(dataset.clips[0].file_name, "edited by hand")
    (given / "a.txt").write_text("another text")
    (given / "b.txt").write_text("a green square")
    make_clip(given / "d.mp4", 4, color="yellow")
    (given / "e.mp4").write_bytes((given / "a.mp4").read_bytes())
    outcomes = [result.outcome for result in dataset.import_files([given])]
    assert outcomes == ["known", "known", "known", "taken", "known"]
    assert texts(dataset) == {"a.mp4": "edited by hand", "b.mp4": "a green square", "c.mp4": "", "d.mp4": ""}
    kept = {Path(result.source).name: result.outcome for result in dataset.import_results}
    assert kept == {"a.mp4": "taken", "b.mp4": "taken", "c.mp4": "taken", "d.mp4": "taken", "e.mp4": "known"}


def test_nothing_usable_says_why(workspace: Workspace, tmp_path: Path) -> None:
    dataset = Dataset.create(workspace, "Nothing")
    (tmp_path / "page.mp4").write_text("<html>")
    with pytest.raises(DataError, match="none of the 1 files can be used: 'page.mp4': refused: looks like a web page"):
        dataset.import_files([tmp_path / "page.mp4"])
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataError, match="no videos in .*empty: add mp4"):
        dataset.import_files([tmp_path / "empty"])
    with pytest.raises(DataError, match="No such file"):
        dataset.import_files([tmp_path / "missing.mp4"])


def test_a_full_disk_stops_the_import_with_the_reason(
    workspace: Workspace, tmp_path: Path, make_clip: MakeClip
) -> None:
    dataset = Dataset.create(workspace, "Full")
    (dataset.folder / "clips").write_text("in the way")
    with pytest.raises(CannotWrite, match="cannot write"):
        dataset.import_files([make_clip(tmp_path / "a.mp4")])


def test_a_torn_last_line_is_ignored(tmp_path: Path) -> None:
    append_import_result(tmp_path, ImportResult(source="/a.mp4", outcome="taken"))
    with (tmp_path / "sources.jsonl").open("a") as file:
        file.write('{"source": "/b.m')
    append_import_result(tmp_path, ImportResult(source="/c.mp4", outcome="refused", notes=("empty file",)))
    assert [result.source for result in read_import_results(tmp_path)] == ["/a.mp4", "/c.mp4"]


def test_split_removed_and_exported_clips_are_recognized(workspace: Workspace, tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.mkdir()
    for name, color in (("kept", "red"), ("cut", "green"), ("out", "blue")):
        write_video(given / f"{name}.mov", draw(4, color=color), sound=True)
    dataset = Dataset.create(workspace, "Again")
    kept, cut, out = dataset.import_files([given / f"{name}.mov" for name in ("kept", "cut", "out")])
    dataset.remove(cut.clip.file_name, out.clip.file_name)
    (dataset.folder / ".masters").mkdir()
    removed = dataset.folder / ".removed" / cut.clip.file_name
    removed.rename(dataset.folder / ".masters" / removed.name)
    (given / "ours.mp4").write_bytes((dataset.folder / kept.clip.file_name).read_bytes())
    found = {Path(v.source).stem: v for v in dataset.import_files([given])}
    assert {result.outcome for result in found.values()} == {"known"}
    assert found["cut"].notes == ("it was split into parts",)
    assert found["out"].notes == ("it was removed: restore it",)
    assert found["ours"].notes == ("same content as 'kept.mov': stored once",)
    assert [clip.source for clip in dataset.clips] == ["kept.mov"]


def test_of_equal_files_the_first_one_given_is_kept(
    workspace: Workspace, tmp_path: Path, make_clip: MakeClip, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = make_clip(tmp_path / "z.mp4", 4)
    sources = [SourceFile(first, "the first")]
    for name in ("y", "x"):
        (tmp_path / f"{name}.mp4").write_bytes(first.read_bytes())
        sources.append(SourceFile(tmp_path / f"{name}.mp4", f"caption of {name}"))
    quick = records.file_sha256

    def slow_for_the_first(path: Path) -> str:
        if path == first:
            time.sleep(0.3)
        return quick(path)

    monkeypatch.setattr(records, "file_sha256", slow_for_the_first)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: {0, 1, 2}, raising=False)
    dataset = Dataset.create(workspace, "Equal")
    kept, *others = intake.ingest(dataset.folder, sources)
    assert kept.outcome == "taken"
    assert [other.notes for other in others] == 2 * [
        ("same content as 'z.mp4': stored once, with the caption of that file",)
    ]
    assert texts(dataset) == {"z.mp4": "the first"}


def test_archive_members_get_a_result_each(workspace: Workspace, tmp_path: Path, make_clip: MakeClip) -> None:
    with zipfile.ZipFile(tmp_path / "clips.zip", "w") as archive:
        for name, color in (("a", "red"), ("b", "blue")):
            archive.write(make_clip(tmp_path / f"{name}.mp4", 4, color=color), f"inside/{name}.mp4")
        archive.writestr("inside/page.mp4", "<html>")
    sources = [SourceFile(tmp_path / "clips.zip", name, f"inside/{name}.mp4") for name in ("a", "b", "page", "missing")]
    dataset = Dataset.create(workspace, "Zip")
    found = intake.ingest(dataset.folder, sources)
    assert [result.outcome for result in found] == ["taken", "taken", "refused", "refused"]
    assert found[2].source == f"{tmp_path / 'clips.zip'}::inside/page.mp4"
    assert texts(dataset) == {"a.mp4": "a", "b.mp4": "b"}
    assert not list((dataset.folder / ".import").rglob("*.mp4"))
    assert not [path for path in (dataset.folder / ".import").rglob("*") if path.is_file() and path.name != "lock"]


def test_clips_are_scaled_down_only_on_request(workspace: Workspace, tmp_path: Path, make_clip: MakeClip) -> None:
    sources = [
        SourceFile(make_clip(tmp_path / "wide.mp4", 4, (200, 120))),
        SourceFile(make_clip(tmp_path / "small.mp4", 4)),
    ]
    dataset = Dataset.create(workspace, "Small")
    wide, small = intake.ingest(dataset.folder, sources, settings=ImportSettings(longest_side=100))
    assert (wide.clip.width, wide.clip.height, wide.notes) == (100, 60, ("scaled down from 200x120",))
    assert (small.outcome, small.clip.width) == ("taken", 64)


def test_an_exported_picture_is_imported_unchanged(workspace: Workspace, tmp_path: Path) -> None:
    picture = tmp_path / "picture.png"
    Image.fromarray(draw(1)[0]).save(picture)
    (made,) = intake.ingest(Dataset.create(workspace, "One").folder, [SourceFile(picture)])
    exported = tmp_path / "exported.mp4"
    exported.write_bytes((workspace.dataset("one") / made.clip.file_name).read_bytes())
    (back,) = intake.ingest(Dataset.create(workspace, "Two").folder, [SourceFile(exported)])
    assert (back.outcome, back.clip.frames, back.clip.fps, back.clip.sha256) == (
        "taken",
        1,
        made.clip.fps,
        made.clip.sha256,
    )


def test_two_imports_into_one_dataset_exclude_each_other(
    workspace: Workspace, tmp_path: Path, make_clip: MakeClip
) -> None:
    dataset = Dataset.create(workspace, "Twice")
    source = SourceFile(make_clip(tmp_path / "a.mp4"))

    def meanwhile(*_: object) -> None:
        with pytest.raises(ConfigError, match="another import into twice is running"):
            intake.ingest(dataset.folder, [source])

    assert [result.outcome for result in intake.ingest(dataset.folder, [source], meanwhile)] == ["taken"]


def natural(frames: int, size: tuple[int, int] = (320, 192)) -> np.ndarray:
    """A pan over detail at every scale with low-light grain, as hard to encode as real footage."""
    width, height = size
    random = np.random.default_rng(0)
    whole = width + 4 * frames
    frequency = np.hypot(np.fft.fftfreq(height)[:, None], np.fft.fftfreq(whole)[None])
    waves = np.exp(2j * np.pi * random.random((height, whole))) / np.maximum(frequency, 1 / whole) ** 1.1
    field = np.fft.ifft2(waves).real
    ground = 120 + 45 * (field - field.mean()) / field.std()
    pictures = [
        ground[:, 4 * n : 4 * n + width, None] + random.normal(0, 10, (height, width, 3)) for n in range(frames)
    ]
    return np.stack(pictures).clip(0, 255).astype(np.uint8)


@pytest.mark.parametrize(
    "fix", [{"sound": np.zeros((1, 88_200), np.float32)}, {"aspect": Fraction(3, 2)}], ids=["untouched", "stretched"]
)
def test_re_encoding_is_not_visible(tmp_path: Path, fix: dict[str, Any]) -> None:
    source = write_video(tmp_path / "given.mov", natural(12), options={"crf": "4", "preset": "ultrafast"}, **fix)
    made = canonical.convert(source, tmp_path / "clip.mp4")
    wanted = canonical.converted(media.raw_frames(source), media.probe(source))
    errors = []
    for (_, before), (_, after) in zip(wanted, media.raw_frames(tmp_path / "clip.mp4"), strict=True):
        errors.append((before.to_ndarray().astype(float) - after.to_ndarray()) ** 2)
    luma, overall = np.mean([error[: made.height] for error in errors]), np.mean(errors)
    assert made.changes
    assert not luma or 10 * np.log10(255**2 / luma) >= 45
    assert not overall or 10 * np.log10(255**2 / overall) >= 45


def many(folder: Path, count: int) -> Path:
    """Clips that each take a moment to convert."""
    folder.mkdir()
    for number in range(count):
        write_video(folder / f"{number:02}.mkv", draw(8 + number, (160, 96)), options={"preset": "ultrafast"})
        (folder / f"{number:02}.txt").write_text(f"caption {number}")
    return folder


def wait_for_lines(dataset: Dataset, count: int) -> None:
    end = time.monotonic() + PATIENCE
    while len(dataset.import_results) < count and time.monotonic() < end:
        time.sleep(0.02)


def test_a_killed_import_job_resumes(workspace: Workspace, tmp_path: Path) -> None:
    dataset = Dataset.create(workspace, "Killed")
    status = dataset.start_import([many(tmp_path / "given", 12)])
    assert status.pid is not None
    wait_for_lines(dataset, 2)
    os.kill(status.pid, signal.SIGKILL)
    assert jobs.wait(dataset.task("import").folder, PATIENCE).state == jobs.State.DIED
    done = {result.source: result for result in dataset.import_results}
    assert 2 <= len(done) < 12
    stamps = {name: dataset.path_of(Clip(file_name=v.clip.file_name)).stat().st_mtime_ns for name, v in done.items()}

    dataset.task("import").go_on()
    status = jobs.wait(dataset.task("import").folder, PATIENCE)
    assert (status.state, status.exit_code) == (jobs.State.FINISHED, 0)
    assert texts(dataset) == {f"{number:02}.mkv": f"caption {number}" for number in range(12)}
    counts = dataset.task("import").result["counts"]
    assert counts == {"taken": 0, "converted": 12 - len(done), "known": len(done), "refused": 0, "skipped": 0}
    for name, result in done.items():
        assert dataset.path_of(dataset.clip(result.clip.file_name)).stat().st_mtime_ns == stamps[name]
    assert not list(dataset.folder.glob("clips/.*"))


def test_an_import_job_stops_on_request_and_keeps_its_clips(workspace: Workspace, tmp_path: Path) -> None:
    dataset = Dataset.create(workspace, "Stopped")
    dataset.start_import([many(tmp_path / "given", 8)])
    wait_for_lines(dataset, 1)
    jobs.stop(dataset.task("import").folder)
    status = jobs.wait(dataset.task("import").folder, PATIENCE)
    assert (status.state, status.exit_code) == (jobs.State.STOPPED, ExitCode.STOPPED)
    assert "start it again to continue" in status.message
    assert 1 <= len(dataset.clips) < 8


A_WHILE = 0.1  # seconds; enough for a thread that does not wait


def entering(turns: Turns, number: int, sha256: str) -> threading.Thread:
    def enter() -> None:
        with contextlib.suppress(ChildClosed):
            turns.enter(number, sha256)

    thread = threading.Thread(target=enter, daemon=True)
    thread.start()
    thread.join(A_WHILE)
    return thread


def test_a_source_waits_only_for_earlier_ones_and_never_after_the_end() -> None:
    turns = Turns([SourceFile(Path(name)) for name in "abcde"])
    assert [turns.take()[0] for _ in "abcde"] == [0, 1, 2, 3, 4]  # type: ignore[index]
    assert turns.take() is None
    same, other = entering(turns, 2, "a"), entering(turns, 1, "b")
    assert same.is_alive()
    assert other.is_alive()
    turns.enter(0, "a")
    other.join(PATIENCE)
    assert same.is_alive()
    turns.leave(0)
    same.join(PATIENCE)
    waiting = entering(turns, 4, "a")
    turns.leave(2)
    turns.leave(3)  # it could not be read
    waiting.join(PATIENCE)
    assert not any(one.is_alive() for one in (same, other, waiting))
    last = entering(turns, 5, "b")
    assert last.is_alive()
    turns.close()
    last.join(PATIENCE)
    assert not last.is_alive()


def test_a_failed_upload_is_shown_by_its_own_name_until_it_is_dismissed(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset = Dataset.create(workspace, "Cats")
    monkeypatch.setenv("GRADIO_TEMP_DIR", str(workspace.root / "upload"))
    dropped = workspace.root / "upload" / "my cat.mp4"
    dropped.parent.mkdir()
    dropped.write_bytes(b"no video")
    kept = keep_uploads(dataset.folder / ".import", [str(dropped)])
    dataset.start_import(kept)
    ended = dataset.task("import").wait(PATIENCE)
    assert (ended.state, ended.exit_code) == (jobs.State.FAILED, ExitCode.BAD_DATA)
    for _ in range(2):  # reads from disk each time, like the shell
        seen = task_snapshot(Dataset.open(workspace, "cats").task("import"))
        assert "my cat.mp4" in seen.sentence
        assert str(workspace.root) not in json.dumps(
            [seen.sentence, seen.details, [one.sentence for one in seen.files]]
        )
        assert {"dismiss", "resume"} <= set(seen.actions)
    dataset.task("import").dismiss()
    seen = task_snapshot(Dataset.open(workspace, "cats").task("import"))
    assert (seen.state, seen.sentence, seen.actions) == (jobs.State.NEW, "", ())
