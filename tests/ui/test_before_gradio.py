"""The curves of a run that a browser asks for while it builds the page."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
from starlette.applications import Starlette

from tests.written_run import write_run
from workbench.ui import before_gradio
from workbench.ui.core.live import Live
from workbench.ui.train import curves
from workbench.workspace import Workspace


def asked(live: Live, *names: str) -> list[Any]:
    """The answers to requests for these runs."""

    async def ask() -> list[Any]:
        transport = httpx.ASGITransport(Starlette(routes=before_gradio.routes(live)))
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            return [await client.get(before_gradio.CURVES, params={"run": name}) for name in names]

    return asyncio.run(ask())


def test_the_curves_are_those_that_the_tab_shows(workspace: Workspace) -> None:
    (nothing,) = asked(Live(workspace), "stripes")
    assert (nothing.status_code, nothing.text) == (200, "")
    for name in ("stripes", "rings"):
        write_run(workspace, name)
    live = Live(workspace)
    known, other, unknown = asked(live, "stripes", "rings", "../stripes")
    assert known.text == curves.main(live.snapshot("stripes"))
    assert 'data-owner="stripes"' in known.text
    assert 'data-owner="rings"' in other.text
    assert unknown.text == curves.main(live.chosen(None))  # as the tab does without that run
    assert known.headers["cache-control"] == "no-store"


def test_a_page_whose_server_has_no_such_address_asks_for_nothing() -> None:
    assert 'const CURVES = "/workbench/curves";' in before_gradio.script(True)
    assert 'const CURVES = "";' in before_gradio.script(False)
