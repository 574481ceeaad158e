"""`python -m workbench.remote.idle ROOT/.idle`: run a command once a target is idle, so that a rented machine stops.

It is a job of its own on the target, so the machine stops even if the one that sent the runs is switched off. What was
not copied back by then stays on the machine's disk, and is fetched when the run is started again.

    ROOT/.idle/config.json    {"command": "sudo poweroff", "minutes": 15}
    ROOT/.idle/asked          its time says when somebody last asked about a run
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from pathlib import Path

from workbench import jobs
from workbench.errors import ConfigError
from workbench.jobs.log import log
from workbench.workspace import read_json, write_json

MODULE, FOLDER, ASKED = "workbench.remote.idle", ".idle", "asked"
LOOK_SECONDS = 5.0
COMMAND_SECONDS = 120.0


def watch(root: Path, command: str, minutes: float) -> None:
    """Start the job that runs the command after that many minutes without a run or a request. Raises CannotWrite."""
    folder = root / FOLDER
    write_json(folder / jobs.CONFIG, {"command": command, "minutes": minutes})
    asked(root)
    jobs.start(folder, MODULE)


def asked(root: Path) -> None:
    """Note that somebody follows a run, who may still fetch its files."""
    if (root / FOLDER).is_dir():
        with contextlib.suppress(OSError):
            (root / FOLDER / ASKED).touch()


def wait(job: jobs.Job) -> None:
    """Wait until the machine is idle, then run the command. Raises ConfigError if it fails, jobs.Stop if asked to."""
    root, last = job.folder.parent, time.time()
    while True:
        given = read_json(job.folder / jobs.CONFIG)
        busy = sum(jobs.status(home.parent).state.alive for home in root.glob(f"folders/*/runs/*/{jobs.CONFIG}"))
        note = job.folder / ASKED
        last = time.time() if busy else max(last, note.stat().st_mtime if note.exists() else 0.0)
        left = last + 60 * float(given["minutes"]) - time.time()
        if not busy and left <= 0:
            break
        job.beat(f"{busy} running" if busy else f"idle, stops in {max(0.0, left):.0f} s", patient=True)
        job.check_stop("The machine stays on.")
        time.sleep(min(LOOK_SECONDS, max(0.1, left)))
    log(f"no run is left: {given['command']}")
    try:
        done = subprocess.run(
            # The owner's own command line, from a target that visitors of a demo can neither see nor change.
            given["command"],
            shell=True,
            capture_output=True,
            text=True,
            timeout=COMMAND_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise ConfigError(f"when_idle is {given['command']!r}, which did not end: use another command") from error
    if done.returncode:
        output = (done.stderr or done.stdout).strip()[-200:]
        raise ConfigError(f"when_idle is {given['command']!r}, which failed there ({output}): try it on the machine")


if __name__ == "__main__":
    sys.exit(jobs.Job.main(wait))
