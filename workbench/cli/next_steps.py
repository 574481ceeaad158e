"""The card of a failed run in the shell: cause, advice, and a command for each of the card's buttons.

Not covered: which card a run gets (workbench.runs.failures).
"""

from __future__ import annotations

import contextlib
import shlex
from typing import Any

from workbench import jobs
from workbench.errors import ConfigError
from workbench.runs import failures
from workbench.runs.failures import Action, Failure
from workbench.runs.run import Run

LOG_LINES = 200  # of the log's end, in which the cause is looked for


def card_of(run: Run) -> Failure | None:
    """The card of a run that failed or died; None of any other."""
    settings = None
    with contextlib.suppress(ConfigError):  # of another version: its card lacks the changes that would help
        settings = run.settings
    return failures.card(run.status, jobs.log_tail(run.folder, LOG_LINES), run.checkpoints, settings)


def explained(card: Failure) -> str:
    """What happened and what helps, then the log's last lines."""
    words = filter(None, (card.sentence, card.facts, card.saved, card.advice))
    tail = "\n".join(f"  | {line}" for line in card.tail.splitlines())
    return "\n".join(filter(None, (card.cause, *(f"  {text}" for text in words), tail)))


def commands(run: Run, card: Failure) -> list[str]:
    """A line for each button of the card, the one that helps most first."""
    return [f"next: {_command(run, card, action)}" for action in card.actions]


def _command(run: Run, card: Failure, action: Action) -> str:
    changes = "".join(f" {_flag(name, value)}" for name, value in action.settings.items())
    if action.kind == "fork":
        return f"workbench train --fork {run.name}@{card.checkpoint}{changes}"
    if action.kind == "new run":
        return f"workbench train --clone {run.name}{changes}"
    if action.kind == "free space":
        return f"workbench runs prune {run.name} --keep 1"
    if action.kind == "dataset":
        return f"workbench dataset show {run.settings.dataset}"
    if action.kind == "log in":
        return "hf auth login"
    return f"workbench runs start {run.name}{' --from-start' if action.kind == 'from start' else ''}"


def _flag(name: str, value: Any) -> str:
    """A setting as it is typed."""
    flag = name.replace("_", "-")
    if isinstance(value, bool):
        return f"--{flag}" if value else f"--no-{flag}"
    return f"--{flag} {shlex.quote(str(value))}"
