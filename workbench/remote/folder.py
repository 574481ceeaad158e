"""The other side's folder: a store of files by content, and a small workspace a run, made of links into it.

    ROOT/store/SHA256             every file that was ever sent, once
    ROOT/cache/, ROOT/locks/      encoded tensors and device locks, shared by all runs there
    ROOT/boxes/NAME-ID/           a workspace with one run: runs/NAME, datasets/..., links to cache and locks
    ROOT/boxes/NAME-ID/bundle.json    path -> SHA-256: what was sent last

A box holds the clips as they were when the run was sent, whatever becomes of the dataset. Every function takes and
gives plain JSON, so that `there` can offer it from afar. Not covered: how files get into the store (base).
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from workbench import jobs
from workbench.clips.records import file_sha256
from workbench.errors import CannotWrite, ConfigError
from workbench.jobs import devices
from workbench.runs.checkpoints import FOLDER as CHECKPOINTS
from workbench.runs.metrics import METRICS
from workbench.runs.run import PARENT, REMOTE, Run
from workbench.runs.sessions import SESSIONS
from workbench.workspace import confined, read_json, write_bytes, write_json, writing

STORE, BOXES, BUNDLE = "store", "boxes", "bundle.json"
SHARED = ("cache", "locks")
HERE = "box:"  # in a sent config.json: the rest of the text is a path below the box
PACKAGES = ("torch", "diffusers", "peft", "accelerate", "transformers")
# What belongs to the job's process on its own side, or is true only there.
OWN = {jobs.CONFIG, jobs.PROCESS, jobs.HEARTBEAT, jobs.RESULT, jobs.CONTROL, REMOTE, PARENT, "stars.json", "wandb"}
GROWING = (jobs.LOG, METRICS, SESSIONS, "tensorboard/")  # files that grow, or folders of such


def about() -> dict[str, Any]:
    """What is here: versions, devices, room."""
    found = {}
    for name in ("video-lora-workbench", *PACKAGES):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = ""
    gpus = [f"{gpu.name}, {gpu.total_gb:.0f} GB" for gpu in devices.gpus()]
    return {"python": platform.python_version(), "versions": found, "gpus": gpus}


def room(root: str) -> int:
    """Bytes that are free where the folder is, or will be."""
    place = _root(root)
    while not place.exists():
        place = place.parent
    return shutil.disk_usage(place).free


def missing(root: str, box: str, files: Mapping[str, str]) -> list[str]:
    """Which contents (SHA-256) of path -> SHA-256 are neither in the store nor at their path in the box already."""
    base = _root(root)
    wanted = {sha256: path for path, sha256 in files.items() if not (base / STORE / sha256).is_file()}
    return sorted(sha256 for sha256, path in wanted.items() if not _there(base, _box(base, box), path, sha256))


def _there(base: Path, place: Path, path: str, sha256: str) -> bool:
    """Whether a file is at its place; of encoded tensors the name says enough."""
    target = confined_target(base, place, path)
    return target.is_file() if path.startswith("cache/") else _is(target, sha256)


def part(root: str, sha256: str) -> str:
    """Where a file on its way into the store is to be written."""
    base = _root(root) / STORE
    with writing(base):
        base.mkdir(parents=True, exist_ok=True)
    return str(base / f".{_checked(sha256)}.part")


def keep(root: str, contents: Sequence[str]) -> None:
    """Take files that were written to their `part` into the store. Raises CannotWrite for one that is not whole."""
    base = _root(root) / STORE
    for sha256 in contents:
        path = base / f".{_checked(sha256)}.part"
        if not path.is_file() or file_sha256(path) != sha256:
            path.unlink(missing_ok=True)
            raise CannotWrite(f"a file did not arrive whole ({sha256[:8]}): send it again, or check the disk there")
        with writing(base):
            os.replace(path, base / sha256)


def lay_out(root: str, box: str, run: str, files: Mapping[str, str]) -> None:
    """Make the box hold exactly what was sent. Raises ConfigError, CannotWrite."""
    base = _root(root)
    place = _box(base, box)
    home = place / "runs" / run
    with writing(place):
        for name in SHARED:
            (base / name).mkdir(parents=True, exist_ok=True)
            place.mkdir(parents=True, exist_ok=True)
            if not (place / name).exists():
                (place / name).symlink_to(Path("../..") / name)
        if not jobs.status(home).state.alive:  # what an earlier start left says nothing of the next one
            gone = () if f"runs/{run}/{METRICS}" in files else (METRICS,)  # it begins at step 0
            for name in (jobs.RESULT, jobs.HEARTBEAT, jobs.PROCESS, *gone):
                (home / name).unlink(missing_ok=True)
        sent = {Path(path).parts[3] for path in files if path.startswith(f"runs/{run}/{CHECKPOINTS}/")}
        for other in (home / CHECKPOINTS).glob("*"):
            if other.name not in sent:  # where the run is now is what was sent
                shutil.rmtree(other, ignore_errors=True)
        for path, sha256 in files.items():
            if not _there(base, place, path, sha256):
                _put(base / STORE / _checked(sha256), confined_target(base, place, path))
    _place_paths(place, home / jobs.CONFIG)
    write_json(place / BUNDLE, dict(files))


def confined_target(base: Path, place: Path, path: str) -> Path:
    """Where a sent file goes: below the box, or below the shared cache that the box links to. Raises ConfigError."""
    first, *rest = Path(path).parts
    return confined(base / first, Path(*rest)) if first in SHARED and rest else confined(place, path)


def _put(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.suffix in (".json", ".jsonl"):  # these change in their place
        write_bytes(target, source.read_bytes())
        return
    target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except OSError:  # a file system without links
        shutil.copyfile(source, target)


def _place_paths(place: Path, config: Path) -> None:
    """Turn the settings that name files of the bundle into paths of this machine."""

    def here(value: Any) -> Any:
        if isinstance(value, list):
            return [here(one) for one in value]
        return str(place / value.removeprefix(HERE)) if isinstance(value, str) and value.startswith(HERE) else value

    if config.exists():
        write_json(config, {name: here(value) for name, value in read_json(config).items()})


# ---- the run in it


def folder(root: str, box: str, run: str) -> str:
    """The run's folder."""
    return str(_run(root, box, run))


def start(root: str, box: str, run: str) -> None:
    """Start the run, or let it go on; one that runs is left alone. Raises ConfigError, CannotWrite."""
    Run(_run(root, box, run)).start()


def look(root: str, box: str, run: str, listing: str = "") -> dict[str, Any]:
    """What the run is doing, and the files it has.

    state: of jobs.Status;  beat, result: its files' content;  death: what is known of a process that was killed
    growing: path -> bytes of files that grow;  files: path -> [bytes, time of change in ns] of the others, None when
    they are as in the `listing` asked with;  listing: a short name of them
    """
    home = _run(root, box, run)
    growing, files = {}, {}
    for path in _mirrored(home):
        name = path.relative_to(home).as_posix()
        try:
            facts = path.stat()
        except FileNotFoundError:  # on its way out
            continue
        if name.startswith(GROWING):
            growing[name] = facts.st_size
        else:
            files[name] = [facts.st_size, facts.st_mtime_ns]
    now = hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()[:16]
    process = _json(home / jobs.PROCESS)
    return {
        "state": jobs.status(home).state.value,
        "beat": _json(home / jobs.HEARTBEAT),
        "result": _json(home / jobs.RESULT),
        "death": {name: process[name] for name in ("signal", "memory_ran_out") if name in process},
        "growing": growing,
        "files": None if now == listing else files,
        "listing": now,
    }


def send(root: str, box: str, run: str, command: jobs.Command, payload: dict[str, Any]) -> None:
    """Leave a command for the run. Raises CannotWrite."""
    jobs.send(_run(root, box, run), command, payload)


def end(root: str, box: str, run: str) -> None:
    """End the run's process at once."""
    jobs.kill(_run(root, box, run))


def mirrored(name: str) -> bool:
    """Whether a file of a run's folder, by its path there, is brought back."""
    parts = Path(name).parts
    return not any(part.startswith(".") for part in parts) and parts[0] not in OWN


def _mirrored(home: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(home):
        base = Path(parent)
        folders[:] = [name for name in folders if mirrored((base / name).relative_to(home).as_posix())]
        yield from (base / name for name in names if mirrored((base / name).relative_to(home).as_posix()))


def _json(path: Path) -> dict[str, Any]:
    try:
        value = read_json(path) if path.exists() else {}
    except ConfigError:  # half written
        return {}
    return value if isinstance(value, dict) else {}


def _root(root: str) -> Path:
    return Path(root).expanduser().resolve()


def _box(base: Path, box: str) -> Path:
    return confined(base / BOXES, box)


def _run(root: str, box: str, run: str) -> Path:
    return _box(_root(root), box) / "runs" / run


def _checked(sha256: str) -> str:
    if len(sha256) != 64 or not all(letter in "0123456789abcdef" for letter in sha256):
        raise ConfigError(f"{sha256[:80]!r} is no SHA-256: both sides must run the same version of the workbench")
    return sha256


def _is(path: Path, sha256: str) -> bool:
    return path.is_file() and file_sha256(path) == sha256
