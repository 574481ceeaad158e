"""Checkpoints: written whole or not at all, verified before they are used, enough in them to go on to the same bits.

    checkpoints/step-00000250/
      lora.safetensors        the file the stock pipeline loads, float32
      optimizer.safetensors   AdamW's moments by parameter name
      state.json              step, settings, versions, gradient scaler
      MANIFEST.json           bytes and sha256 of each file; written last

Randomness needs no state: every draw is seeded by (run seed, purpose, step). Not covered: moving
a run to other settings.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from workbench.clips import file_sha256
from workbench.errors import ConfigError, ResumeRefused
from workbench.trainer.settings import TrainSettings
from workbench.workspace import read_json, sync_folder, write_bytes, write_json, writing

if TYPE_CHECKING:
    import torch

FOLDER, MANIFEST, STATE, LORA, OPTIMIZER = (
    "checkpoints",
    "MANIFEST.json",
    "state.json",
    "lora.safetensors",
    "optimizer.safetensors",
)
# What may differ when a run goes on: how it is watched, never what is computed.
FREE = frozenset(
    name for name in TrainSettings.model_fields if name.startswith(("preview_", "evaluate_", "save_", "keep_"))
)


def folder_of(run: Path, step: int) -> Path:
    return run / FOLDER / f"step-{step:08d}"


def publish(run: Path, step: int, fill: Any) -> Path:
    """Make the checkpoint of a step: `fill(folder)` writes its files, then manifest, then the final name.

    A failure at any point leaves earlier checkpoints as they were. Raises CannotWrite.
    """
    final = folder_of(run, step)
    temporary = run / FOLDER / f".tmp-{step}-{os.getpid()}"
    with writing(final):
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        try:
            fill(temporary)
            files = {
                path.name: {"bytes": path.stat().st_size, "sha256": file_sha256(path)}
                for path in sorted(temporary.iterdir())
            }
            write_json(temporary / MANIFEST, {"step": step, "files": files})
            shutil.rmtree(final, ignore_errors=True)  # only there when it is damaged or the same step is saved again
            os.rename(temporary, final)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
    sync_folder(final.parent)
    return final


def verified(folder: Path) -> bool:
    """Whether every file is as its manifest says, to the byte."""
    try:
        files = read_json(folder / MANIFEST)["files"]
        return all(
            (folder / name).stat().st_size == entry["bytes"] and file_sha256(folder / name) == entry["sha256"]
            for name, entry in files.items()
        )
    except (ConfigError, OSError, KeyError, TypeError):
        return False


def steps(run: Path) -> list[int]:
    """Steps that have a checkpoint folder, oldest first, damaged ones included."""
    return sorted(int(path.name.removeprefix("step-")) for path in (run / FOLDER).glob("step-*"))


def newest(run: Path) -> tuple[int, Path] | None:
    """The newest checkpoint that verifies."""
    for step in reversed(steps(run)):
        if verified(folder_of(run, step)):
            return step, folder_of(run, step)
    return None


def retire(run: Path, keep: int) -> None:
    """Remove all but the newest `keep` checkpoints; sweep what a killed process left half done."""
    for step in steps(run)[:-keep]:
        doomed = run / FOLDER / f".del-{step}-{os.getpid()}"
        with writing(doomed):
            os.rename(folder_of(run, step), doomed)
    for left_over in [*(run / FOLDER).glob(".del-*"), *(run / FOLDER).glob(".tmp-*")]:
        shutil.rmtree(left_over, ignore_errors=True)


def write_optimizer(path: Path, optimizer: torch.optim.Optimizer, names: Sequence[str]) -> None:
    """AdamW's tensors as "<parameter name>/<exp_avg|exp_avg_sq|step>"."""
    from safetensors.torch import save

    tensors = {
        f"{names[index]}/{key}": value.detach().cpu().contiguous()
        for index, entry in optimizer.state_dict()["state"].items()
        for key, value in entry.items()
    }
    write_bytes(path, save(tensors))


def read_optimizer(path: Path, optimizer: torch.optim.Optimizer, names: Sequence[str]) -> None:
    """The other direction. Tensors go to the parameters' device."""
    from safetensors.torch import load_file

    index_of = {name: index for index, name in enumerate(names)}
    entries: dict[int, dict[str, torch.Tensor]] = {}
    for key, tensor in load_file(path).items():
        name, _, kind = key.rpartition("/")
        entries.setdefault(index_of[name], {})[kind] = tensor
    optimizer.load_state_dict({"state": entries, "param_groups": optimizer.state_dict()["param_groups"]})


def refuse_changes(
    saved: dict[str, Any], settings: TrainSettings, lock: list[dict[str, Any]], locked: list[Any]
) -> None:
    """A resumed run must be the same run. Raises ResumeRefused naming what differs."""
    now = settings.model_dump(mode="json")
    free = FREE | ({"steps"} if settings.lr_schedule.startswith("constant") else set())
    differences = [
        f"{name} was {saved.get(name)!r}, is {now.get(name)!r}"
        for name in now
        if name not in free and saved.get(name) != now.get(name)
    ]
    if lock != locked:
        before, after = {_line(entry) for entry in locked}, {_line(entry) for entry in lock}
        differences += [f"gone: {line}" for line in sorted(before - after)[:5]]
        differences += [f"new: {line}" for line in sorted(after - before)[:5]]
    if differences:
        raise ResumeRefused(
            "this run cannot go on, because it would no longer be the same run: "
            + "; ".join(differences)
            + ". Put it back as it was, or start a new run"
        )


def _line(entry: dict[str, Any]) -> str:
    return f"{entry['role']} clip {entry['file_name']} ({entry['sha256'][:8]}), caption {entry['caption'][:60]!r}"
