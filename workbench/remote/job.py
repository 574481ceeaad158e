"""A job that stands for one on a target: it ends as that one ended, with the same message.

Not covered: what it synchronizes (sync).
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any

from workbench import jobs
from workbench.errors import CannotWrite, ConfigError, ExitCode
from workbench.jobs import reserve
from workbench.workspace import read_json, write_json


class Detached(Exception):
    """Raised to end this process without a result: the run goes on elsewhere, or died there."""


class RemoteJob(jobs.Job):
    """The local process's side of the protocol."""

    @property
    def signalled(self) -> bool:
        """Whether this process was asked to end by a signal, which is not the stop command."""
        return self._stop_signal.is_set()

    def take(self, command: jobs.Command) -> dict[str, Any] | None:
        """As in jobs.Job, but a signal counts as no command."""
        if command == "stop" and self.signalled and not (self.folder / jobs.CONTROL / command).exists():
            return None
        return super().take(command)

    def write_result(self, result: Mapping[str, Any]) -> None:
        """End as the run there did."""
        self.exit_code = ExitCode(result.get("exit_code", ExitCode.BUG))
        self._over.set()
        self._write_beat()
        write_json(self.folder / jobs.RESULT, dict(result))

    def write_death(self, death: Mapping[str, Any]) -> None:
        """Record what the run's process there died of, so that the message here is the same."""
        with contextlib.suppress(CannotWrite, ConfigError):
            write_json(self.folder / jobs.PROCESS, {**read_json(self.folder / jobs.PROCESS), **death})

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        if isinstance(error, Detached):
            self._over.set()
            self.exit_code = ExitCode.STOPPED
            reserve.release(self._result)
            return True
        if error is None and (self.folder / jobs.RESULT).exists():
            reserve.release(self._result)
            return False
        return super().__exit__(kind, error, trace)
