"""What the browser does before Gradio starts there, and the curves of a run that it asks for meanwhile.

Building the page takes the browser most of a second, and only then Gradio asks for what is in the open tab. The
browser's half is assets/before_gradio.js.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from workbench.paths import ASSETS
from workbench.ui.core import render
from workbench.ui.core.live import Live
from workbench.ui.train import curves

if TYPE_CHECKING:
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import BaseRoute

OPEN_TAB = "workbench-tab"  # where the browser keeps its name
CURVES = "/workbench/curves"


def script(with_curves: bool) -> str:
    """with_curves: whether the page's server has `routes`."""
    values = {
        "OPEN_TAB": OPEN_TAB,
        "LAST_RUN": curves.LAST_RUN,
        "CURVES": render.below_prefix(CURVES) if with_curves else "",
    }
    constants = "".join(f"const {name} = {json.dumps(value)};\n" for name, value in values.items())
    text = (ASSETS / "before_gradio.js").read_text(encoding="utf-8")
    return f"(() => {{\n{constants}{render.FOR_READERS.sub('', text)}}})()"


def routes(live: Live) -> list[BaseRoute]:
    """The curves of `?run=NAME` as HTML, or of the run to show when none was chosen; empty where there is no run."""
    from starlette.concurrency import run_in_threadpool
    from starlette.responses import HTMLResponse
    from starlette.routing import Route

    def read(name: str) -> str:
        snapshot = live.chosen(name)
        return curves.main(snapshot) if snapshot else ""

    async def answer(request: Request) -> Response:
        html = await run_in_threadpool(read, request.query_params.get("run", ""))
        return HTMLResponse(html, headers={"cache-control": "no-store"})

    return [Route(CURVES, answer)]
