"""For backends with a remote folder behind a file system of fsspec: sshfs for ssh, the local one for a shared disk.

fsspec copies; what has to happen beside the files goes through `call`. Not covered: who runs the run (ssh, slurm).
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from fsspec import AbstractFileSystem
from fsspec.implementations.local import LocalFileSystem

from workbench.errors import CannotWrite
from workbench.remote import remote_folder
from workbench.remote.base import Backend, Progress
from workbench.workspace import writing

BATCH = 64  # files between two checks of what has arrived


class LinkedFiles(LocalFileSystem):
    """This machine's disk, where a copy is the same file under another name."""

    def cp_file(self, path1: str, path2: str, **_: Any) -> None:
        remote_folder.link_or_copy(Path(path1), Path(path2))


class FolderBackend(Backend):
    """All but starting and polling."""

    files: AbstractFileSystem
    links = False  # whether sent files take up no room

    @property
    def root(self) -> str:
        """The target's folder."""
        return str(self.target.folder)

    def call(self, name: str, **values: Any) -> Any:
        """Call a function of remote_folder there. Raises Unreachable, ConfigError, CannotWrite."""
        return getattr(remote_folder, name)(**values)

    @contextlib.contextmanager
    def errors(self) -> Any:
        """Around the work with `files`. Raises Unreachable, CannotWrite, FileNotFoundError."""
        yield

    def where(self) -> dict[str, str]:
        """How remote_folder's functions name the run."""
        return {"root": self.root, "folder": self.record.folder, "run": self.run}

    def upload(self, files: Mapping[str, tuple[str, Path]], progress: Progress) -> None:
        contents = {path: sha256 for path, (sha256, _) in files.items()}
        sources = {sha256: file for sha256, file in files.values()}
        missing = self.call("missing", root=self.root, folder=self.record.folder, files=contents)
        total, sent = sum(sources[sha256].stat().st_size for sha256 in missing), 0
        if not self.links and total > (free := self.call("free_bytes", root=self.root)):
            raise CannotWrite(f"{self.name} has {free / 1e9:,.1f} GB free, {total / 1e9:,.1f} GB are to be sent")
        for start in range(0, len(missing), BATCH):
            batch = list(missing)[start : start + BATCH]
            for sha256 in batch:
                progress(sent, total)
                with self.errors():
                    self.files.put_file(str(sources[sha256]), missing[sha256])
                sent += sources[sha256].stat().st_size
            self.call("store", root=self.root, contents=batch)
        progress(total, total)
        self.call("assemble", **self.where(), files=contents)

    def read(self, path: str, start: int, size: int) -> bytes:
        with self.errors(), self.files.open(f"{self._run_folder}/{path}", "rb") as file:
            file.seek(start)
            data: bytes = file.read(size)
            return data

    def fetch(self, path: str, target: Path) -> None:
        with writing(target):
            target.parent.mkdir(parents=True, exist_ok=True)
        with self.errors():
            self.files.get_file(f"{self._run_folder}/{path}", str(target))

    @cached_property
    def _run_folder(self) -> str:
        return str(self.call("run_folder", **self.where()))

    def send(self, command: str, payload: dict[str, Any]) -> None:
        self.call("send", **self.where(), command=command, payload=payload)

    def kill(self) -> None:
        self.call("kill", **self.where())
