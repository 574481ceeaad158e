"""The failure of a run in the shell: cause, advice, and a command for each action that helps.

Not covered: what the cause is and what helps (workbench.runs.failures).
"""

from __future__ import annotations

from workbench.runs.failures import Failure


def failure_text(failure: Failure) -> str:
    """What happened and what helps, then the log's last lines."""
    tail = [f"  | {line}" for line in failure.tail.splitlines()]
    return "\n".join([failure.cause, *(f"  {text}" for text in failure.sentences), *tail])


def commands(failure: Failure) -> list[str]:
    """A line for each action, the one that helps most first."""
    return [f"next: {action.command}" for action in failure.actions]
