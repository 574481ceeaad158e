"""Operations at work, and how the last ones ended, as HTML.

Not covered: what an operation does (workbench.loras).
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from workbench.jobs import State, duration, log_tail
from workbench.loras.tasks import TASKS, LoraTask
from workbench.ui.core import render

SHOWN = 3  # of those that are over
RECENT_SECONDS = 3600


def working(tasks: Sequence[LoraTask]) -> str:
    """What is under way, and the last that ended within the hour."""
    alive = [task for task in tasks if task.status.state.alive]
    since = time.time() - RECENT_SECONDS
    over = [task for task in tasks if not task.status.state.alive and (task.status.ended_at or 0) > since]
    return "".join([*map(_alive, alive), *map(_over, over[:SHOWN])])


def _alive(task: LoraTask) -> str:
    status = task.status
    left = f" · about {duration(status.seconds_left)} left" if status.seconds_left is not None else ""
    count = f" · layer {status.step} of {status.total}" if status.total else ""
    share = status.step / status.total if status.total else None
    return f'{render.bar(share)}<p class="doing">{render.escaped((status.phase or "starting") + count + left)}</p>'


def _over(task: LoraTask) -> str:
    doing = TASKS[task.name][3] if task.name in TASKS else "the operation"
    if task.status.state is State.FINISHED:
        made = Path(task.made)
        link = f"<p>{render.download(made, made.name)}</p>" if task.name == "convert" else ""
        said = task.said.rpartition(":")[0] if link else task.said
        return render.note(f"{said[:1].upper()}{said[1:]}.", "good") + link
    if task.status.state is State.STOPPED:
        return render.note(f"{doing.capitalize()} was stopped; nothing was made.")
    tail = render.log_box(log_tail(task.folder, 8)) if not task.status.message else ""
    return render.note(f"{doing.capitalize()} did not end well. {task.status.message}", "bad") + tail
