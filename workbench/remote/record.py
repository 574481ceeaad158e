"""remote.json: where a run is, and what is known of it there. Its being `open` means: it may be at work there.

Not covered: what a run is doing (workbench.jobs says it of this folder, as of any).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Self

from workbench.errors import ConfigError
from workbench.runs.run import REMOTE
from workbench.workspace import read_json, write_json

SCRATCH = ".remote"  # in the run's folder: what the mirror keeps for itself


@dataclass
class RemoteRecord:
    """What remote.json holds.

    place: its name, "" when the run is to go on here;  box: the run's folder there, below the place's own;  job: the
    engine's number of it;  open: sent, and its end not yet brought back;  stop_asked: by a person, since it was sent
    log_bytes: how much of the log there is in the log here;  sent_at, synced_at: seconds since the epoch
    """

    place: str = ""
    box: str = ""
    job: str = ""
    open: bool = False
    stop_asked: bool = False
    log_bytes: int = 0
    sent_at: float = 0.0
    synced_at: float = 0.0

    @classmethod
    def load(cls, run: Path) -> Self:
        """A run's record; an empty one when it never was elsewhere. Raises ConfigError when it is broken."""
        path, known = run / REMOTE, {one.name for one in fields(cls)}
        values = read_json(path) if path.exists() else {}
        if not isinstance(values, dict):
            raise ConfigError(f"{path} does not hold an object: remove it, if the run is not at work elsewhere")
        return cls(**{name: value for name, value in values.items() if name in known})

    def save(self, run: Path) -> None:
        """Raises CannotWrite."""
        write_json(run / REMOTE, asdict(self))
