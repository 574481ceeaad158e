"""Serve the page, either over one workspace or as a demo with a session per visitor.

Both are behind the guard, print the address once the page answers, and end with Ctrl-C. Runs continue without them.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import signal
import socket
import sys
import threading
import webbrowser
from pathlib import Path

from workbench import jobs
from workbench.errors import WorkbenchError
from workbench.jobs import leftovers, platform
from workbench.ui.server import bodies, connections, guard, spaces
from workbench.ui.server.login import Access
from workbench.workspace import Workspace, named_paths

LOCAL = ("127.0.0.1", "localhost", "::1")
FIRST_PORT, PORTS = 7860, 100
NO_VISITORS = "the public demo (--demo) needs Linux or macOS: this system cannot limit the resources of visitors' jobs"
TAKEN = "port {} is taken: choose another with --port"


def rules(chosen: argparse.Namespace) -> guard.Rules:
    """Return the guard's rules for the command line. This machine's own names count if it listens to others."""
    names = [*guard.LOCAL, *(guard.own_names() if chosen.host not in LOCAL else ()), *chosen.allow_host]
    frames = [*(f"https://{name}" for name in chosen.allow_host), *(chosen.allow_frame or ())]
    return guard.Rules(hosts=[*names, chosen.host.lower()], frames=frames)


def _sweep(workspace: Workspace) -> None:
    """Remove half-written files of earlier pages and killed jobs."""
    leftovers.sweep(workspace.root)
    leftovers.sweep_uploads(workspace.cache / "page")


def serve(chosen: argparse.Namespace) -> None:
    """Serve the workbench over one workspace. Exits if the port is taken."""
    platform.share_freed_memory()
    workspace = Workspace.open(chosen.workspace)
    os.environ["GRADIO_TEMP_DIR"] = str(workspace.cache / "page")
    from workbench.ui.app import build, launch_options

    more = {"server_name": chosen.host, "server_port": chosen.port}
    local = [Path.home(), Path("/")] if chosen.host in LOCAL else []
    roots = [Path(root) for root in chosen.root or local]
    named_paths.confine([*roots, workspace.root])
    page = build(workspace)
    accepted = spaces.rules() if chosen.space else rules(chosen)
    access = Access.made(workspace.root, chosen.password, accepted.frames)
    launching = launch_options(workspace, accepted, access=access)
    # Start threads only after every operation is imported. pydantic parses the sources of classes for the docstrings of
    # fields, and two threads that parse at once fail with a SystemError on Python 3.11 (python/cpython#106905).
    threading.Thread(target=_sweep, args=(workspace,), daemon=True).start()
    threading.Thread(target=prepare, args=(workspace,), daemon=True).start()
    # Read by uvicorn: the proxies whose X-Forwarded-For it trusts.
    os.environ["FORWARDED_ALLOW_IPS"] = chosen.forwarded_allow_ips
    try:
        app, url, _ = page.launch(prevent_thread_lock=True, **more, **launching)
    except OSError:
        sys.exit(TAKEN.format(chosen.port or "7860 and the hundred above"))
    guard.outermost(app)
    page.server.config.http_protocol_class = connections.Timed
    connections.log_sparingly()
    address = access.address(url)
    _say(f"Video LoRA Workbench: {address}  (workspace {workspace.root}; Ctrl-C ends the page, not the runs)")
    if chosen.open:
        webbrowser.open(address)
    page.block_thread()


def prepare(workspace: Workspace) -> None:
    """Do ahead what the first visitor would wait for: read the run most likely to be opened, and compress the elements.

    A run of 100,000 steps takes a second or two to read. What is read next is what the page of a run asks first: it
    imports and compiles what any later answer needs.
    """
    from workbench.operations import progress
    from workbench.ui import elements

    known = jobs.jobs_in(workspace.runs)
    for status in [one for one in known if one.state.alive][:1] or known[:1]:
        with contextlib.suppress(WorkbenchError):  # the page will report it
            progress.curves(workspace, status.name)
            progress.state(workspace, status.name)
    elements.prepare()


def serve_visitors(chosen: argparse.Namespace) -> None:
    """Serve the demo, with a session per visitor. The owner of a Space gets the full workbench."""
    import dataclasses

    import uvicorn

    from workbench.demo_space.limits import MEGABYTE, Limits
    from workbench.demo_space.proxy import SessionProxy
    from workbench.demo_space.sessions import DemoSessions, default_root

    if not platform.LIMITS_VISITORS:
        sys.exit(NO_VISITORS)
    limits = Limits()
    accepted = spaces.rules() if chosen.space else rules(chosen)
    accepted = dataclasses.replace(accepted, uploads=limits.upload, bodies=2 * MEGABYTE)
    listening = _socket(chosen.host, chosen.port or int(os.environ.get("GRADIO_SERVER_PORT", 0)))
    root = Path(chosen.workspace).expanduser() if chosen.workspace else default_root()
    owner = spaces.Owner.of_this_space(root.parent / f"{root.name}-owner")
    for number in platform.END_SIGNALS:  # clean up as after Ctrl-C
        signal.signal(number, signal.default_int_handler)
    sessions = DemoSessions(root, limits, login=owner is not None)
    proxy = SessionProxy(sessions, framed=chosen.space)
    if owner:
        proxy.is_owner, proxy.owner_session = owner.sent, owner.session
    visited = bodies.Bodies(proxy, accepted.uploads, accepted.bodies, stranger=proxy.refusal)
    inner = owner.with_login(visited) if owner else visited
    more = {"forwarded_allow_ips": chosen.forwarded_allow_ips, "http": connections.Timed}
    app = guard.Guard(inner, accepted)
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=2, **more))
    connections.log_sparingly()
    host, port = listening.getsockname()[:2]
    _say(f"Video LoRA Workbench: http://{'localhost' if host == '0.0.0.0' else host}:{port}/  (demo; Ctrl-C ends it)")
    try:
        with contextlib.suppress(KeyboardInterrupt):
            server.run(sockets=[listening])
    finally:
        for number in (signal.SIGINT, *platform.END_SIGNALS):  # a second signal must not interrupt the cleanup
            signal.signal(number, signal.SIG_IGN)
        sessions.close()
        if owner:
            owner.close()
        if not chosen.workspace:
            with contextlib.suppress(OSError):
                root.rmdir()


def _socket(host: str, port: int) -> socket.socket:
    """Return a socket that listens on the port, or on the first free one for 0. Exits if there is none."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for number in [port] if port else range(FIRST_PORT, FIRST_PORT + PORTS):
        try:
            return socket.create_server((host, number), family=family, backlog=512)
        except OSError:
            continue
    sys.exit(TAKEN.format(port or "7860 and the hundred above"))


def _say(sentence: str) -> None:
    print(sentence, flush=True)  # noqa: T201
