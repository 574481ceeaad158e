"""Start here: `python webui.py` serves the workbench to a browser. Works on a Hugging Face Space as it is.

Not covered: the page itself (workbench.ui), several users with rights of their own.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from workbench.workspace import Workspace

LOCAL = ("127.0.0.1", "localhost", "::1")
PASSWORD = "WORKBENCH_PASSWORD"
# These would quietly open the server to others or rename its parts.
REFUSED = ("GRADIO_SHARE", "GRADIO_ALLOWED_PATHS", "GRADIO_MCP_SERVER", "GRADIO_SERVER_NAME")


def options(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line. Ends the program when the server would be open to others without a password."""
    parser = argparse.ArgumentParser(prog="webui.py", description="Video LoRA Workbench in the browser.")
    parser.add_argument("--workspace", metavar="DIR", help="where everything is kept (default: ./workspace)")
    parser.add_argument("--host", help="address to listen on (default: 127.0.0.1, this machine only)")
    parser.add_argument("--port", type=int, help="default: the first free one from 7860")
    parser.add_argument("--listen", action="store_true", help=f"let other machines in; ${PASSWORD} holds the password")
    parser.add_argument("--root", action="append", metavar="DIR", help="clips may be named from here (default: any)")
    parser.add_argument("--open", action="store_true", help="open the browser")
    chosen = parser.parse_args(arguments)
    space = "SPACE_ID" in os.environ
    chosen.host = chosen.host or ("0.0.0.0" if chosen.listen or space else LOCAL[0])
    chosen.password = os.environ.pop(PASSWORD, "")
    if chosen.host not in LOCAL and not space and not chosen.password:
        parser.error(f"other machines need a password to come in: {PASSWORD}=... python webui.py --listen")
    return chosen


def main() -> None:
    """Build the page over the workspace and serve it until Ctrl-C. Runs that were started go on without it."""
    chosen = options()
    for name in REFUSED:
        os.environ.pop(name, None)
    workspace = Workspace.open(chosen.workspace)
    os.environ.update(GRADIO_ANALYTICS_ENABLED="False", GRADIO_TEMP_DIR=str(workspace.cache / "page"))
    from workbench.ui.app import build, launch_options

    auth = ("me", chosen.password) if chosen.password else None
    more = {"server_name": chosen.host, "server_port": chosen.port, "auth": auth, "inbrowser": chosen.open}
    local = [Path.home(), Path("/")] if chosen.host in LOCAL else []
    page = build(workspace, [Path(root) for root in chosen.root or local])
    try:
        _, url, _ = page.launch(prevent_thread_lock=True, **more, **launch_options(workspace))
    except OSError:
        sys.exit(f"port {chosen.port or '7860 and the hundred above'} is taken: choose another with --port")
    said = f"Video LoRA Workbench: {url}  (workspace {workspace.root}; Ctrl-C ends the page, not the runs)"
    print(said, flush=True)  # noqa: T201
    page.block_thread()


if __name__ == "__main__":
    main()
