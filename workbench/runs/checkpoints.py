"""Checkpoints: written whole or not at all, verified before they are used, enough in them to go on to the same bits.

    checkpoints/step-00000250/
      lora.safetensors        method lora: the file the stock pipeline loads, float32
      weights.safetensors     method full: the transformer's weights
      also.safetensors        the weights trained in full beside a LoRA (train_also)
      ema.safetensors         their moving average (ema_decay)
      optimizer.safetensors   the optimizer's tensors by parameter name
      state.json              step, settings, versions, gradient scaler, the optimizer's plain values
      MANIFEST.json           bytes and sha256 of each file; written last
    checkpoints/.damaged-step-00000300/     one that is not as its manifest says, set aside (recovery, retention)

Randomness needs no state: every random number is seeded by (run seed, purpose, step). Not covered: moving a run to
other settings (forks), which checkpoints are kept (retention)."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from workbench.clips.records import file_sha256
from workbench.errors import CannotWrite, ConfigError, ResumeRefused
from workbench.operating_system import system
from workbench.quantities import byte_size
from workbench.runs.settings import TrainSettings
from workbench.workspace import read_json, step_folders, sync_folder, write_json, writing

FOLDER, MANIFEST, STATE = "checkpoints", "MANIFEST.json", "state.json"
LORA, WEIGHTS = "lora.safetensors", "weights.safetensors"
EMA, OPTIMIZER = "ema.safetensors", "optimizer.safetensors"
PACKAGES = ("torch", "diffusers", "peft", "accelerate", "transformers")  # a run goes on with the same versions alone
# What may differ when a run goes on: how it is watched and what is computed twice or where, never what is computed.
FREE = frozenset(
    name
    for name in TrainSettings.model_fields
    if name.startswith(("preview_", "evaluate_", "save_", "keep_", "tracker"))
    or name in ("preservation_prompts", "stall_timeout", "nccl_timeout", "time_limit", "loader_threads")
    or name in ("gradient_checkpointing", "blocks_to_swap", "oom_fallback", "gpus", "parallel")
    or name == "start_from"  # a checkpoint has weights of its own, and the file may be elsewhere on another machine
)
LENGTH = frozenset({"steps", "epochs"})  # so may these, where the learning rate does not depend on them
DAMAGED = ".damaged-"  # how the folder's name of a checkpoint begins that was set aside
ROOM = 1.2  # a checkpoint needs so many times the last one's bytes


def folder_of(run: Path, step: int) -> Path:
    return run / FOLDER / f"step-{step:08d}"


def publish(run: Path, step: int, fill: Any) -> Path:
    """Make the checkpoint of a step: `fill(folder)` writes its files, then manifest, then the final name.

    A failure at any point leaves earlier checkpoints as they were. Raises CannotWrite.
    """
    final = folder_of(run, step)
    temporary = run / FOLDER / f".tmp-{step}-{os.getpid()}"
    _check_disk_space(run, final)
    with writing(final):
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        try:
            fill(temporary)
            files = {path.name: _entry(path) for path in sorted(temporary.iterdir())}
            write_json(temporary / MANIFEST, {"step": step, "files": files})
            old = run / FOLDER / f".del-{step}-{os.getpid()}"
            if final.exists():  # the same step is saved again: there is no moment without a whole one but these two
                system.replace(final, old)
            system.replace(temporary, final)
            shutil.rmtree(old, ignore_errors=True)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
    sync_folder(final.parent)
    _whole[final] = _looks(final)
    return final


def _check_disk_space(run: Path, final: Path) -> None:
    """Refuse what would fill the disk half-way, with the number of bytes that are missing. Raises CannotWrite."""
    sizes = [bytes_of(folder_of(run, step)) for step in steps(run)]
    with writing(final):
        free = shutil.disk_usage(run).free
    if sizes and free < (needed := int(sizes[-1] * ROOM)):
        raise CannotWrite(
            f"cannot write {final}: a checkpoint needs {byte_size(needed)} and the disk has {byte_size(free)} "
            f"left: free {byte_size(needed - free)}"
        )


def _entry(path: Path) -> dict[str, Any]:
    """A file's line in the manifest, once the file is on the disk for good. Raises OSError, also what fsync says."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
    return {"bytes": path.stat().st_size, "sha256": file_sha256(path)}


def bytes_of(folder: Path) -> int:
    """What a checkpoint takes on the disk; 0 once its run has removed it, which may happen while it is read."""
    with contextlib.suppress(FileNotFoundError):
        return sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
    return 0


_whole = dict[Path, tuple[Any, ...]]()  # what this process wrote or read and found whole, and how it looked then


def damage(folder: Path) -> str:
    """What is wrong with a checkpoint in a few words, "" when every file is as its manifest says, to the byte.

    What this process has written or read, and nobody has touched since, is not read again.
    """
    try:
        looks = _looks(folder)
        if _whole.get(folder) == looks:
            return ""
        for name, entry in read_json(folder / MANIFEST)["files"].items():
            if not (folder / name).is_file():
                return f"{name} is missing"
            if (folder / name).stat().st_size != entry["bytes"]:
                return f"{name} has another length than its manifest says"
            if file_sha256(folder / name) != entry["sha256"]:
                return f"{name} is not as its manifest says"
    except (ConfigError, KeyError, TypeError, AttributeError):
        return f"its {MANIFEST} is missing or broken"
    except OSError as error:
        return f"it cannot be read: {error.strerror}"
    _whole[folder] = looks
    return ""


def verified(folder: Path) -> bool:
    """Whether every file is as its manifest says, to the byte."""
    return not damage(folder)


def _looks(folder: Path) -> tuple[Any, ...]:
    """What changes with a file: its name, size, times and inode."""
    found = ((path.name, path.stat()) for path in sorted(folder.iterdir()))
    return tuple((name, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino) for name, facts in found)


def set_aside(run: Path, step: int) -> str:
    """Give a damaged checkpoint a name under which nothing counts or removes it; returns that. Raises CannotWrite."""
    folder, number = folder_of(run, step), 1
    target = folder.with_name(f"{DAMAGED}{folder.name}")
    with writing(target):
        while target.exists():
            number += 1
            target = folder.with_name(f"{DAMAGED}{folder.name}-{number}")
        system.replace(folder, target)
    return f"{FOLDER}/{target.name}"


def steps(run: Path) -> list[int]:
    """Steps that have a checkpoint folder, oldest first, damaged ones included."""
    return list(step_folders(run / FOLDER))


def newest(run: Path) -> tuple[int, Path] | None:
    """The newest checkpoint that verifies."""
    for step in reversed(steps(run)):
        if verified(folder_of(run, step)):
            return step, folder_of(run, step)
    return None


def setting_changes(saved: Mapping[str, Any], settings: TrainSettings) -> dict[str, tuple[Any, Any]]:
    """Settings that are not as they were: name -> (old, new), as JSON has them.

    A setting that an older version did not know yet had its default's effect.
    """
    now, defaults = settings.model_dump(mode="json"), TrainSettings().model_dump(mode="json")
    changed = {
        name: (saved.get(name, defaults[name]), value)
        for name, value in now.items()
        if saved.get(name, defaults[name]) != value
    }
    return changed | {name: (value, None) for name, value in saved.items() if name not in now}


def versions_now(names: Iterable[str]) -> dict[str, str]:
    """The installed version of each package, as a checkpoint's state holds it."""
    found = {}
    for name in names:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed"
    return found


def refuse_changes(
    saved: dict[str, Any],
    settings: TrainSettings,
    lock: list[dict[str, Any]],
    locked: list[Any],
    versions: Mapping[str, str],
) -> None:
    """A resumed run must be the same run. Raises ResumeRefused naming what differs.

    saved, versions: settings and packages as the checkpoint's state has them; lock, locked: the clips now and then.
    """
    free = FREE | (LENGTH if settings.lr_schedule.startswith("constant") else frozenset())
    if settings.preservation_weight:  # then these are trained on
        free -= {"preservation_prompts"}
    changed = setting_changes(saved, settings)
    differences = [f"{name} was {old!r}, is {new!r}" for name, (old, new) in changed.items() if name not in free]
    if lock != locked:
        before, after = {_line(entry) for entry in locked}, {_line(entry) for entry in lock}
        differences += [f"gone: {line}" for line in sorted(before - after)[:5]]
        differences += [f"new: {line}" for line in sorted(after - before)[:5]]
        if before == after:
            differences.append("other frames or another order of the same clips")
    now = versions_now(versions)
    packages = {name: (old, now[name]) for name, old in versions.items() if now[name] != old}
    differences += [f"{name} was {old}, is {new}" for name, (old, new) in packages.items()]
    if differences:
        exact = " ".join(f"{name}=={old}" for name, (old, _) in packages.items())
        back = f"install {exact}" if exact and len(packages) == len(differences) else "put it back as it was"
        raise ResumeRefused(
            "this run cannot go on, because it would no longer be the same run: "
            + "; ".join(differences)
            + f". To go on as it was, {back}; to go on as it is now, fork the run"
        )


def _line(entry: dict[str, Any]) -> str:
    return f"{entry['role']} clip {entry['name']} ({entry['sha256'][:8]}), caption {entry['caption'][:60]!r}"
