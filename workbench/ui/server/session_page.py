"""`python -m workbench.ui.server.session_page FOLDER`: serve the page of one session (demo_space.sessions).

It is the ordinary page. A visitor's is restricted by quota, folder and a check of settings; a Space owner's is not. It
exits when its input ends.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from workbench import settings
from workbench.demo_space.limits import MEGABYTE, Limits, check
from workbench.demo_space.sessions import PROXY_SECRET
from workbench.jobs import quota
from workbench.ui.app import build, launch_options
from workbench.ui.server import guard
from workbench.workspace import Workspace, write_json


def main(folder: Path) -> None:
    """Serve the session until the proxy exits."""
    secret = os.environ.pop(PROXY_SECRET)
    if visitor := quota.current() is not None:
        quota.limit_process()
        settings.RULES.append(check)
    workspace = Workspace.open(folder / "workspace" if visitor else None)
    limits = Limits()
    uploads: dict[str, Any] = {"uploads": limits.upload, "bodies": 2 * MEGABYTE} if visitor else {}
    accepted = guard.Rules(
        hosts=(guard.ANY,), proxied=True, secret=secret, frames=("https://huggingface.co",), **uploads
    )
    options = launch_options(workspace, accepted, trackers=not visitor)
    if visitor:
        options["max_file_size"] = limits.upload
    page = build(workspace)
    app, _, _ = page.launch(server_name="127.0.0.1", prevent_thread_lock=True, **options)
    guard.outermost(app)
    write_json(folder / "address.json", {"port": page.server_port})
    sys.stdin.buffer.read()
    os._exit(0)  # threads still wait for browsers that have disconnected from the proxy


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve())
