"""Background jobs: start, stop, watch, re-attach. A job is a folder plus a detached process.

The folder holds everything; any process may read it at any time and derives the truth from it:

    config.json      the job's settings
    process.json     {module, pid, start_time, boot_id, started_at}: who runs it, by `start`; later {signal,
                     memory_ran_out} of a process that was killed, where its starter still lived
    heartbeat.json   {phase, step, total, time, still, step_seconds, message, paused}: where it is, written by the job
    control/NAME     a file a command (stop, pause, resume, save, preview); the job takes it by deleting it
    waiting.json     of a job that waits and has no process yet (reading.Ticket)
    job.log          the job's output (log)
    result.json      {status, exit_code, message, ended_at, ...}: how it ended, written last, by the job

State is derived, never stored: a result file says how it ended; else the process with that pid, start time and boot is
alive, or it waits for one, or it died.

Everything that starts, ends and watches processes belongs in this package, with locks, GPUs and workers. This module
names what others use most.
"""

from __future__ import annotations

from workbench.jobs.control import (
    forget,
    kill,
    put_off,
    send,
    stacks,
    start,
    start_waiting,
    stop,
    wait,
)
from workbench.jobs.job import Command, Job, Stop, main
from workbench.jobs.locks import locked
from workbench.jobs.log import LOG, log_tail
from workbench.jobs.reading import (
    CONFIG,
    CONTROL,
    HEARTBEAT,
    PROCESS,
    RESULT,
    WAITING,
    State,
    Status,
    ago,
    jobs_in,
    result,
    status,
)

__all__ = [
    "CONFIG",
    "CONTROL",
    "HEARTBEAT",
    "LOG",
    "PROCESS",
    "RESULT",
    "WAITING",
    "Command",
    "Job",
    "State",
    "Status",
    "Stop",
    "ago",
    "forget",
    "jobs_in",
    "kill",
    "locked",
    "log_tail",
    "main",
    "put_off",
    "result",
    "send",
    "stacks",
    "start",
    "start_waiting",
    "status",
    "stop",
    "wait",
]
