"""Checkpoints: whole or not there, verified to the byte, retired only behind newer ones."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
import torch

from workbench.errors import CannotWrite, ResumeRefused
from workbench.trainer import checkpoint
from workbench.trainer.settings import TrainSettings


def fill(folder: Path) -> None:
    for name in (checkpoint.LORA, checkpoint.OPTIMIZER, checkpoint.STATE):
        (folder / name).write_bytes(os.urandom(1000))


def test_the_newest_whole_checkpoint_is_found(tmp_path: Path) -> None:
    for step in (9, 100, 20):
        checkpoint.publish(tmp_path, step, fill)
    assert checkpoint.newest(tmp_path) == (100, checkpoint.folder_of(tmp_path, 100))


@pytest.mark.parametrize("name", [checkpoint.LORA, checkpoint.OPTIMIZER, checkpoint.STATE, checkpoint.MANIFEST])
@pytest.mark.parametrize("damage", ["flip", "cut", "delete"])
def test_a_damaged_file_falls_back_to_the_checkpoint_before(tmp_path: Path, name: str, damage: str) -> None:
    checkpoint.publish(tmp_path, 1, fill)
    path = checkpoint.publish(tmp_path, 2, fill) / name
    data = bytearray(path.read_bytes())
    if damage == "delete":
        path.unlink()
    elif damage == "cut":
        path.write_bytes(data[:-1] if name != checkpoint.MANIFEST else data[: len(data) // 2])
    else:
        place = data.index(b'"sha256": "') + 12 if name == checkpoint.MANIFEST else 500
        data[place] ^= 1
        path.write_bytes(data)
    assert checkpoint.newest(tmp_path) == (1, checkpoint.folder_of(tmp_path, 1))


def test_a_full_disk_while_saving_leaves_the_earlier_checkpoint_alone(tmp_path: Path) -> None:
    checkpoint.publish(tmp_path, 1, fill)

    def full(folder: Path) -> None:
        fill(folder)
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(CannotWrite, match="the disk is full"):
        checkpoint.publish(tmp_path, 2, full)
    assert checkpoint.newest(tmp_path) == (1, checkpoint.folder_of(tmp_path, 1))
    assert [path.name for path in (tmp_path / checkpoint.FOLDER).iterdir()] == ["step-00000001"]


def test_retiring_keeps_the_newest_and_sweeps_what_a_kill_left(tmp_path: Path) -> None:
    for step in (1, 2, 3, 10):
        checkpoint.publish(tmp_path, step, fill)
    (tmp_path / checkpoint.FOLDER / ".tmp-11-1").mkdir()
    checkpoint.retire(tmp_path, keep=2)
    assert sorted(path.name for path in (tmp_path / checkpoint.FOLDER).iterdir()) == ["step-00000003", "step-00000010"]


def test_optimizer_state_comes_back_to_the_bit(tmp_path: Path) -> None:
    def make() -> tuple[list[torch.nn.Parameter], torch.optim.AdamW]:
        torch.manual_seed(0)
        parameters = [torch.nn.Parameter(torch.randn(3, 2)), torch.nn.Parameter(torch.randn(4))]
        return parameters, torch.optim.AdamW(parameters, lr=0.1, fused=True)

    def step(parameters: list[torch.nn.Parameter], optimizer: torch.optim.AdamW, seed: int) -> None:
        torch.manual_seed(seed)
        for parameter in parameters:
            parameter.grad = torch.randn_like(parameter)
        optimizer.step()

    parameters, optimizer = make()
    step(parameters, optimizer, 1)
    checkpoint.write_optimizer(tmp_path / "o.safetensors", optimizer, ["first", "second"])
    saved = [parameter.detach().clone() for parameter in parameters]
    step(parameters, optimizer, 2)

    others, other = make()
    for parameter, value in zip(others, saved, strict=True):
        parameter.data.copy_(value)
    checkpoint.read_optimizer(tmp_path / "o.safetensors", other, ["first", "second"])
    step(others, other, 2)
    assert all(torch.equal(a, b) for a, b in zip(parameters, others, strict=True))


def test_a_changed_setting_or_clip_is_named() -> None:
    settings = TrainSettings(dataset="cats")
    saved = settings.model_dump(mode="json")
    entry = {"role": "train", "file_name": "clips/1.mp4", "sha256": "a" * 64, "caption": "a cat"}
    checkpoint.refuse_changes(saved, settings, [entry], [entry])
    with pytest.raises(ResumeRefused, match="rank was 16, is 8"):
        checkpoint.refuse_changes(saved, settings.changed(rank=8), [entry], [entry])
    with pytest.raises(ResumeRefused, match=r"gone: train clip clips/1.mp4 .* 'a cat'; new: .* 'a dog'"):
        checkpoint.refuse_changes(saved, settings, [{**entry, "caption": "a dog"}], [entry])


def test_watching_and_more_steps_may_change_unless_the_schedule_counts_them() -> None:
    settings = TrainSettings(dataset="cats", steps=100)
    more = settings.changed(steps=200, preview_every=7, save_every=3)
    checkpoint.refuse_changes(settings.model_dump(mode="json"), more, [], [])
    cosine = settings.changed(lr_schedule="cosine")
    with pytest.raises(ResumeRefused, match="steps was 100, is 200"):
        checkpoint.refuse_changes(cosine.model_dump(mode="json"), cosine.changed(steps=200), [], [])
