"""A switch for desktop notifications of runs that end or fail, in the page's frame: it counts for the browser alone.

The browser's half is assets/notifications.js, which asks for permission, remembers the switch, and tells only while the
page is hidden.
"""

from __future__ import annotations

import time
from typing import Any

from pydantic import BaseModel

from workbench.jobs import Status
from workbench.paths import without_folders
from workbench.ui.core import render
from workbench.ui.core.boundary import answering
from workbench.ui.core.live import Live
from workbench.ui.core.widgets import component

RECENT_SECONDS = 86400.0  # how long a run that is over is looked at
MOST_TEXT = 200  # characters


class Nothing(BaseModel):
    """What the browser asks with."""


class Notifications:
    """Builds the component; its event is open {"name"}, at a click on a notification."""

    def __init__(self, live: Live) -> None:
        self.live = live
        functions = [answering("run_ends", Nothing, self.runs)]
        self.component = component("notifications", {}, render.script("notifications"), "notifications", functions)

    def runs(self, request: Nothing) -> dict[str, Any]:
        """The living runs and those that ended lately. mark: changes when a run starts, and when it ends"""
        since = time.time() - RECENT_SECONDS
        return {"runs": [_data(one) for one in self.live.statuses() if one.state.alive or (one.ended_at or 0) > since]}


def _data(status: Status) -> dict[str, Any]:
    over = not status.state.alive
    return {
        "name": status.name,
        "over": over,
        "mark": f"{status.state} {status.ended_at}" if over else f"began {status.started_at}",
        "title": f"{status.name}: {status.state}",
        "text": without_folders(status.message)[:MOST_TEXT],
    }
