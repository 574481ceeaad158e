"""The contract of a backend: it carries a run to a target and says how it is there. One file each.

A backend is made for one run, connected, polled, and closed, all in the process that synchronizes the run. A lost
connection is `Unreachable`, and no error: the connection is made again, and the run there goes on meanwhile. Not
covered: what is brought back and when (sync).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

from workbench.errors import ConfigError
from workbench.remote import remote_folder
from workbench.remote.record import RemoteRecord
from workbench.workspace import Workspace

Progress = Callable[[int, int], None]
"""Called with (bytes sent, all bytes) now and then; may raise to stop."""


class Unreachable(Exception):
    """The target does not answer just now; the text says why. The caller tries again."""


@dataclass(frozen=True)
class TargetCheck:
    """A line of a dry run: what was checked, what was found, what to do when it is not in order (else empty)."""

    title: str
    found: str
    remedy: str = ""


@dataclass(frozen=True)
class RemoteState:
    """A run as seen from here; see remote_folder.poll for the fields. alive: it runs, or waits for its turn there.

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

    kind: of the target's settings;  imports: packages that it needs;  extra: the extra of this package with them
    """

    kind: ClassVar[str]
    extra: ClassVar[str] = ""
    imports: ClassVar[tuple[str, ...]] = ()

    def __init__(self, target: Any, name: str, workspace: Workspace, run: str, record: RemoteRecord) -> None:
        """target: its settings;  name: its name;  run: the run's, "" for a dry run"""
        self.target, self.name, self.workspace, self.run, self.record = target, name, workspace, run, record

    @classmethod
    def require(cls) -> None:
        """Raises ConfigError naming the command that brings a missing package."""
        if missing := [name for name in cls.imports if find_spec(name) is None]:
            raise ConfigError(
                f"a target of the kind {cls.kind} needs {missing[0]}: pip install 'video-lora-workbench[{cls.extra}]'"
            )

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
    def fetch(self, path: str, target: Path) -> None:
        """Copy a file of the run's folder to here. Raises Unreachable; FileNotFoundError when it is gone."""

    @abstractmethod
    def send(self, command: str, payload: dict[str, Any]) -> None:
        """Pass a command on. Raises Unreachable."""

    @abstractmethod
    def kill(self) -> None:
        """End the run at once. Raises Unreachable."""


def environment_checks(there: Mapping[str, Any], here: Mapping[str, Any], free: int) -> list[TargetCheck]:
    """The environment there next to the one here (`remote_folder.environment`), a line a package."""
    title = "video-lora-workbench"
    theirs, ours = there["versions"], here["versions"]
    same = theirs[title] == ours[title]
    checks = [
        TargetCheck("python", str(there["python"])),
        TargetCheck("workbench", theirs[title] or "not installed", "" if same else f"install {ours[title]} there"),
    ]
    for name in remote_folder.PACKAGES:
        found = theirs[name] or "missing"
        note = "" if theirs[name] == ours[name] else f" (here {ours[name]}: a run begun here cannot go on there)"
        checks.append(TargetCheck(name, found + note, "" if theirs[name] else f"pip install {name} there"))
    gpus = "; ".join(there["gpus"])
    checks.append(
        TargetCheck("GPU", gpus or "none", "" if gpus else "fine for the built-in model, too slow for others")
    )
    checks.append(TargetCheck("free disk", f"{free / 1e9:,.0f} GB"))
    return checks
