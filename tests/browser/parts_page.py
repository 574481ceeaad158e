"""A small page with nothing but the clip grid and the timeline: `python -m tests.browser.parts_page WORKSPACE`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import gradio as gr

from workbench.dataset_builder.dataset import Dataset
from workbench.ui.app import launch_options
from workbench.ui.boundary import QUIET, handler
from workbench.ui.clip_grid import ClipGrid, Findings
from workbench.workspace import Workspace

Heard = Callable[[str, Any], None]


def build(workspace: Workspace, heard: Heard = lambda *_: None, findings: Findings = lambda _: {}) -> gr.Blocks:
    """The grid over the first dataset, looked at again every second, as the Dataset tab does; `heard` gets events."""
    gr.set_static_paths([workspace.datasets])

    def value() -> dict[str, Any]:
        return grid.value(next(iter(Dataset.all(workspace)), None))

    def listener(name: str) -> Any:
        def listen(event: gr.EventData) -> None:
            heard(name, event._data)

        return handler(listen)

    with gr.Blocks(title="Parts", analytics_enabled=False, fill_width=True) as page:
        grid = ClipGrid(workspace, findings)
        for name in ("open", "selection", "changed", "undo"):
            getattr(grid.component, name)(listener(name), None, None, trigger_mode="multiple", **QUIET)
        page.load(value, None, grid.component, **QUIET)
        gr.Timer(1.0).tick(value, None, grid.component, **QUIET)
    return page


def start(page: gr.Blocks) -> str:
    """Serve it in the background; its address."""
    options = launch_options() | {"prevent_thread_lock": True, "server_name": "127.0.0.1"}
    return str(page.launch(**options)[1])


if __name__ == "__main__":
    shown = build(Workspace.open(sys.argv[1]))
    print(start(shown), flush=True)
    shown.block_thread()
