"""trackio's dashboard, its own web application under /trackio of the page's server.

It loads at the first request and reads WORKSPACE/trackio. It is read-only, because nobody gets its write token.
"""

from __future__ import annotations

import importlib.util
import os
import threading
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from workbench.ui.server.bodies import Mounted
from workbench.workspace import Workspace

PATH = "/trackio"
FOLDER = "trackio"  # of the workspace
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]


def routes(workspace: Workspace) -> list[Any]:
    """Return the routes that serve the dashboard."""
    from starlette.routing import Mount

    return [Mount(PATH, app=Mounted(Dashboard(workspace)))]


class Dashboard:
    """trackio's web application, made at the first request."""

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
                os.environ["TRACKIO_DIR"] = str(self._workspace.root / FOLDER)  # read at import
                from trackio.server import build_starlette_app_only

                self._app, _ = build_starlette_app_only()
            return self._app
