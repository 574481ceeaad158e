"""trackio's dashboard inside the page: its own web application under /trackio of this very server, in a frame.

It is loaded when somebody first looks at it and reads WORKSPACE/trackio. What it could change (names of runs, their
removal) it refuses, because nobody is given its write token.
"""

from __future__ import annotations

import importlib.util
import os
import threading
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import quote

import gradio as gr

from workbench.errors import ConfigError
from workbench.runs.run import Run
from workbench.ui.core import render
from workbench.ui.core.boundary import QUIET, handler
from workbench.ui.server.bodies import Mounted
from workbench.workspace import Workspace

PATH = "/trackio"
FOLDER = "trackio"  # of the workspace
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
ADVICE = {
    "none": "This run has no tracker: choose one among the settings, under Logging. The page needs none.",
    "tensorboard": "TensorBoard is a program of its own: tensorboard --logdir {runs}",
    "wandb": "Weights & Biases shows its runs on its own site. Send what was kept offline there: "
    "wandb sync {run}/wandb/offline-*",
    "comet_ml": "Comet shows its runs on its own site. Send what was kept offline there: "
    "comet upload {run}/comet_ml/*.zip",
}


def routes(workspace: Workspace) -> list[Any]:
    """What the page's server is launched with (`app_kwargs={"routes": ...}`) to serve the dashboard."""
    from starlette.routing import Mount

    return [Mount(PATH, app=Mounted(Dashboard(workspace)))]


class Dashboard:
    """trackio's web application, made at its first request."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._app: Any = None
        self._lock = threading.Lock()

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        from starlette.concurrency import run_in_threadpool
        from starlette.responses import PlainTextResponse

        if scope["type"] != "http":
            return
        app = self._app or await run_in_threadpool(self._made)
        if app is None:
            app = PlainTextResponse("trackio is not installed: pip install trackio", 404)
        await app(scope, receive, send)

    def _made(self) -> Any:
        with self._lock:
            if self._app is None and importlib.util.find_spec("trackio"):
                os.environ["TRACKIO_DIR"] = str(self._workspace.root / FOLDER)  # read when it is imported
                from trackio.server import build_starlette_app_only

                self._app, _ = build_starlette_app_only()
            return self._app


class TrackerView:
    """A folded part of the Train tab; what is in it comes when it is opened."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        with gr.Accordion("Tracker", open=False, elem_id="tracker") as self.part:
            self.dashboard = gr.HTML(elem_id="tracker-dashboard")

    def wire(self, chosen: gr.BrowserState) -> None:
        """Connect the listeners. `chosen` holds the name of the run that is shown."""
        self.part.expand(handler(self._show, [self.part]), chosen, self.dashboard, **QUIET)
        self.part.collapse(lambda: "", None, self.dashboard, **QUIET)  # a dashboard that nobody sees sends no requests

    def _show(self, name: str | None) -> str:
        if not name:
            raise ConfigError("no run is chosen: choose one in the list on the left")
        return dashboard(Run.open(self._workspace, name))


def dashboard(run: Run) -> str:
    """A run's tracker as HTML: trackio in a frame, of the others what to type."""
    settings = run.settings
    if settings.tracker == "all":
        others = [ADVICE[name].format(runs=run.folder.parent, run=run.folder) for name in ADVICE if name != "none"]
        return "".join(map(render.note, others)) + (_frame(run) if importlib.util.find_spec("trackio") else "")
    if settings.tracker != "trackio":
        return render.note(ADVICE[settings.tracker].format(runs=run.folder.parent, run=run.folder))
    if importlib.util.find_spec("trackio") is None:
        return render.note("trackio is not installed where this page runs: pip install trackio")
    return _frame(run)


def _frame(run: Run) -> str:
    settings = run.settings
    address = render.escaped(render.below_prefix(f"{PATH}/?project={quote(settings.tracker_project)}"))
    looks = "width:100%;height:78vh;border-width:0;border-radius:8px"
    return f'<iframe src="{address}" style="{looks}" title="trackio, {render.escaped(run.name)}"></iframe>'
