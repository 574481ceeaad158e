"""The dataset check: its findings, its fixes (one change each), and the dataset's statistics."""

from __future__ import annotations

import dataclasses
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.dataset_builder import footage
from tests.patience import PATIENCE
from workbench import jobs
from workbench.clips.records import Clip, DatasetInfo, read_clips, read_info
from workbench.dataset_builder import Dataset, history
from workbench.dataset_builder.checks import fixes
from workbench.dataset_builder.checks.dataset_check import CheckSettings, check_tokens, read_tokens
from workbench.dataset_builder.checks.findings import (
    Finding,
    Fix,
    Severity,
    finding_of,
    read_findings,
    read_report,
    write_report,
)
from workbench.dataset_builder.checks.statistics import of_clips
from workbench.dataset_builder.tasks import Task
from workbench.errors import ConfigError
from workbench.families import find_model
from workbench.jobs import State


def by_kind(dataset: Path) -> dict[str, list[Finding]]:
    found: dict[str, list[Finding]] = {}
    for finding in read_findings(dataset):
        found.setdefault(finding.kind, []).append(finding)
    return found


def names(findings: list[Finding]) -> list[str]:
    return [Path(name).stem for finding in findings for name in finding.clips]


def test_each_fault_is_found_on_its_clip_alone(checked: Path) -> None:
    found = by_kind(checked)
    pictures = ("still", "shake", "flashes", "cuts", "letterbox", "blur", "left_out", "near_duplicates", "images")
    assert {kind: names(found[kind]) for kind in pictures} == {
        "still": ["still"], "shake": ["shake"], "flashes": ["flash"], "cuts": ["cut"], "letterbox": ["bars"],
        "blur": ["blur"], "left_out": ["short"], "near_duplicates": ["good", "copy"], "images": ["image"],
    }  # fmt: skip
    assert found["cuts"][0].sentence == "cut.mov has 1 cut, at 1.5 s: the model would learn to jump."
    assert found["cuts"][0].values == {"frames": [12]}
    assert found["left_out"][0].severity == Severity.HURTS
    assert found["near_duplicates"][0].buttons["keep_best"] == "Keep the best one"


def test_captions_are_checked_as_the_model_reads_them(checked: Path) -> None:
    found = by_kind(checked)
    kinds = ("no_caption", "short_caption", "same_caption", "long_caption", "trigger")
    assert {kind: sorted(names(found[kind])) for kind in kinds} == {
        "no_caption": ["still"],
        "short_caption": ["shake"],
        "same_caption": ["bars", "blur"],
        "long_caption": ["flash", "good"],
        "trigger": sorted(set(names(found["trigger"]))),
    }
    assert {"good", "still"}.isdisjoint(names(found["trigger"]))
    long = next(finding for finding in found["long_caption"] if "good" in finding.clips[0])
    assert Dataset(checked).clip("good").text.strip().endswith(long.values["cut"])
    assert "it never sees" in long.sentence
    limit, counts = read_tokens(checked, read_info(checked))
    assert limit == 16
    assert len(counts) == len({clip.text for clip in read_clips(checked)})
    assert read_tokens(checked, DatasetInfo(trigger_word="other")) == (0, {})


def test_the_report_says_what_still_holds(checked: Path, tmp_path: Path) -> None:
    shutil.copytree(checked, tmp_path / "it")
    dataset = Dataset(tmp_path / "it")
    before = read_report(dataset.folder)
    assert before.new_clips == 0
    assert len({group.kind for group in before.groups}) == len(before.groups)
    assert before.sentence.startswith(f"{len(dataset.clips)} clips checked: ")
    dataset.set_caption("clips/still.mp4", "now it has a caption")
    after = read_report(dataset.folder)
    assert [f for f in before.findings if f not in after.findings] == by_kind(checked)["no_caption"]
    dataset.undo()
    assert read_report(dataset.folder) == before
    clip = dataset.clip("cut")
    history.change(dataset.folder, "another file", {clip.file_name: [clip.changed(sha256="other")]})
    assert "cuts" not in by_kind(dataset.folder)
    assert read_report(dataset.folder).new_clips == 1  # type: ignore[union-attr]


def test_without_a_tokenizer_on_disk_nothing_is_guessed(checked: Path) -> None:
    family, model = find_model("cogvideox-2b")
    nowhere = dataclasses.replace(model, source="nobody/nothing", revision="0" * 40)
    found, counts = check_tokens(read_clips(checked), read_info(checked), family, nowhere)
    assert [(finding.kind, finding.clips, finding.fixes) for finding in found] == [("tokens_unknown", (), ())]
    assert "is not on this machine yet" in found[0].sentence
    assert counts == {}


def test_when_no_clip_is_long_enough_the_training_stops(tmp_path: Path) -> None:
    dataset = footage.write_footage(tmp_path, {"a": footage.pan(1, 4), "b": footage.pan(2, 4)}, {})
    task = Task(dataset, "check")
    task.start(CheckSettings(captions=False))
    assert task.wait(PATIENCE).state == State.FINISHED
    assert task.result["findings"]["stops the training"] == 2
    assert {finding.kind for finding in read_findings(dataset)} - {"text_unknown"} == {"left_out"}


# ---- fixes


@pytest.fixture
def dataset(checked: Path, tmp_path: Path) -> Dataset:
    """A copy of the checked dataset that a test may change."""
    shutil.copytree(checked, tmp_path / "faults")
    return Dataset(tmp_path / "faults")


def of_kind(dataset: Dataset, kind: str) -> list[Finding]:
    return [finding for finding in read_findings(dataset.folder) if finding.kind == kind]


def check_way_back(dataset: Dataset, kind: str, fix: Fix, says: str) -> Callable[[], None]:
    """Fix all findings of a kind; return a function that undoes it and checks that nothing else changed."""
    before, changes = dataset.clips, len(dataset.history)
    files = {clip.file_name for clip in before}
    will = fixes.preview(dataset.folder, of_kind(dataset, kind), fix)
    assert (will.split(" ", 1)[1], dataset.clips) == (says.split(" ", 1)[1], before)
    assert fixes.apply(dataset.folder, of_kind(dataset, kind), fix) == says
    assert len(dataset.history) == changes + 1

    def back() -> None:
        dataset.undo()
        assert dataset.clips == before
        assert {f"clips/{path.name}" for path in (dataset.folder / "clips").iterdir()} == files

    return back


def test_the_best_of_the_copies_stays(dataset: Dataset) -> None:
    back = check_way_back(dataset, "near_duplicates", "keep_best", "Removed 1 clip with a better copy.")
    assert "copy" not in {clip.id for clip in dataset.clips}
    back()
    dataset.set_caption("copy", "written by hand")
    fixes.apply(dataset.folder, of_kind(dataset, "near_duplicates"), "keep_best")
    assert "good" not in {clip.id for clip in dataset.clips}


def test_a_clip_is_split_at_its_cut(dataset: Dataset) -> None:
    place = [clip.id for clip in dataset.clips].index("cut")
    back = check_way_back(dataset, "cuts", "split_at_cuts", "Split 1 clip into 2.")
    parts = dataset.clips[place : place + 2]
    assert [(part.span, part.frames) for part in parts] == [((0.0, 1.5), 12), ((1.5, 3.0), 12)]
    assert all(dataset.path_of(part).exists() for part in parts)
    back()
    back = check_way_back(dataset, "cuts", "keep_longest_shot", "Kept the longest shot of 1 clip.")
    assert dataset.clips[place] == parts[0]
    back()


def test_bars_are_cropped_and_the_finding_goes(dataset: Dataset) -> None:
    back = check_way_back(dataset, "letterbox", "crop_bars", "Cropped the bars of 1 clip.")
    cropped = next(clip for clip in dataset.clips if clip.source == "bars.mov")
    assert (cropped.crop, cropped.width, cropped.height) == ((0, 16, 160, 80), 160, 80)
    assert of_kind(dataset, "letterbox") == []
    back()
    assert len(of_kind(dataset, "letterbox")) == 1


def test_shortened_captions_are_read_to_their_end(dataset: Dataset) -> None:
    back = check_way_back(
        dataset, "long_caption", "shorten_caption", "Shortened the captions of 2 clips to the model's limit."
    )
    family, model = find_model("tiny-cogvideox")
    captions = [dataset.captions[f"clips/{name}.mp4"] for name in ("good", "flash")]
    tokens = family.caption_tokens(Path(model.source), captions)
    assert [one.cut for one in tokens] == ["", ""]
    assert all(one.count > one.limit - 4 for one in tokens)
    back()


def test_the_trigger_word_is_written_out_once(dataset: Dataset) -> None:
    taught = dataset.captions
    back = check_way_back(dataset, "trigger", "add_trigger", "Added 'zwx' to the captions of 8 clips.")
    assert dataset.captions == taught
    assert sum(clip.text.startswith("zwx ") for clip in dataset.clips) == 9
    back()


def test_what_does_not_fit_changes_nothing(dataset: Dataset) -> None:
    before = dataset.clips
    with pytest.raises(ConfigError, match="'Crop the bars' does not fix 'Blurred': use 'Remove' or 'Tag for later'"):
        fixes.apply(dataset.folder, of_kind(dataset, "blur"), "crop_bars")
    stale = of_kind(dataset, "blur")
    dataset.remove("blur")
    with pytest.raises(ConfigError, match="a clip of 'Blurred' is no longer in this dataset"):
        fixes.apply(dataset.folder, stale, "tag")
    dataset.undo()
    assert dataset.clips == before


# ---- what cuts clips is a task


def test_what_changes_records_alone_is_done_at_once_and_what_cuts_is_a_task(dataset: Dataset) -> None:
    assert dataset.start_fix(of_kind(dataset, "still"), "tag") == "Tagged 1 clip for later."
    changes = len(dataset.history)
    assert dataset.start_fix(of_kind(dataset, "letterbox"), "crop_bars") == ""
    status = dataset.task("fix").wait(PATIENCE)
    assert (status.state, status.total, status.phase) == (jobs.State.FINISHED, footage.FRAMES, "cutting")
    assert dataset.task("fix").result["done"] == "Cropped the bars of 1 clip."
    assert len(dataset.history) == changes + 1
    assert dataset.undo().what == "cropped the bars of 1 clip"
    with pytest.raises(ConfigError, match="'Crop the bars' does not fix 'Blurred'"):
        dataset.start_fix(of_kind(dataset, "blur"), "crop_bars")
    with pytest.raises(ConfigError, match="these findings no longer apply"):
        dataset.task("fix").start(fixes.FixSettings(fix="crop_bars", findings=("gone",)))


@pytest.fixture
def barred(tmp_path: Path) -> Dataset:
    """Eight clips with bars, large enough to take a while, and the check's findings about them."""
    wide = np.repeat(np.repeat(footage.barred(1), 4, axis=1), 4, axis=2)
    folder = footage.write_footage(tmp_path / "barred", {f"clip{number}": wide[number:] for number in range(8)}, {})
    dataset = Dataset(folder)
    crop = (0, 64, 640, 320)
    found = [finding_of("letterbox", "bars", [clip], crop=crop) for clip in dataset.clips]
    write_report(folder, 0.0, "any", dataset.clips, found)
    return dataset


def test_a_killed_fix_goes_on_and_is_one_change(barred: Dataset) -> None:
    before, task = barred.clips, barred.task("fix")
    barred.start_fix(read_findings(barred.folder), "crop_bars")
    end = time.monotonic() + PATIENCE
    while len(list((barred.folder / "clips").glob("*.mp4"))) < 10 and time.monotonic() < end:
        time.sleep(0.005)
    process = task.status.pid
    assert process
    os.kill(process, signal.SIGKILL)
    assert task.wait(PATIENCE).state == jobs.State.DIED
    made = {path: path.stat().st_mtime_ns for path in (barred.folder / "clips").glob("*.mp4")}
    assert len(made) >= 10
    assert barred.clips == before
    task.go_on()
    assert task.wait(PATIENCE).state == jobs.State.FINISHED
    assert task.result["done"] == "Cropped the bars of 8 clips."
    assert {clip.crop for clip in barred.clips} == {(0, 64, 640, 320)}
    assert {path: path.stat().st_mtime_ns for path in made if path.exists()}.items() <= made.items()
    assert len(barred.history) == 1
    task.go_on()  # as after a kill behind the last change: nothing is done twice
    assert task.wait(PATIENCE).state == jobs.State.FINISHED
    assert task.result["done"] == "Nothing was left to do."
    barred.undo()
    assert barred.clips == before


def test_a_stopped_fix_changes_nothing_and_a_lost_recording_costs_only_itself(barred: Dataset) -> None:
    before, task = barred.clips, barred.task("fix")
    barred.start_fix(read_findings(barred.folder), "crop_bars")
    task.stop()
    status = task.wait(PATIENCE)
    assert status.state == jobs.State.STOPPED
    assert status.message.startswith("stopped while cutting, ")
    assert barred.clips == before
    barred.path_of(before[3]).unlink()
    done = barred.fix(read_findings(barred.folder), "crop_bars")
    assert done.startswith("Cropped the bars of 7 clips. clip3.mov stays: the source video of clip3.mov is missing")
    assert [clip.crop is None for clip in barred.clips] == [number == 3 for number in range(8)]


@pytest.mark.parametrize(
    ("text", "cut", "expected"),
    [
        ("One whole sentence is here. Then more of it.", "of it.", "One whole sentence is here."),
        ("Short. A long second sentence, goes on and on", "and on", "Short. A long second sentence, goes on"),
        ("a circle moves upwards", "wards", "a circle moves"),
        ("unbrokenword", "word", "unbroken"),
    ],
)
def test_a_caption_ends_with_a_sentence_or_a_word(text: str, cut: str, expected: str) -> None:
    assert fixes.shortened(text, cut) == expected


# ---- statistics


def clip(
    number: int, text: str, frames: int = 16, size: tuple[int, int] = (1280, 720), tags: tuple[str, ...] = ()
) -> Clip:
    return Clip(
        file_name=f"clips/{number}.mp4",
        text=text,
        fps=8,
        frames=frames,
        width=size[0],
        height=size[1],
        sha256=str(number),
        tags=tags,
    )


def test_numbers_of_a_few_records() -> None:
    clips = [
        clip(0, "A red fox in the snow", 16, tags=("animal",)),
        clip(1, "zwx, the red fox runs", 20),
        clip(2, "a fox's den", 40, (720, 1280), ("animal", "home")),
        clip(3, "", 1, (300, 300)),
    ]
    found = of_clips(clips, DatasetInfo(trigger_word="zwx"), {"0": 1.5, "1": 2.25})
    assert found.notes == (
        "4 clips, 9.5 s, 1 of them images.",
        "33% of the captions contain the trigger word as written.",
        "Motion is known for 67% of the videos: check again.",
    )
    assert found.counts["Aspect ratios"] == {"16:9": 2, "9:16": 1, "1:1": 1}
    assert found.counts["Sizes"] == {"1280x720": 2, "720x1280": 1, "300x300": 1}
    assert found.counts["Frames per second"] == {"8": 3}
    assert list(found.counts["Words in most captions"].items())[:2] == [("red", 2), ("fox", 2)]
    assert "the" not in found.counts["Words in most captions"]
    assert found.counts["Tags"] == {"animal": 2, "home": 1}
    assert set(found.histograms) == {"duration", "motion", "words"}
    words = found.histograms["words"]
    assert (words.edges, words.counts) == ((3, 4, 5, 6, 7), (1, 0, 1, 1))
    assert sum(found.histograms["duration"].counts) == 3
