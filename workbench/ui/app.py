"""The page: elements (assets/elements) that call operations, hosted by Gradio.

Gradio provides the server, uploads, files with range requests, share links, and Spaces with their GPUs.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import gradio as gr
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.responses import PlainTextResponse
from starlette.routing import Mount
from starlette.types import Receive, Scope, Send

from workbench.api.app import ROOT, api
from workbench.dataset_builder.cuts.scenes import STRIPS
from workbench.dataset_builder.dataset import PLANS
from workbench.dataset_builder.export import FOLDER as DOWNLOADS
from workbench.demo import DEMO_CLIPS
from workbench.demo_space import replays
from workbench.errors import ConfigError
from workbench.loras.converting import CONVERTED
from workbench.paths import ASSETS
from workbench.sampler import vae_reconstruction, worker
from workbench.ui import elements
from workbench.ui.server import calls
from workbench.ui.server.bodies import Bodies, Mounted
from workbench.ui.server.guard import Guard, Rules
from workbench.ui.server.login import Access, Login
from workbench.workspace import Workspace, confined, lora_names

SECONDS = 1.0  # between checks for waiting samples, on ZeroGPU


def build(workspace: Workspace) -> gr.Blocks:
    """Return the Gradio app over a workspace. The page reads everything from the workspace's folders."""
    gr.set_static_paths(
        [
            workspace.datasets,
            workspace.runs,
            workspace.samples,
            workspace.grids,
            lora_names.folder(workspace),
            *(workspace.cache / name for name in (PLANS, STRIPS, vae_reconstruction.FOLDER, CONVERTED, DOWNLOADS)),
            replays.SHIPPED,
            DEMO_CLIPS,
        ]
    )
    with gr.Blocks(title=elements.TITLE, analytics_enabled=False, delete_cache=(3600, 86400), fill_width=True) as page:
        gr.HTML("<noscript>This page needs JavaScript.</noscript>", elem_id="workbench")
        if worker.on_zero_gpu():  # only calls of the page get a GPU, so samples are generated inside one
            worker.announce(workspace)
            gr.Timer(SECONDS).tick(worker.answering(workspace), show_progress="hidden", api_visibility="private")
    page.queue(max_size=200, default_concurrency_limit=4, api_open=False)
    return page


def launch_options(
    workspace: Workspace, rules: Rules | None = None, trackers: bool = True, access: Access | None = None
) -> dict[str, Any]:
    """Return the arguments of `launch`: routes, middleware, and every optional feature of Gradio turned off.

    Args:
        rules: Where the page may be used from. Default: this machine only.
        trackers: Serve trackio, too.
        access: What opens the page. None leaves it open to everyone who reaches it.
    """
    rules = replace(rules or Rules(), files=partial(_may_serve, workspace))
    login = [Middleware(Login, access=access)] if access else []
    return {
        "app_kwargs": {
            "routes": [
                *([Mount("/trackio", Mounted(Dashboard(workspace)))] if trackers else []),
                Mount(ROOT, Mounted(api(workspace))),
                *elements.routes(),
            ],
            "middleware": [
                Middleware(Guard, rules=rules),
                *login,
                Middleware(Bodies, uploads=rules.uploads, bodies=rules.bodies, check=calls.check),
                *([Middleware(elements.BeforeGradio)] if elements.on_space() else []),
            ],
            "openapi_url": None,
        },
        "favicon_path": str(ASSETS / "logo.svg"),
        "share": False,
        "show_error": False,
        "quiet": True,
        "allowed_paths": [],
        "enable_monitoring": False,
        "run_history": False,
        "footer_links": [],
        "mcp_server": False,
        "pwa": False,
        "ssr_mode": False,
        "strict_cors": True,
        "max_file_size": "4gb",
        # With a frontend, Gradio checks over HTTP that it can reach itself and gives up after three seconds. A machine
        # that is busy training may take longer.
        "_frontend": False,
    }


def _may_serve(workspace: Workspace, path: str) -> bool:
    """Return whether a file may be served. Gradio follows links, and a link in a dataset or run may lead anywhere."""
    whole, folders = os.path.abspath(path), [replays.SHIPPED, DEMO_CLIPS]
    folders += [Path(folder)] if (folder := os.environ.get("GRADIO_TEMP_DIR")) else []
    looks: list[Callable[[str], object]] = [workspace.inside, *(partial(confined, folder) for folder in folders)]
    for look in looks:
        with contextlib.suppress(ConfigError):
            look(whole)
            return True
    return False


class Dashboard:
    """trackio's dashboard, made at the first request. It is read-only, because nobody gets its write token."""

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
                os.environ["TRACKIO_DIR"] = str(self._workspace.root / "trackio")  # read at import
                from trackio.server import build_starlette_app_only

                self._app, _ = build_starlette_app_only()
            return self._app
