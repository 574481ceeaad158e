"""What a node of a cluster does: start the run in its box and stay with it; told to make room, save and queue again.

Submitit calls it there, again after each time limit or preemption. Not covered: submitting it (slurm).
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from workbench import jobs
from workbench.errors import ConfigError
from workbench.remote import folder as box


@dataclass(frozen=True)
class Attempt:
    """One run in one box."""

    root: str
    box: str
    run: str

    def __call__(self) -> str:
        """Run it to its end; returns how it ended. Raises ConfigError when this machine does not see the box."""
        folder = self._folder()
        if not (folder / jobs.CONFIG).exists():
            raise ConfigError(f"{socket.gethostname()} does not see {folder}: choose a folder that every node sees")
        box.start(self.root, self.box, self.run)
        return jobs.wait(folder, poll=1.0).state.value

    def checkpoint(self) -> Any:
        """Save and end, to go on when it is started again: submitit's word for it."""
        from submitit.helpers import DelayedSubmission

        jobs.stop(self._folder())
        jobs.wait(self._folder())
        return DelayedSubmission(self)

    def _folder(self) -> Path:
        return Path(box.folder(self.root, self.box, self.run))
