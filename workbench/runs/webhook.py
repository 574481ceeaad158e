"""Post a message to the address in the variable WORKBENCH_WEBHOOK when a run ends, fails or dies.

    python -m workbench.runs.webhook RUN_DIR IDENTITY      waits until the run's process ends, then posts

The run's process starts this one and never waits for it. It has its own session, so it outlives a run that is killed.
Nothing is sent for runs that never started, or if the machine goes down.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from workbench import jobs
from workbench.jobs import platform, processes
from workbench.paths import without_folders
from workbench.workspace import Workspace, read_object

VARIABLE = "WORKBENCH_WEBHOOK"
POLL_SECONDS = 0.5
WAITS = (0.0, 5.0, 30.0)  # seconds before each attempt
TIMEOUT_SECONDS = 15.0


def watch(run: Path) -> None:
    """Start the process that sends the message, if an address is set. Never raises.

    Removes the address from this process's environment, so that no other child inherits it.
    """
    address = os.environ.pop(VARIABLE, "")
    if not address:
        return
    try:
        identity = json.dumps(processes.identity(os.getpid()))  # this process may be gone when the watcher first looks
        command = processes.command(__name__, str(run), identity)
        environment = {**processes.environment(), VARIABLE: address}
        subprocess.Popen(command, stdin=subprocess.DEVNULL, env=environment, **platform.detached())
    except OSError as error:
        sys.stdout.write(f"no message will be sent to {VARIABLE}: {error.strerror}\n")


def message(run: Path) -> dict[str, Any]:
    """Build the message, without secrets and paths."""
    status, config = jobs.status(run), read_object(run / jobs.CONFIG)
    sentence = without_folders(status.message, Workspace.of(run).root)
    return {
        "run": run.name,
        "state": status.state.value,
        "message": sentence,
        "step": status.step,
        "steps": config.get("steps"),
        "dataset": config.get("dataset"),
        "model": without_folders(str(config.get("model", "")), Workspace.of(run).root),
        "ended_at": status.ended_at,
        "text": f"{run.name}: {status.state.value}. {sentence}".strip(),
    }


def problem_of(address: str) -> str:
    """Say why an address cannot be used; "" if it can. Never repeats the address, which may contain a secret."""
    if any(one.isspace() or not one.isprintable() for one in address.strip()):
        return f"{VARIABLE} contains spaces or control characters: write the address without them"
    try:
        parts = urlsplit(address.strip())
        right = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        right = False
    if not right:
        return f"{VARIABLE} is not an http or https address: write it as https://HOST/PATH"
    if "@" in parts.netloc:
        return f"{VARIABLE} has a name or password before its host, which is not supported: put the secret in the path"
    return ""


def send(address: str, content: dict[str, Any]) -> str:
    """Post the message, with retries; return why it failed, or "". Never repeats the address."""
    import httpx

    problem = problem_of(address)
    for seconds in () if problem else WAITS:
        time.sleep(seconds)
        try:  # following a redirect would send a GET without the message, perhaps to another host
            answer = httpx.post(address.strip(), json=content, timeout=TIMEOUT_SECONDS, follow_redirects=False)
        except (OSError, ValueError, httpx.HTTPError, httpx.InvalidURL) as error:  # their messages contain the address
            problem = type(error).__name__
            continue
        if answer.is_success:
            return ""
        problem = f"it answered {answer.status_code}"
        if answer.has_redirect_location:
            problem += f", a redirect, which is not followed: set {VARIABLE} to its target"
        if answer.status_code < 500:
            break
    return problem


def main() -> int:
    run, parent = Path(sys.argv[1]), json.loads(sys.argv[2])
    while processes.alive(parent):
        time.sleep(POLL_SECONDS)
    if jobs.status(run).state.alive:  # the run was restarted; its new process has its own watcher
        return 0
    if problem := send(os.environ.get(VARIABLE, ""), message(run)):
        sys.stdout.write(f"no message was sent to {VARIABLE}: {problem}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
