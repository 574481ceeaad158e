"""The Home tab: runs at work, waiting or failed, the newest samples and datasets, and what comes next.

The browser's half is assets/home.js.
"""

from __future__ import annotations

from typing import Any

import gradio as gr

from workbench.display import states
from workbench.overview import Overview, OverviewReader, RunLine
from workbench.sampler.samples import Sample
from workbench.sampler.view import loras_used, title_of, width_of
from workbench.ui.core import render
from workbench.ui.core.live import Live, Recent
from workbench.ui.core.view import LiveView
from workbench.ui.core.widgets import component
from workbench.workspace import Workspace


class HomeTab:
    """Builds the component. Its events are open {"kind", "name"}, and of the next steps train, sample {"name"}, demo.

    What is opened is a run, a dataset or a sample; a name of "" opens the tab alone.
    """

    def __init__(self, workspace: Workspace, live: Live) -> None:
        self.workspace, self.live = workspace, live
        self._overview = Recent(OverviewReader(workspace, live.statuses, live.waiting).read, 1.0)
        self.component = component("home", {}, render.script("home"), "home")

    def wire(self, timer: gr.Timer, *events: Any) -> None:
        """Follow the disk while the tab is open."""
        LiveView([self.component], lambda _: {self.component: self.value()}, [gr.State(None)]).follow(timer, *events)

    def value(self) -> dict[str, Any]:
        """The component's value."""
        return _data(self._overview.get())


def _data(seen: Overview) -> dict[str, Any]:
    runs = [(one, True) for one in seen.active] + [(one, False) for one in (*seen.failed, *seen.ended)]
    steps = [{"id": f"{one.kind} {one.target}", **one.__dict__} for one in seen.next_steps]
    return {
        "next_steps": steps,
        "runs": [_run(one, active) for one, active in runs],
        "samples": [_sample(one) for one in seen.samples],
        "datasets": [{"id": one.name, **one.__dict__} for one in seen.datasets],
        "machine": seen.machine,
    }


def _run(one: RunLine, active: bool) -> dict[str, Any]:
    return {"id": one.name, "active": active, "icon": states.icon_path(one.state), **one.__dict__}


def _sample(one: Sample) -> dict[str, Any]:
    return {
        "id": one.id,
        "url": render.url(one.path),
        "prompt": title_of(one),
        "about": loras_used(one),
        "pixelated": (width_of(one.settings, one.record) or 0) <= render.PIXEL_ART,
    }
