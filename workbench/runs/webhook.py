"""A message to a person's own address when a run ends, fails or dies: the variable WORKBENCH_WEBHOOK.

    python -m workbench.runs.webhook RUN_DIR IDENTITY      waits for the end of the run's process, then sends

The run's process starts it and never waits for it. It has a session of its own, so that it outlives a run that is
killed. Not covered: runs that never began, a machine that goes down.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from workbench import jobs, policy
from workbench.jobs import processes
from workbench.operating_system import system
from workbench.workspace import read_object

VARIABLE = "WORKBENCH_WEBHOOK"
POLL_SECONDS = 0.5
WAITS = (0.0, 5.0, 30.0)  # seconds before each try
TIMEOUT_SECONDS = 15.0
PATH = re.compile(r"(?<![\w/:.])(?:~|[A-Za-z]:)?[/\\](?:[^\s'\"`,;:()/\\]++[/\\])*")  # the folders of an absolute path


def watch(run: Path) -> None:
    """Start the process that sends the message, where a person has set an address. Never raises."""
    if not os.environ.get(VARIABLE) or policy.current() is not None:
        return
    try:
        identity = json.dumps(processes.identity(os.getpid()))  # by the watcher's first look, this may be over
        command = processes.command(__name__, str(run), identity)
        subprocess.Popen(
            command, stdin=subprocess.DEVNULL, env={**os.environ, **system.python()[1]}, **system.detached()
        )
    except OSError as error:
        sys.stdout.write(f"no message will be sent to {VARIABLE}: {error.strerror}\n")


def message(run: Path) -> dict[str, Any]:
    """What is sent: nothing secret, and no paths."""
    status, config = jobs.status(run), read_object(run / jobs.CONFIG)
    sentence = PATH.sub("", status.message)
    return {
        "run": run.name,
        "state": status.state.value,
        "message": sentence,
        "step": status.step,
        "steps": config.get("steps"),
        "dataset": config.get("dataset"),
        "model": PATH.sub("", str(config.get("model", ""))),
        "ended_at": status.ended_at,
        "text": f"{run.name}: {status.state.value}. {sentence}".strip(),
    }


def problem_of(address: str) -> str:
    """Why nothing can be sent there; "" when it can be tried."""
    try:
        parts = urlsplit(address)
        right = parts.scheme in ("http", "https") and bool(parts.hostname)
    except ValueError:
        right = False
    return "" if right else f"{VARIABLE} is no http or https address: write it as https://HOST/PATH"


def send(address: str, content: dict[str, Any]) -> str:
    """Post it, several times where nobody answers; why it failed, "" when it was taken. The address is not repeated."""
    import urllib.error
    import urllib.request

    headers = {"content-type": "application/json", "user-agent": "video-lora-workbench"}
    problem = problem_of(address)
    for seconds in () if problem else WAITS:
        time.sleep(seconds)
        try:
            request = urllib.request.Request(address, json.dumps(content).encode(), headers)
            urllib.request.urlopen(request, timeout=TIMEOUT_SECONDS).close()
            return ""
        except urllib.error.HTTPError as error:
            error.close()
            problem = f"it answered {error.code}"
            if error.code < 500:
                break
        except (OSError, ValueError) as error:
            problem = type(getattr(error, "reason", error)).__name__
    return problem


def main() -> int:
    run, parent = Path(sys.argv[1]), json.loads(sys.argv[2])
    while processes.alive(parent):
        time.sleep(POLL_SECONDS)
    if jobs.status(run).state.alive:  # started again meanwhile: that process has a watcher of its own
        return 0
    if problem := send(os.environ.get(VARIABLE, ""), message(run)):
        sys.stdout.write(f"no message was sent to {VARIABLE}: {problem}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
