"""A small page with nothing but the Sample tab: `python -m tests.browser.sample_page WORKSPACE`."""

from __future__ import annotations

import sys

import gradio as gr
from workbench.ui.core.needless import remove_needless_boxes
from workbench.ui.sample.tab import SampleTab

from workbench.ui.app import launch_options
from workbench.workspace import Workspace


def build(workspace: Workspace) -> gr.Blocks:
    gr.set_static_paths([workspace.samples])
    with gr.Blocks(title="Sample", analytics_enabled=False, fill_width=True) as page:
        SampleTab(workspace).wire(gr.Timer(1.0), page.load, page.load)
    remove_needless_boxes(page)
    return page


def main() -> None:
    workspace = Workspace.open(sys.argv[1])
    page = build(workspace)
    _, address, _ = page.launch(prevent_thread_lock=True, **launch_options(workspace))
    print(address, flush=True)
    page.block_thread()


if __name__ == "__main__":
    main()
