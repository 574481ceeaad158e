"""Checkpoints: complete or absent, refused for another run, and which ones are kept."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from workbench.errors import CannotWrite, ResumeRefused
from workbench.runs import checkpoints
from workbench.runs.metrics import METRICS
from workbench.runs.settings import TrainSettings


def fill(folder: Path) -> None:
    for name in (checkpoints.LORA, checkpoints.OPTIMIZER, checkpoints.STATE):
        (folder / name).write_bytes(os.urandom(1000))


def test_the_newest_whole_checkpoint_is_found(tmp_path: Path) -> None:
    for step in (9, 100, 20):
        checkpoints.publish(tmp_path, step, fill)
    assert checkpoints.newest(tmp_path) == (100, checkpoints.folder_of(tmp_path, 100))


@pytest.mark.parametrize("name", [checkpoints.LORA, checkpoints.OPTIMIZER, checkpoints.STATE, checkpoints.MANIFEST])
@pytest.mark.parametrize("damage", ["flip", "cut", "delete"])
def test_a_damaged_file_falls_back_to_the_checkpoint_before(tmp_path: Path, name: str, damage: str) -> None:
    checkpoints.publish(tmp_path, 1, fill)
    path = checkpoints.publish(tmp_path, 2, fill) / name
    data = bytearray(path.read_bytes())
    if damage == "delete":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(data[:-1] if name != checkpoints.MANIFEST else data[: len(data) // 2])
    else:
        place = data.index(b'"sha256": "') + 12 if name == checkpoints.MANIFEST else 500
        data[place] ^= 1
        path.write_bytes(data)
    assert checkpoints.newest(tmp_path) == (1, checkpoints.folder_of(tmp_path, 1))


def test_a_disk_without_room_is_seen_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints.publish(tmp_path, 1, fill)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage._replace(free=3000))
    with pytest.raises(CannotWrite, match=r"needs [\d.]+ kB, but the disk has 3.0 kB left"):
        checkpoints.publish(tmp_path, 2, lambda folder: pytest.fail("it began to write"))
    assert checkpoints.steps(tmp_path) == [1]


SETTINGS = TrainSettings(dataset="cats", steps=100)
CLIP = {"role": "train", "file_name": "clips/1.mp4", "name": "walk.mp4", "sha256": "a" * 64, "caption": "a cat"}


def refuse(saved: TrainSettings | dict[str, Any], now: TrainSettings, **more: Any) -> None:
    """What happens when a run of the saved settings goes on with those of now."""
    dumped = saved if isinstance(saved, dict) else saved.model_dump(mode="json")
    checkpoints.refuse_changes(
        dumped, now, more.get("lock", [CLIP]), more.get("locked", [CLIP]), more.get("versions", {})
    )


def test_a_changed_setting_or_clip_is_named() -> None:
    refuse(SETTINGS, SETTINGS)
    with pytest.raises(ResumeRefused, match="rank was 16, is 8.*fork the run"):
        refuse(SETTINGS, SETTINGS.changed(rank=8))
    with pytest.raises(ResumeRefused, match=r"gone: train clip walk.mp4 .* 'a cat'; new: .* 'a dog'"):
        refuse(SETTINGS, SETTINGS, lock=[{**CLIP, "caption": "a dog"}])
    with pytest.raises(ResumeRefused, match="different frames or a different order of the same clips"):
        refuse(SETTINGS, SETTINGS, lock=[{**CLIP, "frames": [1, 2]}])


def test_another_version_of_a_package_is_named_with_the_way_back() -> None:
    now = version("torch")
    refuse(SETTINGS, SETTINGS, versions={"torch": now})
    with pytest.raises(ResumeRefused, match=rf"torch was 1.0, is {now.replace('+', '.')}.*install torch==1.0; .*fork"):
        refuse(SETTINGS, SETTINGS, versions={"torch": "1.0"})
    with pytest.raises(ResumeRefused, match="nothing-of-that-name was 1.0, is not installed"):
        refuse(SETTINGS, SETTINGS, versions={"nothing-of-that-name": "1.0"})


def test_a_setting_that_an_older_version_did_not_know_had_its_default() -> None:
    older = SETTINGS.model_dump(mode="json")
    for name in ("ema_decay", "time_limit", "dora"):
        del older[name]
    refuse(older, SETTINGS)
    with pytest.raises(ResumeRefused, match="dora was False, is True"):
        refuse(older, SETTINGS.changed(dora=True))


def test_watching_and_more_steps_may_change_unless_the_schedule_counts_them() -> None:
    watched = {
        "preview_every": 7, "save_every": 3, "keep_every": 5, "preservation_prompts": ["a cat"],
        "tracker": "tensorboard", "stall_timeout": 1.0, "time_limit": 5.0, "loader_threads": 4,
    }  # fmt: skip
    refuse(SETTINGS, SETTINGS.changed(steps=200, **watched))
    preserved = SETTINGS.changed(preservation_weight=1.0)
    with pytest.raises(ResumeRefused, match=r"preservation_prompts was \[\], is \['a cat'\]"):
        refuse(preserved, preserved.changed(preservation_prompts=["a cat"]))
    cosine = SETTINGS.changed(lr_schedule="cosine")
    refuse(cosine, cosine.changed(**watched))
    with pytest.raises(ResumeRefused, match="steps was 100, is 200"):
        refuse(cosine, cosine.changed(steps=200))


# ---- which are kept


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run with checkpoints at 10, 20 ... 100, the best of them at 30."""
    for step in range(10, 110, 10):
        checkpoints.publish(tmp_path, step, lambda folder: (folder / "lora.safetensors").write_bytes(b"x" * 1000))
    lines = [{"step": 5, "held_out_loss": 0.1}]  # the very lowest, but nothing was saved there
    lines += [{"step": step, "held_out_loss": 1 + abs(step - 30)} for step in range(0, 110, 10)]
    lines += [{"step": 40, "loss": 0.0}]
    (tmp_path / METRICS).write_text("".join(json.dumps(line) + "\n" for line in lines) + '{"step": 20, "held_out_lo')
    return tmp_path


def test_last_every_best_and_starred_stay_and_the_rest_is_told_first(run: Path) -> None:
    checkpoints.star(run, 50)
    told = checkpoints.doomed(run, keep=2, keep_every=40)
    assert [one.step for one in told] == [10, 20, 60, 70]
    assert all(one.bytes > 1000 for one in told)
    assert checkpoints.steps(run) == list(range(10, 110, 10))  # looking removes nothing
    assert checkpoints.retire(run, keep=2, keep_every=40) == told
    assert checkpoints.steps(run) == [30, 40, 50, 80, 90, 100]
    checkpoints.star(run, 50, on=False)
    assert [one.step for one in checkpoints.doomed(run, keep=2, keep_every=40)] == [50]


def test_the_best_one_is_kept_whose_previews_show_something(run: Path) -> None:
    assert checkpoints.best(run) == 30
    effects = {20: (6.0, 5.0), 40: (7.0, 5.0), 60: (20.0, 5.0)}
    lines = [
        {"step": step, "preview_changes": [own], "control_changes": [control]}
        for step, (own, control) in effects.items()
    ]
    with (run / METRICS).open("a") as metrics:
        metrics.write("\n" + "".join(json.dumps(line) + "\n" for line in lines))
    assert checkpoints.best(run) == 60
    assert 30 in [one.step for one in checkpoints.retire(run, keep=2)]
    assert checkpoints.steps(run) == [60, 90, 100]


def test_what_goes_with_the_next_checkpoint_is_what_went_once_it_is_there(run: Path) -> None:
    told = checkpoints.doomed(run, keep=3, coming=110)
    checkpoints.publish(run, 110, lambda folder: (folder / "lora.safetensors").write_bytes(b"x"))
    assert checkpoints.retire(run, keep=3, keep_every=0, written=110) == told
    assert checkpoints.steps(run) == [30, 90, 100, 110]


def test_the_last_whole_checkpoint_stays_whatever_the_rules_say(run: Path) -> None:
    for step in (80, 90, 100):
        (checkpoints.folder_of(run, step) / "lora.safetensors").write_bytes(b"y" * 1000)
    checkpoints.retire(run, keep=1)
    assert checkpoints.steps(run) == [30, 70]
    assert checkpoints.newest(run) == (70, checkpoints.folder_of(run, 70))
    aside = [f"{checkpoints.DAMAGED}step-{step:08d}" for step in (80, 90, 100)]
    assert sorted(path.name for path in (run / checkpoints.FOLDER).glob(".*")) == aside


@pytest.mark.parametrize("keep", [1, 2])
def test_what_was_just_written_stays_beside_damaged_ones_of_higher_steps(run: Path, keep: int) -> None:
    for step in (90, 100):
        (checkpoints.folder_of(run, step) / "lora.safetensors").write_bytes(b"y" * 1000)
    checkpoints.publish(run, 85, lambda folder: (folder / "lora.safetensors").write_bytes(b"x"))
    checkpoints.retire(run, keep, 0, written=85)
    assert checkpoints.steps(run) == [30, *[80, 85][-keep:]]


def test_leftovers_are_swept_but_not_what_a_living_process_writes(run: Path) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    folder = run / checkpoints.FOLDER
    (folder / f".tmp-110-{gone.pid}").mkdir()
    (folder / f".del-1-{gone.pid}").mkdir()
    (folder / f".tmp-110-{os.getppid()}").mkdir()
    checkpoints.retire(run, keep=100)
    assert [path.name for path in folder.glob(".*")] == [f".tmp-110-{os.getppid()}"]
