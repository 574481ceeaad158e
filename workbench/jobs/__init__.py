"""Background jobs: start, stop, watch, re-attach. A job is a folder plus a detached process.

The folder holds everything that is known about the job, and any process may read it at any time:

    config.json      the job's settings
    process.json     {module, pid, start_time, boot_id, started_at}, written by `start`; {signal, memory_ran_out} are
                     added when the process is killed while its starter is alive
    heartbeat.json   {phase, step, total, time, still, step_seconds, message, paused}: progress, written by the job
    control/NAME     one file per command (stop, pause, resume, save, preview); the job deletes it to accept it
    waiting.json     present while the job waits for a process (reading.Ticket)
    job.log          the job's output (log)
    result.json      {status, exit_code, message, ended_at, ...}: how it ended; the last file the job writes

State is derived, never stored: a result says how the job ended. Without one, its process (pid, start time and boot) is
alive, or it waits for a process, or it died.

Everything that starts, ends and watches processes belongs in this package, with locks, devices and workers.
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
