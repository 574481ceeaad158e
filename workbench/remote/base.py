"""The contract of a backend: it carries a run to a target and says how it is there, as remote.json keeps it.

A backend is made for one run, connected, polled, and closed, all in the process that synchronizes the run. A lost
connection is `Unreachable`, and no error: the connection is made again, and the run there goes on meanwhile. Not
covered: what is brought back and when (sync).
"""

from __future__ import annotations

import contextlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Self

from workbench.display.quantities import byte_size
from workbench.errors import CannotWrite, ConfigError
from workbench.paths import extra_command
from workbench.remote.remote_folder import RemoteFolder
from workbench.runs.checkpoints import PACKAGES
from workbench.runs.run import REMOTE
from workbench.workspace import Workspace, make_folder, read_json, write_json

BATCH = 64  # files between two checks of what has arrived
SCRATCH = ".remote"  # in the run's folder: what the synchronization keeps for itself
Progress = Callable[[int, int], None]
"""Called with (bytes sent, all bytes) now and then; may raise to stop."""


class Unreachable(Exception):
    """The target does not answer just now; the text says why. The caller tries again."""


@dataclass
class RemoteRecord:
    """remote.json: where a run is, and what is known of it there.

    target: its name, "" when the run is to go on here;  folder: the remote folder's name, below the target's own
    job: the backend's number of it;  open: sent, and its end not yet brought back;  stop_requested: by a person, since
    it was sent;  log_bytes: how much of the log there is in the log here;  sent_at, synced_at: seconds since the epoch
    """

    target: str = ""
    folder: str = ""
    job: str = ""
    open: bool = False
    stop_requested: bool = False
    log_bytes: int = 0
    sent_at: float = 0.0
    synced_at: float = 0.0

    @classmethod
    def load(cls, run: Path) -> Self:
        """A run's record; an empty one when it never was on a target. Raises ConfigError when it is broken."""
        path, known = run / REMOTE, {one.name for one in fields(cls)}
        values = read_json(path) if path.exists() else {}
        if not isinstance(values, dict):
            raise ConfigError(f"{path} does not hold an object: remove it, if the run is not running elsewhere")
        return cls(**{name: value for name, value in values.items() if name in known})

    def save(self, run: Path) -> None:
        """Raises CannotWrite."""
        write_json(run / REMOTE, asdict(self))


@dataclass(frozen=True)
class TargetCheck:
    """A line of a dry run: what was checked, what was found, what to do when it is not in order (else empty)."""

    title: str
    found: str
    remedy: str = ""


@dataclass(frozen=True)
class RemoteState:
    """A run as seen from here; see RemoteFolder.poll for the fields. alive: it runs, or waits for its turn there.

    interrupted: the target stopped it, not a person; it is to go on.
    """

    alive: bool
    state: str
    beat: Mapping[str, Any]
    result: Mapping[str, Any]
    growing: Mapping[str, int]
    files: Mapping[str, Sequence[int]] | None
    listing: str
    death: Mapping[str, Any] = field(default_factory=dict)
    message: str = ""
    interrupted: bool = False


class Backend(ABC):
    """One run on one target.

    kind: of the target's settings, and the extra of this package with the packages that it needs (imports)
    """

    kind: ClassVar[str]
    imports: ClassVar[tuple[str, ...]] = ()

    def __init__(self, target: Any, name: str, workspace: Workspace, run: str, record: RemoteRecord) -> None:
        """target: its settings;  name: its name;  run: the run's, "" for a dry run"""
        self.target, self.name, self.workspace, self.run, self.record = target, name, workspace, run, record

    @classmethod
    def require(cls) -> None:
        """Raises ConfigError naming the command that brings a missing package."""
        if missing := [name for name in cls.imports if find_spec(name) is None]:
            raise ConfigError(f"a target of the kind {cls.kind} needs {missing[0]}: {extra_command(cls.kind)}")

    @abstractmethod
    def check(self) -> list[TargetCheck]:
        """A dry run: what is there and what is missing. Starts and changes nothing. Raises ConfigError, Unreachable."""

    @abstractmethod
    def connect(self) -> None:
        """Reach the target. Raises ConfigError for what trying again will not fix, Unreachable."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection; harmless when there is none."""

    @abstractmethod
    def upload(self, files: Mapping[str, tuple[str, Path]], progress: Progress) -> None:
        """Send the files (path in the remote folder -> SHA-256, file here); contents that are there are not sent.

        Raises ConfigError, CannotWrite, Unreachable, and what `progress` raises.
        """

    @abstractmethod
    def start(self) -> str:
        """Start the run there; returns the backend's number of it. A second call starts no second one.

        Raises ConfigError, CannotWrite, Unreachable.
        """

    @abstractmethod
    def poll(self, listing: str) -> RemoteState:
        """How it is. Raises Unreachable."""

    @abstractmethod
    def read(self, path: str, start: int, size: int) -> bytes:
        """Bytes of a file of the run's folder. Raises Unreachable; FileNotFoundError when it is gone."""

    @abstractmethod
    def fetch(self, path: str, target: Path, listing: str) -> None:
        """Copy a file of the run's folder, as the listing has it where a target keeps that, to here.

        Raises Unreachable; FileNotFoundError when it is gone.
        """

    @abstractmethod
    def send(self, command: str, payload: dict[str, Any]) -> None:
        """Pass a command on. Raises Unreachable."""

    @abstractmethod
    def kill(self) -> None:
        """End the run at once. Raises Unreachable."""


class FolderBackend(Backend):
    """All but starting and polling, where a file system of fsspec reaches the remote folder.

    fsspec copies: sshfs for ssh, the local one for a shared disk. What happens beside the files goes through `call`.
    """

    files: Any  # the file system
    links = False  # whether sent files take up no room

    @property
    def root(self) -> str:
        return str(self.target.folder)

    def call(self, name: str, **values: Any) -> Any:
        """Call a method of RemoteFolder there. Raises Unreachable, ConfigError, CannotWrite."""
        return getattr(self.there, name)(**values)

    @property
    def there(self) -> RemoteFolder:
        """The remote folder, where this machine sees it."""
        return RemoteFolder(self.root, self.record.folder, self.run)

    @contextlib.contextmanager
    def errors(self) -> Any:
        """Around the work with `files`. Raises Unreachable, CannotWrite, FileNotFoundError."""
        yield

    def upload(self, files: Mapping[str, tuple[str, Path]], progress: Progress) -> None:
        contents = {path: sha256 for path, (sha256, _) in files.items()}
        sources = {sha256: file for sha256, file in files.values()}
        missing = self.call("missing", files=contents)
        total, sent = sum(sources[sha256].stat().st_size for sha256 in missing), 0
        if not self.links and total > (free := self.call("free_bytes")):
            raise CannotWrite(f"{self.name} has {byte_size(free)} free, {byte_size(total)} are to be sent")
        for start in range(0, len(missing), BATCH):
            batch = list(missing)[start : start + BATCH]
            for sha256 in batch:
                progress(sent, total)
                with self.errors():
                    self.files.put_file(str(sources[sha256]), missing[sha256])
                sent += sources[sha256].stat().st_size
            self.call("store", contents=batch)
        progress(total, total)
        self.call("assemble", files=contents)

    def read(self, path: str, start: int, size: int) -> bytes:
        with self.errors(), self.files.open(f"{self._run_folder}/{path}", "rb") as file:
            file.seek(start)
            data: bytes = file.read(size)
            return data

    def fetch(self, path: str, target: Path, listing: str) -> None:
        make_folder(target.parent)
        with self.errors():
            self.files.get_file(f"{self._run_folder}/{path}", str(target))

    @cached_property
    def _run_folder(self) -> str:
        return str(self.call("run_folder"))

    def send(self, command: str, payload: dict[str, Any]) -> None:
        self.call("send", command=command, payload=payload)

    def kill(self) -> None:
        self.call("kill")


def environment_checks(there: Mapping[str, Any], here: Mapping[str, Any], free: int) -> list[TargetCheck]:
    """The environment there next to the one here (`RemoteFolder.environment`), a line a package."""
    title = "video-lora-workbench"
    theirs, ours = there["versions"], here["versions"]
    same = theirs[title] == ours[title]
    checks = [
        TargetCheck("python", str(there["python"])),
        TargetCheck("workbench", theirs[title] or "not installed", "" if same else f"install {ours[title]} there"),
    ]
    for name in PACKAGES:
        found = theirs[name] or "missing"
        note = "" if theirs[name] == ours[name] else f" (here {ours[name]}: a run begun here cannot go on there)"
        checks.append(TargetCheck(name, found + note, "" if theirs[name] else f"pip install {name} there"))
    gpus = "; ".join(there["gpus"])
    checks.append(
        TargetCheck("GPU", gpus or "none", "" if gpus else "fine for the built-in model, too slow for others")
    )
    checks.append(TargetCheck("free disk", byte_size(free)))
    return checks
