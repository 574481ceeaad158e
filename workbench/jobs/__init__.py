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

from workbench.jobs.control import forget as forget
from workbench.jobs.control import kill as kill
from workbench.jobs.control import put_off as put_off
from workbench.jobs.control import send as send
from workbench.jobs.control import stacks as stacks
from workbench.jobs.control import start as start
from workbench.jobs.control import start_waiting as start_waiting
from workbench.jobs.control import stop as stop
from workbench.jobs.control import wait as wait
from workbench.jobs.job import Command as Command
from workbench.jobs.job import Job as Job
from workbench.jobs.job import Stop as Stop
from workbench.jobs.locks import locked as locked
from workbench.jobs.log import LOG as LOG
from workbench.jobs.log import log_tail as log_tail
from workbench.jobs.reading import CONFIG as CONFIG
from workbench.jobs.reading import CONTROL as CONTROL
from workbench.jobs.reading import HEARTBEAT as HEARTBEAT
from workbench.jobs.reading import PROCESS as PROCESS
from workbench.jobs.reading import RESULT as RESULT
from workbench.jobs.reading import WAITING as WAITING
from workbench.jobs.reading import State as State
from workbench.jobs.reading import Status as Status
from workbench.jobs.reading import ago as ago
from workbench.jobs.reading import jobs_in as jobs_in
from workbench.jobs.reading import result as result
from workbench.jobs.reading import status as status
