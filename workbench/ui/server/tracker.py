"""trackio's dashboard, its own web application under /trackio of the page's server.

It loads at the first request and reads WORKSPACE/trackio. It is read-only, because nobody gets its write token.
"""

from __future__ import annotations

import importlib.util
import os
import threading
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.responses import PlainTextResponse
from starlette.routing import Mount
from starlette.types import Receive, Scope, Send

from workbench.ui.server.bodies import Mounted
from workbench.workspace import Workspace

PATH = "/trackio"
FOLDER = "trackio"  # of the workspace


def routes(workspace: Workspace) -> list[Any]:
    """Return the routes that serve the dashboard."""
    return [Mount(PATH, app=Mounted(Dashboard(workspace)))]


class Dashboard:
    """trackio's web application, made at the first request."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._app: Any = None
        self._lock = threading.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        app = self._app or await run_in_threadpool(self._made)
        if app is None:
            app = PlainTextResponse("trackio is not installed: pip install trackio", 404)
        await app(scope, receive, send)

    def _made(self) -> Any:
        with self._lock:
            if self._app is None and importlib.util.find_spec("trackio"):
                os.environ["TRACKIO_DIR"] = str(self._workspace.root / FOLDER)  # read at import
                from trackio.server import build_starlette_app_only

                self._app, _ = build_starlette_app_only()
            return self._app
