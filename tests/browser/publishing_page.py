"""A small page with nothing but the publishing part: `python -m tests.browser.publishing_page WORKSPACE LORA`."""

from __future__ import annotations

import sys

import gradio as gr
from workbench.ui.core.needless import remove_needless_boxes
from workbench.ui.loras.publish import PublishPart

from workbench.ui.app import launch_options
from workbench.workspace import Workspace


def build(workspace: Workspace, name: str) -> gr.Blocks:
    """The part below a LoRA that is chosen at once."""
    with gr.Blocks(title="Publish", analytics_enabled=False, fill_width=True) as page:
        chosen = gr.State()
        part = PublishPart(workspace)
        part.wire(gr.Timer(1.0), chosen)
        page.load(lambda: name, None, chosen)
    remove_needless_boxes(page)
    return page


def main() -> None:
    workspace = Workspace.open(sys.argv[1])
    _, address, _ = build(workspace, sys.argv[2]).launch(**launch_options(workspace), prevent_thread_lock=True)
    print(address, flush=True)
    sys.stdin.read()  # until whoever started it goes


if __name__ == "__main__":
    main()
