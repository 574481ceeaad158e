"""Many clips are split in one change; what is too short is named; a split that was killed goes on."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path

import pytest

from tests.dataset_builder.scenery import joined, scenery
from tests.patience import PATIENCE
from workbench import jobs
from workbench.clips import media
from workbench.clips.records import Clip, read_clips, write_clips
from workbench.dataset_builder import history
from workbench.dataset_builder.cuts.splitting import plan_split
from workbench.dataset_builder.settings import SplitSettings, SplitTask
from workbench.errors import ConfigError
from workbench.workspace import read_json

LENGTHS = {"one": (24, 30, 5, 27), "two": (16, 40), "three": (33,), "four": (4, 4, 4)}
FPS = 8


@pytest.fixture(scope="session")
def footage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A dataset folder of four clips with hard cuts as in LENGTHS, and a picture; never change it."""
    folder = tmp_path_factory.mktemp("footage")
    records = []
    for number, (name, lengths) in enumerate(LENGTHS.items()):
        media.encode(joined(lengths, seed=10 * number)[0], folder / f"clips/{name}.mp4", FPS)
        records.append(
            Clip(file_name=f"clips/{name}.mp4", text=name, source=f"{name}.mov", frames=sum(lengths), fps=FPS)
        )
    media.encode(scenery(1, 1), folder / "clips/still.mp4", FPS)
    records.append(Clip(file_name="clips/still.mp4", source="still.png", frames=1, fps=FPS))
    write_clips(folder, records)
    return folder


@pytest.fixture
def folder(tmp_path: Path, footage: Path) -> Path:
    return Path(shutil.copytree(footage, tmp_path / "dataset"))


def run(folder: Path, settings: SplitSettings) -> jobs.Status:
    """The split as the real job, in a process of its own."""
    settings.save(folder / ".split" / jobs.CONFIG)
    jobs.start(folder / ".split", "workbench.dataset_builder")
    return jobs.wait(folder / ".split", PATIENCE)


def test_the_plan_says_what_would_be_done_and_does_nothing(folder: Path) -> None:
    before = read_clips(folder)
    one, two, three, four, still = plan_split(folder, SplitSettings(min_seconds=1))
    assert (one.spans, one.dropped) == (((0, 24), (24, 54), (59, 86)), ((54, 59),))
    assert one.sentence == "one.mov: 3 pieces, too short: 6.75 to 7.38 s"
    assert two.spans == ((0, 16), (16, 56))
    assert three.sentence == "three.mov stays as it is: one shot"
    assert four.sentence.startswith("four.mov stays as it is: none of its ")
    assert still.sentence == "still.png stays as it is: a picture"
    assert read_clips(folder) == before
    assert len(list((folder / "clips").iterdir())) == 5


def test_long_shots_become_equal_pieces_and_windows_leave_a_rest(folder: Path) -> None:
    (plan,) = plan_split(folder, SplitSettings(clips=("two",), max_seconds=2))
    assert plan.spans == ((0, 16), (16, 29), (29, 43), (43, 56))
    windows = SplitSettings(clips=("two", "clips/three.mp4"), mode="windows", window_seconds=3)
    two, three = plan_split(folder, windows)
    assert (two.spans, two.dropped) == (((0, 24), (24, 48), (48, 56)), ())
    assert (three.spans, three.dropped) == (((0, 24), (24, 33)), ())
    assert plan_split(folder, windows.changed(min_seconds=1.5))[0].dropped == ((48, 56),)


def test_the_job_splits_all_in_one_change(folder: Path) -> None:
    before = read_clips(folder)
    status = run(folder, SplitSettings(min_seconds=1))
    assert status.state == jobs.State.FINISHED, jobs.log_tail(folder / ".split")
    result = read_json(folder / ".split" / jobs.RESULT)
    assert (result["clips"], result["parts"], result["failed"]) == (2, 5, [])
    assert "one.mov: 3 pieces, too short: 6.75 to 7.38 s" in result["splits"]
    now = read_clips(folder)
    assert [clip.frames for clip in now] == [24, 30, 27, 16, 40, 33, 12, 1]
    assert [clip.text for clip in now[:5]] == ["one"] * 3 + ["two"] * 2
    assert all((folder / clip.file_name).exists() for clip in now)
    assert all(media.probe(folder / clip.file_name).frames == clip.frames for clip in now)
    history.undo(folder, history.undoable(folder)[0].number)
    assert read_clips(folder) == before
    assert plan_split(folder, SplitSettings(clips=("one",)))[0].spans == ((0, 24), (24, 54), (59, 86))


def test_a_look_is_a_job_with_its_progress_and_changes_nothing(folder: Path) -> None:
    before, files = read_clips(folder), sorted((folder / "clips").iterdir())
    status = run(folder, SplitTask(min_seconds=1, preview=True))
    frames = sum(clip.frames for clip in before)
    assert (status.state, status.phase) == (jobs.State.FINISHED, "finding cuts")
    assert (status.step, status.total) == (frames - 1, frames)  # the picture needs no look
    result = read_json(folder / ".split" / jobs.RESULT)
    assert (result["clips"], result["parts"], result["preview"]) == (2, 5, True)
    assert result["splits"][0] == "one.mov: 3 pieces, too short: 6.75 to 7.38 s"
    assert result["spans"][0] == [[0, 3], [3, 6.75], [7.375, 10.75]]
    assert (read_clips(folder), sorted((folder / "clips").iterdir())) == (before, files)


def test_parts_are_split_again_with_their_crop_and_rate(folder: Path) -> None:
    from workbench.dataset_builder.cuts import cutting

    clip = read_clips(folder)[0]
    part = cutting.trim(folder, clip, 1, 8)  # frames 8 to 64, with cuts at 24, 54 and 59
    part = cutting.set_fps(folder, cutting.crop(folder, [part], (32, 0, 64, 96)), 4)[0]
    (plan,) = plan_split(folder, SplitSettings(clips=(part.id,)))
    assert plan.spans == ((8, 24), (24, 54))
    assert run(folder, SplitSettings(clips=(part.id,))).state == jobs.State.FINISHED
    now = read_clips(folder)[:2]
    assert [(c.fps, c.frames, c.crop, c.span) for c in now] == [
        (4, 8, (32, 0, 64, 96), (1, 3)),
        (4, 15, (32, 0, 64, 96), (3, 6.75)),
    ]


def test_a_killed_split_goes_on(folder: Path) -> None:
    settings = SplitSettings(mode="windows", window_seconds=0.5, min_seconds=0.5)
    before = read_clips(folder)
    settings.save(folder / ".split" / jobs.CONFIG)
    jobs.start(folder / ".split", "workbench.dataset_builder")
    end = time.monotonic() + PATIENCE
    while len(list((folder / "clips").glob("*.mp4"))) < 12 and time.monotonic() < end:
        time.sleep(0.01)
    process = jobs.status(folder / ".split").pid
    assert process
    os.kill(process, signal.SIGKILL)
    assert jobs.wait(folder / ".split", PATIENCE).state == jobs.State.DIED
    made = {path.name: path.stat().st_mtime_ns for path in (folder / "clips").glob("*.mp4")}
    assert read_clips(folder) == before
    assert run(folder, settings).state == jobs.State.FINISHED
    parts = [clip for clip in read_clips(folder) if clip.master]
    assert len(parts) == sum(sum(lengths) // 4 for lengths in LENGTHS.values())
    reused = [clip for clip in parts if Path(clip.file_name).name in made]
    assert len(reused) >= 5
    for clip in reused:
        assert (folder / clip.file_name).stat().st_mtime_ns == made[Path(clip.file_name).name]


def test_a_damaged_clip_costs_only_itself(folder: Path) -> None:
    path = folder / "clips/one.mp4"
    data = bytearray(path.read_bytes())
    data[len(data) // 2 :] = bytes(len(data) - len(data) // 2)
    path.write_bytes(data)
    one, two, *_ = plan_split(folder, SplitSettings())
    assert "one.mov stays as it is: frame " in one.sentence or "damaged" in one.sentence
    assert len(two.spans) == 2
    path.unlink()
    assert "the source video of one.mov is missing" in plan_split(folder, SplitSettings(clips=("one",)))[0].sentence


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (SplitSettings(clips=("gone",)), "there is no clip 'gone' in this dataset"),
        (SplitSettings(min_seconds=2, max_seconds=3), r"max_seconds is 3, must be twice min_seconds .*: use 4"),
        (SplitSettings(mode="windows", window_seconds=1, min_seconds=2), r"window_seconds is 1, .*: use 2"),
        (SplitSettings(detector="hash", threshold=27), "threshold is 27, must be 0.1 to 0.8 .*: the default is 0.35"),
    ],
)
def test_settings_that_cannot_be_met(folder: Path, settings: SplitSettings, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        plan_split(folder, settings)
