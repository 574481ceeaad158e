"""The queue strip: every waiting and active request with its latent preview, and the failed ones of this page.

The browser's half is assets/sample_queue.js, which changes only what has changed, so that a moving picture does not
start again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from workbench.display import states
from workbench.errors import ConfigError
from workbench.jobs import gpu_lock
from workbench.sampler import queue
from workbench.sampler.queue import Progress, RequestState
from workbench.sampler.view import request_view
from workbench.ui.core import render
from workbench.ui.core.live import Recent
from workbench.ui.core.widgets import component
from workbench.workspace import Workspace

MOST = 8  # of the waiting ones; the others are counted
NOTHING: dict[str, Any] = {"note": "", "requests": [], "more": 0, "elsewhere": 0, "failed": []}


class QueueStrip:
    """Builds the component. Its event is action {"do", "id"}: cancel, all, again, force, dismiss."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self._active = Recent(self._read, 0.4)
        self.component = component("sample-queue", NOTHING, render.script("sample_queue"))

    def value(self, submitted: Sequence[str], now: bool = False) -> dict[str, Any]:
        """The component's value. submitted: the requests of this page, whose failures are shown until dismissed."""
        active = self._active.get(now)
        own = [one for one in active if not one.into]
        found = [find(self.workspace, name) for name in submitted]
        return {
            "note": self._gpu_note() if not active else "",
            "requests": [_data(one) for one in own[:MOST]],
            "more": max(0, len(own) - MOST),
            "elsewhere": len(active) - len(own),
            "failed": [
                asdict(request_view(one)) for one in found if one is not None and one.state is RequestState.FAILED
            ],
        }

    def waiting(self, now: bool = False) -> list[str]:
        """Ids of the waiting and active samples, without those of grids."""
        return [one.id for one in self._active.get(now) if not one.into]

    def _read(self) -> list[Progress]:
        queue.revive(self.workspace)
        found = [find(self.workspace, name) for name in queue.pending(self.workspace)]
        return [one for one in found if one is not None and not one.state.over]

    def _gpu_note(self) -> str:
        holder = gpu_lock.holder(self.workspace.locks)
        if not holder or holder == queue.HOLDER:
            return ""
        return (
            f"The GPU is held by {holder}. A training run can generate a video between two steps (Train tab, Live "
            "sample), or be paused there: then the GPU is free for this tab."
        )


def find(workspace: Workspace, sample_id: str) -> Progress | None:
    try:
        return queue.progress(workspace, sample_id)
    except ConfigError:  # unknown by now
        return None


def _data(one: Progress) -> dict[str, Any]:
    picture = ""
    if one.picture is not None:
        with contextlib.suppress(OSError):  # done meanwhile
            picture = f"{render.url(one.picture)}?{one.picture.stat().st_mtime_ns}"
    badge = {"tone": states.tone_of(one.state), "icon": states.icon_path(one.state)}
    return asdict(request_view(one)) | badge | {"picture": picture}
