"""A small page with nothing but the Sample tab: `python -m tests.browser.sample_page WORKSPACE [PORT]`."""

from __future__ import annotations

import sys

import gradio as gr

from workbench.ui.app import launch_options
from workbench.ui.core.live import Live
from workbench.ui.sample.tab import SampleTab
from workbench.workspace import Workspace


def build(workspace: Workspace) -> gr.Blocks:
    gr.set_static_paths([workspace.samples])
    with gr.Blocks(title="Sample", analytics_enabled=False, fill_width=True) as page:
        SampleTab(workspace, Live(workspace)).wire(gr.Timer(1.0), page.load)
    return page


def main() -> None:
    workspace = Workspace.open(sys.argv[1])
    _, url, _ = build(workspace).launch(prevent_thread_lock=True, **launch_options(workspace))
    sys.stdout.write(f"page: {url}\n")
    sys.stdout.flush()
    sys.stdin.read()  # until whoever started it is gone


if __name__ == "__main__":
    main()
