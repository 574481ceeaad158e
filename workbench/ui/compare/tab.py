"""The Compare tab: Videos (a grid of them in lock-step) and Curves (runs over one another), a sub-tab each."""

from __future__ import annotations

from typing import Any

import gradio as gr

from workbench.ui.compare.curves import CurvesPart
from workbench.ui.compare.videos import VideosPart
from workbench.ui.core import open_tab
from workbench.ui.core.boundary import QUIET
from workbench.ui.core.form import Form
from workbench.ui.core.live import Live
from workbench.workspace import Workspace

OPEN_PART = "workbench-compare"  # where the browser keeps which sub-tab is open


class CompareTab:
    """Builds both sub-tabs; `wire` connects them."""

    def __init__(self, workspace: Workspace, live: Live) -> None:
        with gr.Tabs(selected="videos") as self.parts:
            with gr.Tab("Videos", id="videos", elem_id="tab-videos") as self._videos_tab:
                self.videos = VideosPart(workspace)
            with gr.Tab("Curves", id="curves", elem_id="tab-curves") as self._curves_tab:
                self.curves = CurvesPart(workspace, live)

    def wire(self, timer: gr.Timer, opened: Any, load: Any) -> None:
        """Connect the listeners. opened: the event when a person opens the tab; load: the page's load event."""
        self.videos.wire(timer, [opened, self._videos_tab.select])
        self.curves.wire([opened, self._curves_tab.select])
        # A reload comes back to the sub-tab that was open.
        stored = f"() => ({{__type__: 'update', selected: localStorage.getItem('{OPEN_PART}') ?? 'videos'}})"
        load(None, None, self.parts, js=stored)
        kept = open_tab.keep(("videos", "curves"), OPEN_PART)
        self.parts.change(None, js=f"async () => {{ {open_tab.MOMENT} {kept} }}", **QUIET)

    def wire_use(self, tabs: gr.Tabs, form: Form[Any]) -> None:
        """Let a video's settings fill in the Sample tab's form."""
        self.videos.wire_use(tabs, form)
