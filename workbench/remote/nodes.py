"""What a node of a cluster does: run a run in its remote folder, or its part of shared encoding.

Submitit calls a run there, again after each time limit or preemption: it saves, ends and is queued again. Not covered:
submitting (slurm), who encodes what (workbench.jobs.shards).
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench import jobs
from workbench.errors import ConfigError
from workbench.remote import remote_folder
from workbench.trainer.inputs.encoding_job import MODULE, machine_of


@dataclass(frozen=True)
class NodeRun:
    """One run in one remote folder."""

    root: str
    folder: str
    run: str

    def __call__(self) -> str:
        """Run it to its end; returns how it ended. Raises ConfigError when this machine does not see the folder."""
        home = self._home()
        _check_seen(home)
        remote_folder.start(self.root, self.folder, self.run)
        return jobs.wait(home, poll=1.0).state.value

    def checkpoint(self) -> Any:
        """Save and end, to go on when it is started again; the name is submitit's."""
        from submitit.helpers import DelayedSubmission

        jobs.stop(self._home())
        jobs.wait(self._home())
        return DelayedSubmission(self)

    def _home(self) -> Path:
        return Path(remote_folder.run_folder(self.root, self.folder, self.run))


@dataclass(frozen=True)
class NodeEncoding:
    """This machine's part of the encoding in a folder."""

    folder: str

    def __call__(self) -> str:
        """To the end; raises ConfigError when this machine does not see the folder."""
        template = Path(self.folder)
        _check_seen(template)
        own = machine_of(template.parent)
        if not (own / jobs.CONFIG).exists():
            own.mkdir(parents=True, exist_ok=True)
            (own / jobs.CONFIG).write_bytes((template / jobs.CONFIG).read_bytes())
        jobs.start(own, MODULE)
        return jobs.wait(own, poll=1.0).state.value


def _check_seen(folder: Path) -> None:
    if not (folder / jobs.CONFIG).exists():
        raise ConfigError(f"{socket.gethostname()} does not see {folder}: choose a folder on a disk that all nodes see")
