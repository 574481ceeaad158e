"""The errors people see, and the exit code that each gives a job.

    WorkbenchError            70  a bug in the workbench; subclasses are not bugs
    ├── ConfigError           64  a setting breaks a rule
    ├── DataError             65  no usable clips
    ├── ModelUnavailable      69  weights missing, gated or offline (can be retried)
    ├── CannotWrite           73  disk full, read-only, no permission
    ├── DeviceBusy            75  another job holds the GPU (can be retried)
    ├── ResumeRefused         78  the run's data, settings or versions changed
    ├── OutOfMemory           91  the GPU or the machine ran out of memory
    ├── NonFiniteLoss         92  the loss or a gradient became NaN or infinite
    ├── Stalled               93  no progress within stall_timeout
    └── ProcessFailed             one of a job's processes failed, with its exit code

Messages name the setting, its value, the rule and the remedy. `explain` words errors from other libraries the same way.
"""

from __future__ import annotations

import errno
import re
from enum import IntEnum
from typing import Self


class ExitCode(IntEnum):
    """The exit codes of a job's process. The list is complete, so readers can rely on it."""

    FINISHED = 0
    BAD_CONFIG = 64
    BAD_DATA = 65
    MODEL_UNAVAILABLE = 69
    BUG = 70
    CANNOT_WRITE = 73
    DEVICE_BUSY = 75
    RESUME_REFUSED = 78
    STOPPED = 90
    OUT_OF_MEMORY = 91
    NON_FINITE_LOSS = 92
    STALLED = 93


class WorkbenchError(Exception):
    """An error whose message is meant for people.

    Attributes:
        exit_code: the exit code of a job that it ends.
        problems: one sentence for each offending setting, keyed by the setting's name.
    """

    exit_code = ExitCode.BUG

    def __init__(self, message: str, problems: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.problems = problems or {}

    @classmethod
    def about(cls, sentence: str) -> Self:
        """Build an error about the setting that the sentence begins with, beside which a form shows it."""
        return cls(sentence, {sentence.split()[0]: sentence})


class ConfigError(WorkbenchError):
    """A setting breaks a rule."""

    exit_code = ExitCode.BAD_CONFIG

    @classmethod
    def of(cls, setting: str, sentence: str) -> Self:
        """Build an error about one setting, which a form shows beside that setting."""
        return cls(sentence, {setting: sentence})


class Unknown(ConfigError):
    """Nothing has the given name."""


class NotNow(ConfigError):
    """The run (or other object) cannot take this command in its current state."""


class DataError(WorkbenchError):
    """No usable clips, or a dataset that does not fit the chosen model."""

    exit_code = ExitCode.BAD_DATA


class ModelUnavailable(WorkbenchError):
    """The model's files are missing and cannot be downloaded now."""

    exit_code = ExitCode.MODEL_UNAVAILABLE


class CannotWrite(WorkbenchError):
    """A file could not be written: disk full, read-only folder, missing permission."""

    exit_code = ExitCode.CANNOT_WRITE


class DeviceBusy(WorkbenchError):
    """Another job holds the GPU."""

    exit_code = ExitCode.DEVICE_BUSY


class ResumeRefused(WorkbenchError):
    """A run cannot resume exactly where it stopped; the message says what differs."""

    exit_code = ExitCode.RESUME_REFUSED


class OutOfMemory(WorkbenchError):
    """The GPU (or the machine) ran out of memory."""

    exit_code = ExitCode.OUT_OF_MEMORY


class NonFiniteLoss(WorkbenchError):
    """The loss or a gradient became NaN or infinite."""

    exit_code = ExitCode.NON_FINITE_LOSS


class Stalled(WorkbenchError):
    """No progress was made within stall_timeout."""

    exit_code = ExitCode.STALLED


class ProcessFailed(WorkbenchError):
    """One of the processes that share a job's work ended early; the job takes its exit code."""

    def __init__(self, sentence: str, code: int = ExitCode.BUG) -> None:
        super().__init__(sentence)
        self.exit_code = next((one for one in ExitCode if one == code != ExitCode.FINISHED), ExitCode.BUG)


# Messages of libraries whose error types do not tell: out of memory, and disk errors as safetensors words them.
_NO_MEMORY = re.compile(r"out of memory|(can't|cannot) allocate memory|not enough memory|_ALLOC_FAILED", re.IGNORECASE)
_NO_DISK = re.compile(r"\(os error (28|30|122)\)|\bcode: (28|30|122)\b|No space left on device")
_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


def explain(error: BaseException) -> tuple[ExitCode, str]:
    """Return the exit code and one sentence for an error that ended a job."""
    if isinstance(error, WorkbenchError):
        return error.exit_code, str(error)
    text = str(error).strip().split("\n")[0][:500]
    out_of_memory = isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError"
    if out_of_memory or (isinstance(error, RuntimeError | OSError) and _NO_MEMORY.search(text)):
        parts = ["Out of memory:", text, "Lower frames, size, batch size or rank."]
        return ExitCode.OUT_OF_MEMORY, " ".join(filter(None, parts))
    if (isinstance(error, OSError) and error.errno in _DISK_ERRORS) or _NO_DISK.search(text):
        return ExitCode.CANNOT_WRITE, f"The disk refused: {text}. Free some space, or choose another workspace."
    return ExitCode.BUG, f"{type(error).__name__}: {text}".rstrip(": ")[:500]
