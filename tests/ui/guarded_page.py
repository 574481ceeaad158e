"""A small page behind the guard, with a password: `python -m tests.ui.guarded_page FOLDER`, which is served, too.

In a process of its own, since Gradio leaves event loops and sockets open in the one that it serves from.
"""

from __future__ import annotations

import sys

import gradio as gr
from starlette.middleware import Middleware

from workbench.ui import guard
from workbench.ui.guard import Guard, Rules

CAP = 200_000  # bytes of a body; of an upload, twice as many
NAME, PASSWORD = "me", "right"


def main() -> None:
    gr.set_static_paths([sys.argv[1]])
    with gr.Blocks(analytics_enabled=False) as blocks:
        given, shown = gr.Textbox(), gr.Textbox()
        given.submit(str.upper, given, shown, api_name="shout")
        gr.Button().click(lambda: None)
    rules = Rules(hosts=[*guard.LOCAL, "lab.example", "*.proxy.example"], bodies=CAP, uploads=2 * CAP)
    kwargs = {"middleware": [Middleware(Guard, rules=rules)], "openapi_url": None}
    app, address, _ = blocks.launch(
        prevent_thread_lock=True, quiet=True, app_kwargs=kwargs, auth=(NAME, PASSWORD), _frontend=False,
        ssr_mode=False, run_history=False, enable_monitoring=False, show_error=False,
    )  # fmt: skip
    guard.outermost(app)
    print(address, flush=True)
    blocks.block_thread()


if __name__ == "__main__":
    main()
