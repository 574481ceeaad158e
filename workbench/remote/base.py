"""The contract of an engine: whatever carries a run to a place and tells how it is there. One file each.

An engine is made for one run, opened, asked, and closed, all in the mirror's process. Losing the connection is
`Lost`, and no error: the mirror opens it again, and the run there goes on meanwhile. Not covered: what is brought back
and when (mirror).
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

from workbench import jobs
from workbench.errors import ConfigError, ExitCode
from workbench.remote import folder
from workbench.remote.record import RemoteRecord
from workbench.workspace import Workspace

Tell = Callable[[int, int], None]
"""Called with (bytes sent, all bytes) now and then; may raise to stop."""


class Lost(Exception):
    """The place does not answer just now; the text says why. It is asked again."""


@dataclass(frozen=True)
class TargetCheck:
    """A line of a dry run: what was looked at, what was found, what to do when it is not in order (else empty)."""

    title: str
    found: str
    remedy: str = ""


@dataclass(frozen=True)
class RemoteState:
    """A run as seen from here; see box.look for the fields. alive: it runs, or waits for its turn there.

    interrupted: it was stopped by the place, not by a person, and wants to go on.
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


def ended(status: jobs.State, code: ExitCode, message: str) -> dict[str, Any]:
    """The result of a run that could not write its own."""
    return {"status": status.value, "exit_code": int(code), "message": message, "ended_at": time.time()}


class Backend(ABC):
    """One run at one place.

    kind: of the place's settings;  extra: the extra of this package that brings what it imports;  imports: the packages
    """

    kind: ClassVar[str]
    extra: ClassVar[str] = ""
    imports: ClassVar[tuple[str, ...]] = ()

    def __init__(self, place: Any, name: str, workspace: Workspace, run: str, record: RemoteRecord) -> None:
        """place: its settings;  name: its name;  run: the run's, "" for a dry run"""
        self.place, self.name, self.workspace, self.run, self.record = place, name, workspace, run, record

    @classmethod
    def require(cls) -> None:
        """Raises ConfigError naming the command that brings a missing package."""
        if lacking := [name for name in cls.imports if find_spec(name) is None]:
            raise ConfigError(
                f"a place of the kind {cls.kind} needs {lacking[0]}: pip install 'video-lora-workbench[{cls.extra}]'"
            )

    @abstractmethod
    def check(self) -> list[TargetCheck]:
        """A dry run: what is there and what is missing. Starts and changes nothing. Raises ConfigError, Lost."""

    @abstractmethod
    def open(self) -> None:
        """Reach the place. Raises ConfigError for what trying again will not fix, Lost."""

    @abstractmethod
    def close(self) -> None:
        """Let go of it; harmless when it was never opened."""

    @abstractmethod
    def hand_over(self, files: Mapping[str, tuple[str, Path]], tell: Tell) -> None:
        """Bring the files (path in the box -> SHA-256, file here) there; what is there already is not sent.

        Raises ConfigError, CannotWrite, Lost, and what `tell` raises.
        """

    @abstractmethod
    def start(self) -> str:
        """Start the run there; the engine's number of it. Asked again, it starts no second one.

        Raises ConfigError, CannotWrite, Lost.
        """

    @abstractmethod
    def look(self, listing: str) -> RemoteState:
        """How it is. Raises Lost."""

    @abstractmethod
    def read(self, path: str, start: int, size: int) -> bytes:
        """Bytes of a file of the run's folder. Raises Lost; FileNotFoundError when it is gone."""

    @abstractmethod
    def fetch(self, path: str, target: Path) -> None:
        """Copy a file of the run's folder to here. Raises Lost; FileNotFoundError when it is gone."""

    @abstractmethod
    def send(self, command: str, payload: dict[str, Any]) -> None:
        """Pass a command on. Raises Lost."""

    @abstractmethod
    def end(self) -> None:
        """End the run at once. Raises Lost."""


def findings(about: Mapping[str, Any], mine: Mapping[str, Any], free: int) -> list[TargetCheck]:
    """What `box.about` of the other side comes to, next to this side's own."""
    theirs, ours = about["versions"], mine["versions"]
    title = "video-lora-workbench"
    same = theirs[title] == ours[title]
    lines = [
        TargetCheck("python", str(about["python"])),
        TargetCheck("workbench", theirs[title] or "not installed", "" if same else f"install {ours[title]} there"),
    ]
    for name in folder.PACKAGES:
        found = theirs[name] or "missing"
        note = "" if theirs[name] == ours[name] else f" (here {ours[name]}: a run begun here cannot go on there)"
        lines.append(TargetCheck(name, found + note, "" if theirs[name] else f"pip install {name} there"))
    gpus = "; ".join(about["gpus"])
    lines.append(TargetCheck("GPU", gpus or "none", "" if gpus else "fine for the built-in model, too slow for others"))
    lines.append(TargetCheck("free disk", f"{free / 1e9:,.0f} GB"))
    return lines
