"""The dataset check finds each fault on the clip that has it, says so in words, and stays silent about the rest."""

from __future__ import annotations

import dataclasses
import shutil
from pathlib import Path

import pytest

from tests.dataset_builder import footage
from tests.patience import PATIENCE
from workbench.clips.records import DatasetInfo, read_clips, read_info
from workbench.dataset_builder import Dataset, history
from workbench.dataset_builder.checks.dataset_check import CheckSettings, check_tokens, read_tokens
from workbench.dataset_builder.checks.findings import Finding, Severity, read_findings, read_report
from workbench.dataset_builder.tasks import Task
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
    assert before is not None
    assert before.new_clips == 0
    assert len({group.kind for group in before.groups}) == len(before.groups)
    assert before.sentence.startswith(f"{len(dataset.clips)} clips checked: ")
    dataset.set_caption("clips/still.mp4", "now it has a caption")
    after = read_report(dataset.folder)
    assert after is not None
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


@pytest.mark.parametrize("values", [{"frames": 10}, {"height": 41}])
def test_a_shape_that_the_model_cannot_draw_is_refused(tmp_path: Path, values: dict[str, int]) -> None:
    dataset = footage.write_footage(tmp_path, {"a": footage.pan(1, 4)}, {})
    task = Task(dataset, "check")
    task.start(CheckSettings(**values))
    status = task.wait(PATIENCE)
    assert (status.state, status.exit_code) == (State.FAILED, 64)
    assert "use" in status.message
