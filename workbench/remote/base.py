"""The interface of backends, which send a run to a target and report its state, and the record of it, remote.json.

A backend belongs to one run and lives in the process that synchronizes it. A lost connection raises `Unreachable`,
which is not an error: the remote run continues, and the caller connects again.
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
from workbench.snapshots import Check
from workbench.workspace import Workspace, make_folder, read_json, write_json

BATCH = 64  # files sent before the target verifies and stores them
SCRATCH = ".remote"  # in the run's folder: the synchronization's own files
Progress = Callable[[int, int], None]
"""Called regularly with (bytes sent, bytes in total); may raise to stop."""


class Unreachable(Exception):
    """The target does not answer now; the text says why. The caller tries again."""


@dataclass
class RemoteRecord:
    """remote.json: where a run is, and what is known about it."""

    target: str = ""  # its name; "" when the run is to continue on this machine
    folder: str = ""  # the remote folder's name, below the target's own folder
    job: str = ""  # the backend's id of the job
    open: bool = False  # sent, and its result not back yet
    stop_requested: bool = False  # by a person, since it was sent
    log_bytes: int = 0  # how much of the remote log the local log contains
    # sent_at, synced_at: Unix times
    sent_at: float = 0.0
    synced_at: float = 0.0

    @classmethod
    def load(cls, run: Path) -> Self:
        """Load a run's record; an empty one if it was never on a target. Raises ConfigError if the file is broken."""
        path, known = run / REMOTE, {one.name for one in fields(cls)}
        values = read_json(path) if path.exists() else {}
        if not isinstance(values, dict):
            raise ConfigError(f"{path} does not hold an object: remove it, if the run is not running elsewhere")
        return cls(**{name: value for name, value in values.items() if name in known})

    def save(self, run: Path) -> None:
        """Write the record into a run's folder. Raises CannotWrite."""
        write_json(run / REMOTE, asdict(self))


@dataclass(frozen=True)
class RemoteState:
    """The state of a remote run. See RemoteFolder.poll for the other fields."""

    alive: bool  # it runs, or waits for its turn on the target
    state: str
    beat: Mapping[str, Any]
    result: Mapping[str, Any]
    growing: Mapping[str, int]
    files: Mapping[str, Sequence[int]] | None
    listing: str
    death: Mapping[str, Any] = field(default_factory=dict)
    message: str = ""
    interrupted: bool = False  # the target stopped it, not a person, so it should resume


class Backend(ABC):
    """One run on one target."""

    kind: ClassVar[str]  # of the target's settings; also the name of this package's extra that installs `imports`
    imports: ClassVar[tuple[str, ...]] = ()  # the packages that the backend needs

    def __init__(self, target: Any, name: str, workspace: Workspace, run: str, record: RemoteRecord) -> None:
        """target, name: the target's settings and name;  run: the run's name, "" for a dry run."""
        self.target, self.name, self.workspace, self.run, self.record = target, name, workspace, run, record

    @classmethod
    def require(cls) -> None:
        """Raise ConfigError with the command that installs a missing package."""
        if missing := [name for name in cls.imports if find_spec(name) is None]:
            raise ConfigError(f"a target of the kind {cls.kind} needs {missing[0]}: {extra_command(cls.kind)}")

    @abstractmethod
    def check(self) -> list[Check]:
        """Check the target without starting or changing anything. Raises ConfigError, Unreachable."""

    @abstractmethod
    def connect(self) -> None:
        """Connect to the target. Raises Unreachable, or ConfigError if trying again would not help."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection, if there is one."""

    @abstractmethod
    def upload(self, files: Mapping[str, tuple[str, Path]], progress: Progress) -> None:
        """Send files (remote path -> SHA-256 and local file), except contents that the target already has.

        Raises ConfigError, CannotWrite, Unreachable, and what `progress` raises.
        """

    @abstractmethod
    def start(self) -> str:
        """Start the run and return the backend's id of the job. Starting a run twice has no effect.

        Raises ConfigError, CannotWrite, Unreachable.
        """

    @abstractmethod
    def poll(self, listing: str) -> RemoteState:
        """Return the run's state. Raises Unreachable."""

    @abstractmethod
    def read(self, path: str, start: int, size: int) -> bytes:
        """Read bytes of a file in the run's folder. Raises Unreachable, or FileNotFoundError if it is gone."""

    @abstractmethod
    def fetch(self, path: str, target: Path, listing: str) -> None:
        """Download a file of the run's folder, if the target can in the version that the listing shows.

        Raises Unreachable, or FileNotFoundError if it is gone.
        """

    @abstractmethod
    def send(self, command: str, payload: dict[str, Any]) -> None:
        """Send a command to the run. Raises Unreachable."""

    @abstractmethod
    def kill(self) -> None:
        """Kill the run. Raises Unreachable."""


class FolderBackend(Backend):
    """A backend that reaches the remote folder with an fsspec file system; subclasses start and poll.

    fsspec copies files: sshfs over ssh, the local file system on a shared disk. Everything else goes through `call`.
    """

    files: Any  # the file system
    links = False  # whether sent files take no extra disk space

    @property
    def root(self) -> str:
        return str(self.target.folder)

    def call(self, name: str, **values: Any) -> Any:
        """Call a method of RemoteFolder on the target. Raises Unreachable, ConfigError, CannotWrite."""
        return getattr(self.remote, name)(**values)

    @property
    def remote(self) -> RemoteFolder:
        """The remote folder, if this machine sees its disk."""
        return RemoteFolder(self.root, self.record.folder, self.run)

    @contextlib.contextmanager
    def errors(self) -> Any:
        """Translate the errors of `files`. Raises Unreachable, CannotWrite, FileNotFoundError."""
        yield

    def upload(self, files: Mapping[str, tuple[str, Path]], progress: Progress) -> None:
        contents = {path: sha256 for path, (sha256, _) in files.items()}
        sources = {sha256: file for sha256, file in files.values()}
        missing = self.call("missing", files=contents)
        total, sent = sum(sources[sha256].stat().st_size for sha256 in missing), 0
        if not self.links and total > (free := self.call("free_bytes")):
            raise CannotWrite(f"{self.name} has {byte_size(free)} free, but the run's files take {byte_size(total)}")
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


def environment_checks(remote: Mapping[str, Any], local: Mapping[str, Any], free: int) -> list[Check]:
    """Compare the remote environment with the local one (`RemoteFolder.environment`), one line per package."""
    title = "video-lora-workbench"
    theirs, ours = remote["versions"], local["versions"]
    same = theirs[title] == ours[title]
    checks = [
        Check.of("python", str(remote["python"])),
        Check.of("workbench", theirs[title] or "not installed", "" if same else f"install {ours[title]} there"),
    ]
    for name in PACKAGES:
        found = theirs[name] or "missing"
        note = "" if theirs[name] == ours[name] else f" (here {ours[name]}: a run started here cannot resume there)"
        checks.append(Check.of(name, found + note, "" if theirs[name] else f"pip install {name} there"))
    gpus = "; ".join(remote["gpus"])
    remedy = "" if gpus else "fine for the built-in model, too slow for others"
    return [*checks, Check.of("GPU", gpus or "none", remedy), Check.of("free disk", byte_size(free))]
