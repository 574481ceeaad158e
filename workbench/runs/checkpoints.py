"""Checkpoints: write one atomically, verify it, resume from it bit for bit, and decide which ones to keep.

A checkpoint is a folder checkpoints/step-N (docs/file_formats.md). Its MANIFEST.json, written last, has the size and
sha256 of each file. A damaged one is set aside as .damaged-step-N. It stores no generator state: every random number is
seeded by (run seed, purpose, step).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench import jobs
from workbench.clips.records import file_sha256
from workbench.display.quantities import byte_size
from workbench.errors import CannotWrite, ConfigError, ResumeRefused
from workbench.jobs import platform
from workbench.paths import installed_version
from workbench.runs.analysis.best_point import forecast, points_of
from workbench.runs.analysis.visible_effect import VisibleEffect, best_step, from_line
from workbench.runs.metrics import METRICS, MetricsReader, parse_lines
from workbench.runs.settings import TrainSettings
from workbench.workspace import (
    disk,
    read_json,
    read_object,
    read_to_change,
    step_folders,
    sync_folder,
    write_json,
    writing,
)

FOLDER, MANIFEST, STATE = "checkpoints", "MANIFEST.json", "state.json"
LORA, WEIGHTS = "lora.safetensors", "weights.safetensors"
EMA, OPTIMIZER = "ema.safetensors", "optimizer.safetensors"
PARENT = "parent.json"  # in a fork's folder: which run and checkpoint it started from
PACKAGES = ("torch", "diffusers", "peft", "accelerate", "transformers")  # a run resumes only with the same versions
# Settings that may change on resume: they affect how a run is monitored, what is recomputed or where it runs, but never
# the result.
FREE = frozenset(
    name
    for name in TrainSettings.model_fields
    if name.startswith(("preview_", "evaluate_", "save_", "keep_", "best_point", "tracker"))
    or name in ("preservation_prompts", "stall_timeout", "nccl_timeout", "time_limit", "loader_threads")
    or name in ("gradient_checkpointing", "blocks_to_swap", "oom_fallback", "gpus", "parallel")
    or name in ("base_lora", "training_adapter")  # runs.frozen_loras compares their files, whose paths may differ
    or name == "start_from"  # the checkpoint has its own weights, and the file may be elsewhere on another machine
)
LENGTH = frozenset({"steps", "epochs"})  # these may change, too, if the learning rate does not depend on them
DAMAGED = ".damaged-"  # folder prefix of a checkpoint that was set aside
ROOM = 1.2  # free space that a save needs, as a multiple of the last checkpoint's size


def folder_of(run: Path, step: int) -> Path:
    return run / FOLDER / f"step-{step:08d}"


def publish(run: Path, step: int, fill: Any) -> Path:
    """Write a checkpoint: first its files, then the manifest, then rename it to its final name.

    `fill` writes the files into the folder passed to it. A failure at any point leaves earlier checkpoints untouched.
    Raises CannotWrite.
    """
    final = folder_of(run, step)
    temporary = run / FOLDER / f".tmp-{step}-{os.getpid()}"
    sizes = [bytes_of(folder_of(run, saved)) for saved in steps(run)]
    with writing(final):
        free = shutil.disk_usage(run).free
    if sizes and free < (needed := int(sizes[-1] * ROOM)):
        raise CannotWrite(
            f"cannot write {final}: a checkpoint needs {byte_size(needed)}, but the disk has {byte_size(free)} "
            f"left: free {byte_size(needed - free)}"
        )
    with writing(final):
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        try:
            fill(temporary)
            files = {path.name: _entry(path) for path in sorted(temporary.iterdir())}
            write_json(temporary / MANIFEST, {"step": step, "files": files})
            old = run / FOLDER / f".del-{step}-{os.getpid()}"
            if final.exists():  # saving the same step again: for a moment, there is no intact one
                disk.replace(final, old)
            disk.replace(temporary, final)
            shutil.rmtree(old, ignore_errors=True)
        except BaseException:
            shutil.rmtree(temporary, ignore_errors=True)
            raise
    sync_folder(final.parent)
    _verified[final] = _stats(final)
    return final


def _entry(path: Path) -> dict[str, Any]:
    """Flush a file to disk and return its manifest entry. Raises OSError."""
    with path.open("rb") as file:
        os.fsync(file.fileno())
    return {"bytes": path.stat().st_size, "sha256": file_sha256(path)}


def bytes_of(folder: Path) -> int:
    """Return the size of a checkpoint on disk; 0 if it is removed in the meantime."""
    with contextlib.suppress(FileNotFoundError):
        return sum(path.stat().st_size for path in folder.iterdir() if path.is_file())
    return 0


_verified = dict[Path, tuple[Any, ...]]()  # checkpoints that this process wrote or verified, with their file stats then


def damage(folder: Path) -> str:
    """Say what is wrong with a checkpoint in a few words; "" if every file matches its manifest byte for byte.

    Files that this process has written or verified, and that have not changed since, are not read again.
    """
    try:
        stats = _stats(folder)
        if _verified.get(folder) == stats:
            return ""
        for name, entry in read_json(folder / MANIFEST)["files"].items():
            if not (folder / name).is_file():
                return f"{name} is missing"
            if (folder / name).stat().st_size != entry["bytes"]:
                return f"the size of {name} does not match the manifest"
            if file_sha256(folder / name) != entry["sha256"]:
                return f"the content of {name} does not match the manifest"
    except (ConfigError, KeyError, TypeError, AttributeError):
        return f"its {MANIFEST} is missing or broken"
    except OSError as error:
        return f"it cannot be read: {error.strerror}"
    _verified[folder] = stats
    return ""


def verified(folder: Path) -> bool:
    """Whether every file matches the manifest byte for byte."""
    return not damage(folder)


def _stats(folder: Path) -> tuple[Any, ...]:
    """Return file stats that change whenever a file does: name, size, times and inode."""
    found = ((path.name, path.stat()) for path in sorted(folder.iterdir()))
    return tuple((name, facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino) for name, facts in found)


def set_aside(run: Path, step: int) -> str:
    """Rename a damaged checkpoint so that it is kept but ignored; return its new name. Raises CannotWrite."""
    folder, number = folder_of(run, step), 1
    target = folder.with_name(f"{DAMAGED}{folder.name}")
    with writing(target):
        while target.exists():
            number += 1
            target = folder.with_name(f"{DAMAGED}{folder.name}-{number}")
        disk.replace(folder, target)
    return f"{FOLDER}/{target.name}"


def steps(run: Path) -> list[int]:
    """List the steps that have a checkpoint folder, oldest first, including damaged ones."""
    return list(step_folders(run / FOLDER))


def newest(run: Path) -> tuple[int, Path] | None:
    """Return the newest checkpoint that verifies, as (step, folder)."""
    step, _ = _newest_whole(run)
    return None if step is None else (step, folder_of(run, step))


def _newest_whole(run: Path) -> tuple[int | None, dict[int, str]]:
    """Return the step of the newest intact checkpoint, and what is wrong with each newer one."""
    damaged = dict[int, str]()
    for step in reversed(steps(run)):
        if not (reason := damage(folder_of(run, step))):
            return step, damaged
        damaged[step] = reason
    return None, damaged


def setting_changes(saved: Mapping[str, Any], settings: TrainSettings) -> dict[str, tuple[Any, Any]]:
    """Compare settings with saved ones: name -> (old, new) as JSON values, for those that differ.

    A setting that did not exist when they were saved counts as its default.
    """
    now, defaults = settings.model_dump(mode="json"), TrainSettings().model_dump(mode="json")
    changed = {
        name: (saved.get(name, defaults[name]), value)
        for name, value in now.items()
        if saved.get(name, defaults[name]) != value
    }
    return changed | {name: (value, None) for name, value in saved.items() if name not in now}


def versions_now(names: Iterable[str]) -> dict[str, str]:
    """Look up the installed version of each package, as a checkpoint's state stores it."""
    return {name: installed_version(name) or "not installed" for name in names}


def refuse_changes(
    saved: dict[str, Any],
    settings: TrainSettings,
    lock: list[dict[str, Any]],
    locked: list[Any],
    versions: Mapping[str, str],
) -> None:
    """Refuse to resume a run that would no longer be the same run.

    Args:
        saved, versions: The settings and package versions in the checkpoint's state.
        lock, locked: The clips now, and when the run started.

    Raises ResumeRefused, which names everything that differs.
    """
    free = FREE | (LENGTH if settings.lr_schedule.startswith("constant") else frozenset())
    if settings.preservation_weight:  # the run trains on the prompts
        free -= {"preservation_prompts"}
    changed = setting_changes(saved, settings)
    differences = [f"{name} was {old!r}, is {new!r}" for name, (old, new) in changed.items() if name not in free]
    if lock != locked:
        before, after = {_line(entry) for entry in locked}, {_line(entry) for entry in lock}
        differences += [f"gone: {line}" for line in sorted(before - after)[:5]]
        differences += [f"new: {line}" for line in sorted(after - before)[:5]]
        if before == after:
            pairs = list(zip(locked, lock, strict=False))
            said = {"mask": "different masks for", "told": "different files beside"}
            found = {key: [new["name"] for old, new in pairs if old.get(key) != new.get(key)] for key in said}
            others = [f"{words} {', '.join(found[key][:5])}" for key, words in said.items() if found[key]]
            differences += others or ["different frames or a different order of the same clips"]
    now = versions_now(versions)
    packages = {name: (old, now[name]) for name, old in versions.items() if now[name] != old}
    differences += [f"{name} was {old}, is {new}" for name, (old, new) in packages.items()]
    if differences:
        exact = " ".join(f"{name}=={old}" for name, (old, _) in packages.items())
        back = f"install {exact}" if exact and len(packages) == len(differences) else "undo the changes"
        raise ResumeRefused(
            "this run cannot resume, because it would no longer be the same run: "
            + "; ".join(differences)
            + f". To resume it, {back}; to keep the changes, fork the run"
        )


def refuse_other_form(state: Mapping[str, Any], precision: str, text_form: str | None, title: str) -> None:
    """Refuse to resume a run that would compute in another precision or encode captions differently.

    precision: this machine's;  text_form: how the model reads captions now. Raises ResumeRefused.
    """
    if (before := state.get("precision", precision)) != precision:
        raise ResumeRefused(
            f"the checkpoint was computed in {before}, but this machine computes in {precision}: set precision to "
            f"{before} and resume, or fork the run"
        )
    if state.get("text_form", "") not in (text_form, None):
        raise ResumeRefused(
            f"this checkpoint was trained with captions and positions as an older pipeline of {title} reads them, but "
            f"the run now trains as {text_form} does: fork the run to continue that way"
        )


def _line(entry: dict[str, Any]) -> str:
    return f"{entry['role']} clip {entry['name']} ({entry['sha256'][:8]}), caption {entry['caption'][:60]!r}"


# ---- where a run starts
#
# Damaged checkpoints newer than the one a run resumes from are set aside, so that they neither count nor block a new
# save of the same step. A run that has made progress but has no intact checkpoint is left untouched and does not start
# until the user allows it to start over.

FROM_START = "WORKBENCH_FROM_START"  # environment variable: this run may start over at step 0
NOTHING_WHOLE = "has no whole checkpoint"  # part of every refusal; `failures` looks for it


@dataclass(frozen=True)
class Beginning:
    """Where a run starts: at a checkpoint, or at step 0. `note` tells the user why, if it is unexpected."""

    checkpoint: tuple[int, Path] | None = None
    note: str = ""


def beginning(run: Path, from_start: bool = False) -> Beginning:
    """Find the newest intact checkpoint and set newer, damaged ones aside.

    from_start: if no checkpoint is intact, start over at step 0 and discard the metrics. Raises ResumeRefused,
    CannotWrite.
    """
    found, damaged = _newest_whole(run)
    check_start(run, from_start)
    aside = ", ".join(f"{set_aside(run, step)} ({reason})" for step, reason in damaged.items())
    if found is not None:
        note = f"damaged and set aside: {aside}; the run resumes from step {found}" if aside else ""
        return Beginning((found, folder_of(run, found)), note)
    if not damaged and not _last_step(run):
        return Beginning()
    with writing(run / METRICS):
        (run / METRICS).unlink(missing_ok=True)
    return Beginning(note="started over at step 0, as requested")


def check_start(run: Path, from_start: bool = False) -> None:
    """Refuse to silently start over at step 0. Changes nothing. Raises ResumeRefused."""
    found, damaged = _newest_whole(run)
    made = _last_step(run) if found is None else 0
    if found is not None or not (damaged or made):
        return
    damages = [f"step {step}: {reason}" for step, reason in damaged.items()]
    why = "; ".join(damages) or "none was written, or all were removed"
    if (run / PARENT).exists():
        raise ResumeRefused(f"{run.name} {NOTHING_WHOLE} to resume from ({why}): fork its parent again")
    if not from_start:
        raise ResumeRefused(
            f"{run.name} {NOTHING_WHOLE} to resume from ({why}). Starting it would begin again at step 0 and discard "
            f"the curves up to step {made}: restore a whole checkpoint, or start over with workbench runs start "
            f"{run.name} --from-start"
        )


def from_start_requested() -> bool:
    """Whether this process may start over at step 0 if it has to."""
    return os.environ.get(FROM_START) == "1"


def _last_step(run: Path) -> int:
    return max((int(line["step"]) for line in MetricsReader(run).lines()), default=0)


# ---- which ones to keep: the last ones, one every so many steps, the best one, the starred ones
#
# Only intact checkpoints count as the last ones. Damaged ones are set aside, so that no rule ever removes the newest
# intact one. `doomed` lists in advance what will be removed. Removing is a rename followed by a delete, so a process
# that is killed in between leaves no half checkpoint, and the next `sweep` cleans up.

STARS, CHOSEN = "stars.json", "best.json"
PUBLISHED = "published.json"  # in a checkpoint that was published to the Hub


@dataclass(frozen=True)
class Doomed:
    """A checkpoint that will be removed."""

    step: int
    bytes: int


def starred(run: Path) -> list[int]:
    """List the steps of the starred checkpoints, oldest first."""
    with contextlib.suppress(TypeError, KeyError, ValueError, OverflowError):
        return sorted({int(step) for step in read_object(run / STARS)["checkpoints"]})
    return []


def star(run: Path, step: int, on: bool = True) -> None:
    """Keep a step's checkpoint permanently, or no longer. Raises ConfigError if there is none to keep, CannotWrite."""
    if on and step not in steps(run):
        raise ConfigError(f"{run.name} has no checkpoint of step {step}: choose one of {steps(run)}")
    with jobs.locked(run / ".stars.lock"):
        check_stars(run)
        others = {*starred(run)} - {step}
        write_json(run / STARS, {"checkpoints": sorted({*others, step} if on else others)})


def check_stars(run: Path) -> None:
    """Raise ConfigError if the file of starred checkpoints cannot be read."""
    try:
        if any(not isinstance(step, int) for step in read_to_change(run / STARS).get("checkpoints", ())):
            raise TypeError("checkpoints has an entry that is not a step")
    except TypeError as error:
        raise ConfigError(f"{run / STARS} is damaged ({error}): fix or remove it") from error


def choose_best(run: Path, step: int, why: str) -> None:
    """Record the user's choice of the best checkpoint, and star it. Raises ConfigError if it is gone, CannotWrite."""
    star(run, step)
    write_json(run / CHOSEN, {"step": step, "why": why, "time": time.time()})


def chosen_best(run: Path) -> dict[str, Any]:
    """Return {"step", "why", "time"} of the checkpoint that the user chose as the best; {} if there is none."""
    found = read_object(run / CHOSEN)
    with contextlib.suppress(TypeError, KeyError, ValueError, OverflowError):
        if (step := int(found["step"])) in steps(run):
            return {"step": step, "why": str(found.get("why", "")), "time": found.get("time")}
    return {}


def best(run: Path) -> int | None:
    """Return the best checkpoint's step (`visible_effect.best_step`); None before the first measurement."""
    saved, path = steps(run), run / METRICS
    if not saved or not path.is_file():
        return None
    held_out, effects = dict[int, float](), dict[int, VisibleEffect]()
    with path.open("rb") as lines:
        for line in lines:
            if b'"held_out_loss"' not in line and b'"preview_changes"' not in line:
                continue  # a long run has a million other lines, and few measurements
            for measured in parse_lines(line):
                if "held_out_loss" in measured:
                    held_out[measured["step"]] = measured["held_out_loss"]
                if (effect := from_line(measured)) is not None:
                    effects[measured["step"]] = effect
    return best_step(held_out, saved, effects)


def best_point_step(run: Path) -> int | None:
    """Return the step at which a run reached its best point; None before that, or if it does not look for it."""
    with contextlib.suppress(ConfigError):
        settings, path = TrainSettings.load(run / jobs.CONFIG), run / METRICS
        if settings.best_point != "off" and path.is_file():
            with path.open("rb") as lines:
                measured = [one for line in lines if b'"effect"' in line for one in parse_lines(line)]
            found = forecast(points_of(measured), settings)
            return found.step if found is not None and found.reached else None
    return None


def doomed(run: Path, keep: int, keep_every: int = 0, coming: int | None = None) -> list[Doomed]:
    """List the checkpoints that the rules would remove, oldest first.

    Args:
        keep: How many of the newest intact checkpoints to keep.
        keep_every: Also keep multiples of this many steps; 0 for none.
        coming: Forecast for when this step's checkpoint has been written. A forecast verifies no checkpoint.
    """
    if coming is None:
        last, damaged = _last(run, keep)
        return _removable(run, {*last, *damaged}, keep_every)
    return _removable(run, {*sorted({*steps(run), coming})[-max(1, keep) :]}, keep_every)


def retire(run: Path, keep: int, keep_every: int = 0, written: int | None = None) -> list[Doomed]:
    """Remove what the rules do not keep, and set damaged checkpoints among the last ones aside.

    Args:
        run, keep, keep_every: As in `doomed`.
        written: The step just saved, which is kept; None if the user is freeing space.

    Returns the removed checkpoints. Raises CannotWrite.
    """
    last, damaged = _last(run, keep)
    removable = _removable(run, {*last, *damaged, *([] if written is None else [written])}, keep_every)
    for step in damaged:
        set_aside(run, step)
    gone = []
    for one in removable:
        target = run / FOLDER / f".del-{one.step}-{os.getpid()}"
        with writing(target), contextlib.suppress(FileNotFoundError):  # another process may have removed it first
            if target.exists():
                shutil.rmtree(target)
            disk.replace(folder_of(run, one.step), target)
            gone.append(one)
    sweep(run)
    return gone


def _last(run: Path, keep: int) -> tuple[list[int], list[int]]:
    """Return the steps of the newest `keep` intact checkpoints, and of the damaged ones found on the way."""
    whole, damaged = list[int](), list[int]()
    for step in reversed(steps(run)):
        (whole if verified(folder_of(run, step)) else damaged).append(step)
        if len(whole) == max(1, keep):
            break
    return whole, damaged


def _removable(run: Path, last: set[int], keep_every: int) -> list[Doomed]:
    """List all checkpoints except `last` and those that a rule or the user keeps."""
    saved = steps(run)
    try:
        check_stars(run)
    except ConfigError:  # any of them could be starred
        return []
    kept = {*last, *starred(run), best(run), best_point_step(run), chosen_best(run).get("step")}
    kept |= {step for step in saved if keep_every and step % keep_every == 0}
    folders = {step: folder_of(run, step) for step in saved if step not in kept}
    return [Doomed(step, bytes_of(folder)) for step, folder in folders.items() if not (folder / PUBLISHED).exists()]


def sweep(run: Path) -> None:
    """Delete removed checkpoints and whatever killed processes left behind."""
    folder = run / FOLDER
    for left_over in folder.glob(".del-*"):
        shutil.rmtree(left_over, ignore_errors=True)
    for left_over in folder.glob(".tmp-*"):
        owner = left_over.name.rpartition("-")[2]
        if owner == str(os.getpid()) or not owner.isdecimal() or platform.start_time(int(owner)) is None:
            shutil.rmtree(left_over, ignore_errors=True)
