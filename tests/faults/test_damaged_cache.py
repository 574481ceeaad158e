"""Files of the cache that a bad disk or copy changed: noticed at the next look, encoded again, to the same weights."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path

from tests.driving import create, session
from workbench.clips.records import file_sha256
from workbench.dataset_builder import Dataset
from workbench.families.model import Model
from workbench.runs import checkpoints
from workbench.trainer.loop import train_step
from workbench.workspace import Workspace

STEPS = 3


def flip(path: Path) -> None:
    """One bit of the last number's exponent: the number becomes huge, or next to nothing."""
    data = bytearray(path.read_bytes())
    data[-1] ^= 0b01000000
    path.write_bytes(data)


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:40])


def rename_tensor(path: Path) -> None:
    data = path.read_bytes()
    (length,) = struct.unpack("<Q", data[:8])
    path.write_bytes(data[:8] + data[8 : 8 + length].replace(b"F32", b"I32") + data[8 + length :])


def test_every_damaged_file_is_encoded_again_and_the_run_ends_in_the_same_weights(
    workspace: Workspace, dataset: Dataset, toy_model: Model
) -> None:
    def weights(damage: Callable[[Path], None] | None, before: bool) -> str:
        """The digest of a run's weights; the cache is damaged before it begins, or before its first step."""
        run = create(workspace, toy_model.source, steps=STEPS, batch_size=5)
        entries = list(workspace.cache.glob("*.safetensors"))
        good = {path: path.read_bytes() for path in entries}
        if damage and before:
            for path in entries:
                damage(path)
        made = session(run)
        if damage and not before:
            made.encoder.cache._memory.clear()
            for path in entries:
                damage(path)
        made.evaluate()
        while made.step < STEPS:
            train_step(made)
        made.save()
        made.close()
        used = [path for path in entries if path.exists() and path.read_bytes() == good[path]]
        assert not damage or len(used) >= 6, "at least each clip was read"
        found = file_sha256(checkpoints.folder_of(run.folder, STEPS) / checkpoints.LORA)
        shutil.rmtree(run.folder)  # its name is in the file
        for path, data in good.items():
            path.write_bytes(data)
        return found

    want = weights(None, before=True)
    for damage in (flip, cut, rename_tensor, Path.unlink):
        for before in (True, False):
            assert weights(damage, before) == want, f"{damage.__name__}, before the start: {before}"
