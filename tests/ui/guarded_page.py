"""A small page behind the guard, with a password: `python -m tests.ui.guarded_page FOLDER`, which is served, too.

In a process of its own, since Gradio leaves event loops and sockets open in the one that it serves from.
"""

from __future__ import annotations

import sys
from pathlib import Path

import gradio as gr
from starlette.middleware import Middleware

from workbench.ui.server import calls, connections, guard
from workbench.ui.server.bodies import Bodies
from workbench.ui.server.guard import Guard, Rules
from workbench.ui.server.login import Access, Login

CAP = 200_000  # bytes of a body; of an upload, twice as many
NAME, PASSWORD = "me", "right"


def main() -> None:
    gr.set_static_paths([sys.argv[1]])
    with gr.Blocks(analytics_enabled=False) as blocks:
        given, shown = gr.Textbox(), gr.Textbox()
        given.submit(str.upper, given, shown, api_name="shout")
        gr.Button().click(lambda: None)
    rules = Rules(hosts=[*guard.LOCAL, "lab.example", "*.proxy.example"], bodies=CAP, uploads=2 * CAP)
    access = Access.made(Path(sys.argv[1]), PASSWORD)
    stack = [
        Middleware(Guard, rules=rules),
        Middleware(Login, access=access),
        Middleware(Bodies, uploads=rules.uploads, bodies=rules.bodies, check=calls.check),
    ]
    app, address, _ = blocks.launch(
        prevent_thread_lock=True,
        quiet=True,
        app_kwargs={"middleware": stack, "openapi_url": None},
        _frontend=False,
        ssr_mode=False,
        run_history=False,
        enable_monitoring=False,
        show_error=False,
    )
    guard.outermost(app)
    blocks.server.config.http_protocol_class = connections.Timed
    print(address, flush=True)
    blocks.block_thread()


if __name__ == "__main__":
    main()
