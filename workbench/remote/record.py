"""remote.json: where a run is, and what is known of it there. `open` means: it may be running there.

Not covered: what a run is doing (workbench.jobs says it of this folder, as of any).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Self

from workbench.errors import ConfigError
from workbench.runs.run import REMOTE
from workbench.workspace import read_json, write_json

SCRATCH = ".remote"  # in the run's folder: what the synchronization keeps for itself


@dataclass
class RemoteRecord:
    """What remote.json holds.

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
