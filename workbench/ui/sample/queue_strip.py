"""What is under way: every request that waits or is drawn, how it looks so far, and those that came to nothing.

The browser's half is assets/sample_queue.js, which changes only what has changed, so that a moving picture goes on
moving. Not covered: requests themselves (sampler.queue).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gradio as gr

from workbench.errors import ConfigError, ExitCode
from workbench.jobs import duration, gpu_lock
from workbench.sampler import queue
from workbench.sampler.queue import Progress, RequestState
from workbench.ui.core import render
from workbench.ui.core.live import Recent
from workbench.ui.sample.result import short_name
from workbench.workspace import Workspace

SHOWN = 8  # of those that wait; the others are counted
FORCE = "fit"  # what the refusal of a LoRA says in any case
NOTHING: dict[str, Any] = {"note": "", "cards": [], "more": 0, "elsewhere": 0, "failed": []}


class QueueStrip:
    """Builds the component. Its event is asked {"do", "id"}: cancel, all, again, force, dismiss, show."""

    def __init__(self, workspace: Workspace) -> None:
        self.workspace = workspace
        self._going = Recent(self._look, 0.4)
        self.component = gr.HTML(
            value=NOTHING,
            html_template="",
            css_template=render.style("components"),
            js_on_load=render.script("sample_queue"),
            apply_default_css=False,
            elem_id="sample-queue",
        )

    def value(self, asked: Sequence[str], now: bool = False) -> dict[str, Any]:
        """The component's value. asked: the requests of this page, whose failures it shows until they are dismissed."""
        going = self._going.get(now)
        mine = [one for one in going if not one.into]
        failed = [one for name in asked if (one := find(self.workspace, name)) and one.state is RequestState.FAILED]
        return {
            "note": self._busy() if not going else "",
            "cards": [_card(one) for one in mine[:SHOWN]],
            "more": max(0, len(mine) - SHOWN),
            "elsewhere": len(going) - len(mine),
            "failed": [_failure(one) for one in failed],
        }

    def waiting(self, now: bool = False) -> list[str]:
        """Ids of the samples under way; those of grids are not among them."""
        return [one.id for one in self._going.get(now) if not one.into]

    def _look(self) -> list[Progress]:
        queue.revive(self.workspace)
        found = [find(self.workspace, name) for name in queue.pending(self.workspace)]
        return [one for one in found if one is not None and not one.state.over]

    def _busy(self) -> str:
        holder = gpu_lock.holder(self.workspace.locks)
        if not holder or holder == queue.HOLDER:
            return ""
        return (
            f"The GPU is held by {holder}. A run that trains can be asked for a video on the Train tab (Try it now), "
            "or be paused there: then the GPU is free for this tab, and the run goes on afterwards as if nothing had "
            "happened."
        )


def find(workspace: Workspace, sample_id: str) -> Progress | None:
    try:
        return queue.progress(workspace, sample_id)
    except ConfigError:  # unknown by now
        return None


def _card(one: Progress) -> dict[str, Any]:
    settings, drawing = one.settings, one.state is RequestState.GENERATING and one.total > 0
    words = f"step {one.step} of {one.total}" if drawing else {
        RequestState.WAITING: "waiting", RequestState.LOADING: "loading the model"
    }.get(one.state, "drawing")  # fmt: skip
    left = f"about {duration(one.seconds_left)} left" if one.seconds_left is not None else ""
    picture = ""
    if one.picture is not None:
        try:
            picture = f"{render.url(one.picture)}?{one.picture.stat().st_mtime_ns}"
        except OSError:  # done meanwhile
            picture = ""
    return {
        "id": one.id,
        "state": one.state.value,
        "prompt": (settings.prompt if settings else "") or "(no prompt)",
        "about": _about(one),
        "words": " · ".join(filter(None, [words, left, one.message])),
        "share": one.step / one.total if drawing else None,
        "picture": picture,
    }


def _failure(one: Progress) -> dict[str, Any]:
    settings = one.settings
    unfit = one.exit_code == ExitCode.BAD_CONFIG and FORCE in one.message
    return {
        "id": one.id,
        "prompt": (settings.prompt if settings else "") or "(no prompt)",
        "message": one.message,
        "again": settings is not None,
        "force": bool(settings and settings.loras and not settings.force_loras and unfit),
    }


def _about(one: Progress) -> str:
    if one.settings is None:
        return ""
    loras = ", ".join(map(short_name, one.settings.loras)) or "base model"
    return f"{loras}, seed {one.settings.seed}"
