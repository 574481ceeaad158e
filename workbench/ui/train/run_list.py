"""The list of runs: by groups, with a search and an order; one of them is shown beside it.

The browser's half is assets/run_list.js.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from workbench.display import states
from workbench.runs.listing import SORT_KEYS, RunEntry, by_group, matching, ordered
from workbench.ui.core import render
from workbench.ui.core.boundary import answering
from workbench.ui.core.live import Live
from workbench.ui.core.widgets import component

MOST = 200  # rows at once; the search finds among all
FEW = 6  # runs from which on there is something to search
NOTES = 100  # characters of the notes


class ListRequest(BaseModel):
    """What the browser asks for."""

    search: str = ""
    order: Any = "newest"


class RunList:
    """Builds the component, whose event is open {"name"}; its value says when the list has to be asked for anew."""

    def __init__(self, live: Live) -> None:
        self.live = live
        functions = [answering("run_list", ListRequest, self.found)]
        self.component = component("runs", {}, render.script("run_list"), "run_list", functions)

    def value(self, chosen: str | None) -> dict[str, Any]:
        return {"version": self.live.entries().version, "chosen": chosen, "orders": SORT_KEYS}

    def found(self, request: ListRequest) -> dict[str, Any]:
        """The groups with the runs that match. Raises ConfigError for an order that there is not."""
        every = self.live.entries().entries
        runs = ordered(matching(every, request.search), request.order)
        visible, message = {one.name for one in runs[:MOST]}, ""
        if not runs and every:
            message = "No run matches: search for less."
        elif len(runs) > MOST:
            message = f"The first {MOST} of {len(runs):,} are shown: search for the others."
        groups = [
            {
                "id": f"group {title}",
                "title": title,
                "count": len(part),
                "runs": [_row(one) for one in part if one.name in visible],
            }
            for title, part in by_group(runs)
        ]
        groups = [one for one in groups if one["runs"]]
        return {"groups": groups, "all": len(every), "few": FEW, "message": message}


def _row(one: RunEntry) -> dict[str, Any]:
    return {
        "id": one.name,
        "state": one.state,
        "tone": one.tone,
        "icon": states.icon_path(one.state),
        "about": " · ".join(filter(None, (one.dataset, one.model))),
        "when": one.when,
        "dates": one.dates,
        "notes": " ".join(one.notes.split())[:NOTES],
    }
