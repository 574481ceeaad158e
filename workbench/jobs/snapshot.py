"""The snapshot of a background job, which long-running operations return."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from workbench.jobs.reading import State
from workbench.snapshots import Place, Shown, Snapshot


class JobSnapshot(Snapshot):
    """A background job. A long-running operation returns it right away; its `job` operation returns it from then on."""

    id: Annotated[str, Shown("job")]
    """The job's id, which the `job` operation takes."""

    folder: Place
    """The job's folder, with its log."""

    state: str
    """`starting`, `running`, `finished`, `failed`, `stopped` or `died`."""

    message: str
    """What it did or why it failed, in one sentence; empty while it is running."""

    @property
    def over(self) -> bool:
        return not State(self.state).alive

    def outcome(self) -> Iterable[str]:
        """Return the lines that the shell prints when the job has finished."""
        return [self.message]

    def after_failure(self) -> Iterable[str]:
        """Return the lines that the shell prints below the error when the job has failed: what to do about it."""
        return []

    @property
    def goes_on(self) -> str:
        """What the shell prints when it stops watching the job."""
        return f"The job continues in the background: {self.folder}"
