"""Operations that are active, and how the last ones ended, as HTML.

Not covered: what is shown of one (workbench.loras.view).
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from workbench.loras.tasks import LoraTask
from workbench.loras.view import task_view
from workbench.ui.core import render

MOST_FINISHED = 3  # of those that are over
RECENT_SECONDS = 3600


def operations(tasks: Sequence[LoraTask]) -> str:
    """The active operations, and the last that ended within the hour."""
    active = [task for task in tasks if task.status.state.alive]
    since = time.time() - RECENT_SECONDS
    over = [task for task in tasks if not task.status.state.alive and (task.status.ended_at or 0) > since]
    return "".join(map(_operation, [*active, *over[:MOST_FINISHED]]))


def _operation(task: LoraTask) -> str:
    view = task_view(task)
    if view.tone == "going":
        return f'{render.bar(view.share)}<p class="doing">{render.escaped(view.message)}</p>'
    download = f"<p>{render.download(view.download, view.download.name)}</p>" if view.download else ""
    return render.note(view.message, view.tone) + download + (render.log_box(view.log) if view.log else "")
