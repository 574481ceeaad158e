"""The folder on a target: a content-addressed store, and a small workspace for each run, made of links into the store.

    ROOT/store/SHA256             every file that was ever sent, once
    ROOT/cache/, ROOT/locks/      encoded tensors and device locks, shared by all runs on the target
    ROOT/folders/NAME-ID/         a workspace with one run: runs/NAME, datasets/..., links to cache and locks
    ROOT/folders/NAME-ID/bundle.json    path -> SHA-256 of what was sent last
    ROOT/.idle/                   the job that stops a rented machine (`idle`)

Clips stay as they were when the run was sent, even if the dataset changes later. Every method takes and returns plain
JSON, so that `server` can offer it to another machine.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from workbench import jobs
from workbench.clips.records import file_sha256
from workbench.errors import CannotWrite, ConfigError
from workbench.jobs import devices
from workbench.paths import PACKAGE, installed_version
from workbench.remote import idle
from workbench.runs import checkpoints
from workbench.runs.checkpoints import PARENT
from workbench.runs.metrics import METRICS, SESSIONS
from workbench.runs.run import REMOTE, Run
from workbench.workspace import confined, disk, make_folder, read_json, read_object, write_bytes, write_json, writing

STORE, FOLDERS, BUNDLE = "store", "folders", "bundle.json"
SHARED = ("cache", "locks")
BELOW = "folder:"  # prefix of a path below the remote folder, in a sent config.json
# What each side keeps for itself.
OWN = {jobs.CONFIG, jobs.PROCESS, jobs.HEARTBEAT, jobs.RESULT, jobs.CONTROL, REMOTE, PARENT, "stars.json", "wandb"}
GROWING = (jobs.LOG, METRICS, SESSIONS, "tensorboard/")  # append-only files, or folders of them


class RemoteFolder:
    """The folder of one run below a target's root. The run's name may be "" for methods that need no run."""

    def __init__(self, root: str, name: str, run: str) -> None:
        self.root, self._name, self._run = Path(root).expanduser().resolve(), name, run

    @property
    def folder(self) -> Path:
        return confined(self.root / FOLDERS, self._name)

    @property
    def home(self) -> Path:
        """The run's own folder."""
        return self.folder / "runs" / self._run

    def run_folder(self) -> str:
        return str(self.home)

    @staticmethod
    def environment() -> dict[str, Any]:
        """Return this machine's versions and GPUs."""
        found = {name: installed_version(name) for name in (PACKAGE, *checkpoints.PACKAGES)}
        gpus = [f"{gpu.name}, {gpu.total_gb:.0f} GB" for gpu in devices.gpus()]
        return {"python": platform.python_version(), "versions": found, "gpus": gpus}

    def free_bytes(self) -> int:
        """Return the free bytes on the root's disk."""
        path = self.root
        while not path.exists():
            path = path.parent
        return shutil.disk_usage(path).free

    # ---- what was sent

    def missing(self, files: Mapping[str, str]) -> dict[str, str]:
        """Return which of these files (path -> SHA-256) this machine lacks, as SHA-256 -> where to write it.

        Raises CannotWrite.
        """
        unstored = {sha256: path for path, sha256 in files.items() if not (self.root / STORE / sha256).is_file()}
        missing = sorted(sha256 for sha256, path in unstored.items() if not self._present(path, sha256))
        make_folder(self.root / STORE)
        return {sha256: str(self.part(sha256)) for sha256 in missing}

    def part(self, sha256: str) -> Path:
        """Return where to write a file that is to be stored."""
        return self.root / STORE / f".{_checked(sha256)}.part"

    def store(self, contents: Sequence[str]) -> None:
        """Verify files that were written to their `part`, and store them. Raises CannotWrite if one is incomplete."""
        for sha256 in contents:
            path = self.part(sha256)
            if not path.is_file() or file_sha256(path) != sha256:
                path.unlink(missing_ok=True)
                raise CannotWrite(f"a file arrived incomplete ({sha256[:8]}): send it again, or check the disk there")
            with writing(path):
                disk.replace(path, path.with_name(sha256))

    def assemble(self, files: Mapping[str, str]) -> None:
        """Make the remote folder match what was sent. Raises ConfigError, CannotWrite."""
        target, home = self.folder, self.home
        with writing(target):
            for name in SHARED:
                (self.root / name).mkdir(parents=True, exist_ok=True)
                target.mkdir(parents=True, exist_ok=True)
                if not (target / name).exists():
                    disk.link_folder(Path("../..") / name, target / name)
            if not jobs.status(home).state.alive:  # remove what an earlier start left
                old = () if f"runs/{self._run}/{METRICS}" in files else (METRICS,)  # the run begins at step 0
                for name in (jobs.RESULT, jobs.HEARTBEAT, jobs.PROCESS, *old):
                    (home / name).unlink(missing_ok=True)
            sent = {Path(path).parts[3] for path in files if path.startswith(f"runs/{self._run}/{checkpoints.FOLDER}/")}
            for checkpoint in (home / checkpoints.FOLDER).glob("*"):
                if checkpoint.name not in sent:  # the run continues from the one that was sent
                    shutil.rmtree(checkpoint, ignore_errors=True)
            for path, sha256 in files.items():
                if not self._present(path, sha256):
                    link_or_copy(self.root / STORE / _checked(sha256), self._destination(path))

        def resolved(value: Any) -> Any:
            """Turn settings that name files of the bundle into absolute paths on this machine."""
            if isinstance(value, list):
                return [resolved(one) for one in value]
            below = isinstance(value, str) and value.startswith(BELOW)
            return str(target / value.removeprefix(BELOW)) if below else value

        if (config := home / jobs.CONFIG).exists():
            write_json(config, {name: resolved(value) for name, value in read_json(config).items()})
        write_json(target / BUNDLE, dict(files))

    def _present(self, path: str, sha256: str) -> bool:
        """Whether a file is already at its path. Encoded tensors are identified by their names."""
        target = self._destination(path)
        return target.is_file() and (path.startswith("cache/") or file_sha256(target) == sha256)

    def _destination(self, path: str) -> Path:
        """Return where a sent file goes: into the folder or the shared cache it links to. Raises ConfigError."""
        first, *rest = Path(path).parts
        return confined(self.root / first, Path(*rest)) if first in SHARED and rest else confined(self.folder, path)

    # ---- the run in it

    def start(self) -> None:
        """Start or resume the run; a run that is alive is left alone. Raises ConfigError, CannotWrite."""
        Run(self.home).start()

    def stop_when_idle(self, command: str, minutes: float) -> None:
        """Run a command once no run in any folder has been alive for that many minutes. Raises CannotWrite."""
        idle.watch(self.root, command, minutes)

    def poll(self, listing: str = "") -> dict[str, Any]:
        """Return what the run is doing and which files it has, as a dictionary:

        state: of jobs.Status.
        beat, result: content of heartbeat.json and result.json.
        death: what is known about a process that was killed.
        growing: path -> bytes of append-only files.
        files: path -> [bytes, modification time in ns] of the other files; None if they match the given `listing`.
        listing: a hash of `files`.
        """
        idle.asked(self.root)
        home, growing, files = self.home, dict[str, int](), dict[str, list[int]]()
        for path in _synced(home):
            name = path.relative_to(home).as_posix()
            with contextlib.suppress(FileNotFoundError):  # it was just removed
                facts = path.stat()
                if name.startswith(GROWING):
                    growing[name] = facts.st_size
                else:
                    files[name] = [facts.st_size, facts.st_mtime_ns]
        now = hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()[:16]
        process = read_object(home / jobs.PROCESS)
        return {
            "state": jobs.status(home).state.value,
            "beat": read_object(home / jobs.HEARTBEAT),
            "result": read_object(home / jobs.RESULT),
            "death": {name: process[name] for name in ("signal", "memory_ran_out") if name in process},
            "growing": growing,
            "files": None if now == listing else files,
            "listing": now,
        }

    def send(self, command: jobs.Command, payload: dict[str, Any]) -> None:
        """Send the run a command. Raises CannotWrite."""
        jobs.send(self.home, command, payload)

    def kill(self) -> None:
        """Kill the run's process."""
        jobs.kill(self.home)


def link_or_copy(source: Path, target: Path) -> None:
    """Hard-link a file, or copy it if it may change in place or the disk has no links.

    Raises FileNotFoundError, CannotWrite.
    """
    if source.suffix in (".json", ".jsonl") or target.suffix in (".json", ".jsonl"):
        write_bytes(target, source.read_bytes())
        return
    with writing(target):
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
    try:
        os.link(source, target)
    except FileNotFoundError:
        raise
    except OSError:
        with writing(target):
            shutil.copyfile(source, target)


def synced(name: str) -> bool:
    """Whether a file of a run's folder, given its path in it, is brought back."""
    parts = Path(name).parts
    return not any(part.startswith(".") for part in parts) and parts[0] not in OWN


def _synced(home: Path) -> Iterator[Path]:
    for parent, folders, names in os.walk(home):
        base = Path(parent)
        folders[:] = [name for name in folders if synced((base / name).relative_to(home).as_posix())]
        yield from (base / name for name in names if synced((base / name).relative_to(home).as_posix()))


def _checked(sha256: str) -> str:
    if len(sha256) != 64 or not all(letter in "0123456789abcdef" for letter in sha256):
        raise ConfigError(f"{sha256[:80]!r} is not a SHA-256: both sides must run the same version of the workbench")
    return sha256
