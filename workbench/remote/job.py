"""A job that stands for one elsewhere: it ends as that one ended, in the same words. Not covered: what it mirrors."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import Any, Self

from workbench import jobs
from workbench.errors import CannotWrite, ConfigError, ExitCode
from workbench.jobs import reserve
from workbench.workspace import read_json, write_json


class Leave(Exception):
    """Raised to end the mirror without a result: the run goes on elsewhere, or died there."""


class RemoteJob(jobs.Job):
    """The mirror's own side of the protocol."""

    def __enter__(self) -> Self:
        super().__enter__()
        return self

    @property
    def signalled(self) -> bool:
        """Whether this process was asked to go by a signal, which is not the stop command."""
        return self._stop_signal.is_set()

    def take(self, command: jobs.Command) -> dict[str, Any] | None:
        """As in jobs.Job, but a signal counts as no command."""
        if command == "stop" and self.signalled and not (self.folder / jobs.CONTROL / command).exists():
            return None
        return super().take(command)

    def ended(self, result: Mapping[str, Any]) -> None:
        """End as the run there did."""
        self.exit_code = ExitCode(result.get("exit_code", ExitCode.BUG))
        self._over.set()
        self._write_beat()
        write_json(self.folder / jobs.RESULT, dict(result))

    def died(self, death: Mapping[str, Any]) -> None:
        """Note what the run's process there died of, so that the sentence here is the same."""
        with contextlib.suppress(CannotWrite, ConfigError):
            write_json(self.folder / jobs.PROCESS, {**read_json(self.folder / jobs.PROCESS), **death})

    def __exit__(self, kind: Any, error: BaseException | None, trace: Any) -> bool:
        if isinstance(error, Leave):
            self._over.set()
            self.exit_code = ExitCode.STOPPED
            reserve.release(self._result)
            return True
        if error is None and (self.folder / jobs.RESULT).exists():
            reserve.release(self._result)
            return False
        return super().__exit__(kind, error, trace)
